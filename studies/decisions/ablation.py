"""What each part of the joint law is worth: the decisions of the published runs, judged with one part left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import ModuleType
from unittest.mock import patch

import numpy as np
import pandas as pd

from studies.decisions.judge import EXPECTED_REGRET, decisions_of, groups
from studies.decisions.published import Moment
from toposcale.forecasting import joint, misfit
from toposcale.forecasting.priors import Belief, Prior

NOTHING = 1e-6
LEFT_OUT: dict[str, Sequence[tuple[ModuleType, str, object]]] = {
    "nothing": (),
    "the misfit": ((misfit, "NOW", NOTHING),),
    "that the misfit grows towards the past": ((misfit, "GROWTH", 0.0),),
    "that the curve tells how large the misfit is": ((misfit, "SCALE_WIDTH", 0.01),),
    "that part of the misfit is a run's own": ((misfit, "OF_ALL_RUNS", 1.0),),
    "the cost of the first steps": ((joint, "_FIRST", (float(np.log(NOTHING)), 0.01)),),
    "the clock: T is the sum of the rates": ((joint, "CLOCK", 1.0),),
    "what a size has of its own": ((joint, "OWN", dict.fromkeys(joint.OWN, NOTHING)),),
}
"""Constants of the law, and the values that take a part away."""

BY_HAND = Prior(
    log_alpha=Belief(-0.69, 0.3),
    log_b=Belief(-3.2, 0.5),
    kappa=Belief(0.0, 0.15),
    share=Belief(0.405, 0.25),
    log_alpha_n=Belief(float(np.log(0.34)), 0.25),
)
"""The size law that was stated by hand before: alpha 0.34 and E / L0 0.6."""

EVERY = 5
"""Of the moments of runs of usual shapes one of so many is judged, for time."""


def ablation(moments: Sequence[Moment], priors: Mapping[str, Prior]) -> pd.DataFrame:
    """A row for each part: means over the groups of usual shapes without it.

    Columns: left_out, regret, sure, sure_right, near_right, error_finish, error_start, coverage_finish, coverage_start.
    """
    some = [moment for moment in moments if moment.base.is_usual][::EVERY]
    rows = [_row(name, some, priors, changes) for name, changes in LEFT_OUT.items()]
    by_hand = dict.fromkeys(priors, BY_HAND)
    return pd.DataFrame([*rows, _row("the learnt prior: a law of sizes by hand", some, by_hand, ())])


def _row(
    name: str,
    moments: Sequence[Moment],
    priors: Mapping[str, Prior],
    changes: Sequence[tuple[ModuleType, str, object]],
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
