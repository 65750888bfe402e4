"""`toposcale.compare_runs`: which of several training runs is better, from their loss curves."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from toposcale.forecasting.decision.run_comparison import RunComparison, compare
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.runs.from_curve import FIELDS, Curve, Stated, number, run_as_read
from toposcale.io.errors import UserError


def compare_runs(*curves: Curve | Mapping[str, Any], seed_noise: float | None = None, **facts: Any) -> RunComparison:
    """Compare training runs with the first: which is better now and at the end, and the speed-up.

    Parameters
    ----------
    curves : path, mapping of columns, or mapping with a key `curve`
        Losses of A, B, ... in nats per token, as for `toposcale.advise`, of the same data and tokenizer; a mapping with a
        key `curve` holds its arguments that apply to this run alone, for example
        ``{"curve": "b.csv", "n_parameters": 50e6}``.
    seed_noise : float, optional
        Standard deviation of the loss between seeds, nats per token; by default estimated from replicates.
    **facts
        Arguments that all runs share, as for `toposcale.advise`: n_parameters, tokens_per_step, schedule, steps,
        warmup_steps, loss_column, step_column. What needs an unknown one is left out, or said to be unknown.

    Returns
    -------
    RunComparison
        Differences to A at equal steps, tokens and compute and at the ends of the schedules, and the speed-up, for each
        other run; printed, one sentence each.

    Raises
    ------
    UserError
        One line on what is wrong with a curve.
    TypeError
        With fewer than two curves.

    Examples
    --------
    >>> import numpy as np, toposcale
    >>> steps = np.arange(100, 10_001, 100)
    >>> a = {"step": steps, "loss": 2.0 + 40 * steps**-0.5}
    >>> b = {"step": steps, "loss": 2.0 + 36 * steps**-0.5}
    >>> print(toposcale.compare_runs(a, b, tokens_per_step=500_000, steps=10_000))
    At step 10,000: B has the lower loss (B minus A: -0.0399 nats, ...
    B reached this loss of A at 0.81 (0.79 to 0.82) of these tokens.
    At the ends (step 10,000): B is better (B minus A: -0.0401 nats, ...); confident.
    """
    if not 2 <= len(curves) <= len(ascii_uppercase):
        raise TypeError(f"compare_runs: from 2 to {len(ascii_uppercase)} curves, got {len(curves)}")
    runs = []
    for letter, curve in zip(ascii_uppercase, curves, strict=False):
        stated: Mapping[str, Any] = curve if isinstance(curve, Mapping) and "curve" in curve else {"curve": curve}
        path = stated["curve"]
        fields = {"name": Path(path).name if isinstance(path, str | Path) else letter, **facts, **stated}
        if unknown := sorted(set(fields) - set(FIELDS)):
            raise UserError(
                f"{fields['name']}: unknown field {', '.join(unknown)}; a run has {', '.join(sorted(FIELDS))}"
            )
        try:
            runs.append(run_as_read(Stated(**fields)))
        except UserError as error:
            name = f"{fields['name']}: "
            raise UserError(name + f"{error}".removeprefix(name)) from None
    if len({run.model for run in runs}) < len(runs):
        runs = [
            replace(run, metadata=replace(run.metadata, model=f"{letter} ({run.model})"))
            for letter, run in zip(ascii_uppercase, runs, strict=False)
        ]
    return compare(Joint(), runs, number(seed_noise, "seed_noise", 0))
