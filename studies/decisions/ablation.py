"""What each part of the joint law is worth: the decisions of the published runs, judged with one part left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import ModuleType
from unittest.mock import patch

import numpy as np
import pandas as pd

from studies.decisions.judge import EXPECTED_REGRET, decisions_of, groups
from studies.decisions.published import Moment
from toposcale.laws import discrepancy, family_law, joint
from toposcale.laws.priors import Belief, Prior

NOTHING = 1e-6
BY_HAND = {"kappa": Belief(0.0, 0.15), "share": Belief(0.405, 0.25), "log_alpha_n": Belief(np.log(0.34), 0.25)}
"""The size law that was stated by hand before: alpha 0.34 and E / L0 0.6."""

LEFT_OUT: dict[str, Callable[[Prior], Prior]] = {
    "nothing": lambda prior: prior,
    "the misfit": lambda prior: prior._replace(log_misfit=Belief(np.log(NOTHING), NOTHING)),
    "that the curve tells how large the misfit is": lambda prior: prior._replace(
        log_misfit=prior.log_misfit._replace(width=0.01)
    ),
    "the clock: T is the sum of the rates": lambda prior: prior._replace(clock=prior.clock._replace(centre=1.0)),
    "a fall of the rate counts as it is": lambda prior: prior._replace(gain=prior.gain._replace(centre=1.0)),
    "B grows with the peak rate": lambda prior: prior._replace(peak=0.0),
    "the learnt law of sizes: one by hand": lambda prior: prior._replace(**BY_HAND),  # type: ignore[arg-type]  # beliefs
}
"""What takes a part of the law away."""

PATCHED: dict[str, Sequence[tuple[ModuleType, str, object]]] = {
    "the slow law": ((joint, "SLOW_SHARE", 0.0),),
    "that the misfit grows towards the past": ((discrepancy, "GROWTH", 0.0),),
    "that part of the misfit is a run's own": ((discrepancy, "OF_ALL_RUNS", 1.0),),
    "the cost of the first steps": ((family_law, "_FIRST", (float(np.log(NOTHING)), 0.01)),),
    "what a size has of its own": ((family_law, "OWN", dict.fromkeys(family_law.OWN, NOTHING)),),
}
"""Constants of the law, and the values that take a part away."""

EVERY = 5
"""Of the moments of runs of usual shapes one of so many is judged, for time."""


def ablation(moments: Sequence[Moment], priors: Mapping[str, Prior]) -> pd.DataFrame:
    """A row for each part: means over the groups of usual shapes without it.

    Columns: left_out, regret, sure, sure_right, near_right, error_finish, error_start, coverage_finish, coverage_start.
    """
    some = [moment for moment in moments if moment.base.is_usual][::EVERY]
    changed = {name: {source: change(prior) for source, prior in priors.items()} for name, change in LEFT_OUT.items()}
    rows = [_row(name, some, without, ()) for name, without in changed.items()]
    return pd.DataFrame(rows + [_row(name, some, priors, patches) for name, patches in PATCHED.items()])


def _row(
    name: str, moments: Sequence[Moment], priors: Mapping[str, Prior], changes: Sequence[tuple[ModuleType, str, object]]
) -> dict[str, object]:
    with ExitStack() as stack:
        for module, constant, value in changes:
            stack.enter_context(patch.object(module, constant, value))
        found = [group for group in groups(decisions_of(moments, priors)) if group["usual"]]
    names = ("sure", "sure_right", "near_right", "error_finish", "error_start")
    table = pd.DataFrame(found)
    means = table[[*names, "coverage_finish", "coverage_start"]].astype(float).mean()
    regret = float(np.mean([group["regret"][EXPECTED_REGRET] for group in found]))
    return {"left_out": name, "regret": regret, **means}
