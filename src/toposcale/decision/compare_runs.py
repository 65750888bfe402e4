"""`toposcale.compare_runs`: which of two training runs is better, from their loss curves."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from toposcale.decision.run_comparison import RunComparison, compared
from toposcale.io.errors import UserError
from toposcale.runs.from_curve import FIELDS, Curve, Stated, number, run_as_read


def compare_runs(
    a: Curve | Mapping[str, Any], b: Curve | Mapping[str, Any], *, seed_noise: float | None = None, **facts: Any
) -> RunComparison:
    """Compare two training runs of the same data and tokenizer: which is better now and at the end, and the speed-up.

    Parameters
    ----------
    a, b : path, mapping of columns, or mapping with a key `curve`
        Losses in nats per token, as for `toposcale.advise`; a mapping with a key `curve` holds its
        arguments that apply to this run alone, for example ``{"curve": "b.csv", "n_parameters": 50e6}``.
    seed_noise : float, optional
        Standard deviation of the loss between seeds, nats per token; by default estimated from replicates.
    **facts
        Arguments that both runs share, as for `toposcale.advise`: n_parameters, tokens_per_step, schedule, steps,
        warmup_steps, loss_column, step_column. Comparisons that need an unknown one are left out.

    Returns
    -------
    RunComparison
        Differences B minus A at equal steps, tokens and compute and at the ends of the schedules, and the speed-up;
        printed, one sentence each.

    Raises
    ------
    UserError
        One line on what is wrong with a curve.

    Examples
    --------
    >>> import numpy as np, toposcale
    >>> steps = np.arange(100, 10_001, 100)
    >>> a = {"step": steps, "loss": 2.0 + 40 * steps**-0.5}
    >>> b = {"step": steps, "loss": 2.0 + 36 * steps**-0.5}
    >>> print(toposcale.compare_runs(a, b, tokens_per_step=500_000))
    At step 10,000: B is better (B minus A: -0.0399 nats, ...
    B reached this loss of A at 0.81 (0.79 to 0.82) of these tokens.
    At the last rows of both: B is better (B minus A: -0.0401 nats, ...
    """
    runs = []
    for name, curve in (("A", a), ("B", b)):
        own = curve if isinstance(curve, Mapping) and "curve" in curve else {"curve": curve}
        path = own["curve"]
        fields: dict[str, Any] = {"name": Path(path).name if isinstance(path, str | Path) else name, **facts, **own}
        if unknown := sorted(set(fields) - set(FIELDS)):
            raise UserError(
                f"{fields['name']}: unknown field {', '.join(unknown)}; a run has {', '.join(sorted(FIELDS))}"
            )
        runs.append(run_as_read(Stated(**fields)))
    if runs[0].model == runs[1].model:
        runs = [
            replace(run, metadata=replace(run.metadata, model=f"{name} ({run.model})"))
            for name, run in zip("AB", runs, strict=True)
        ]
    return compared(runs[0], runs[1], number(seed_noise, "seed_noise", 0))
