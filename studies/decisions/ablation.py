"""What each part of the joint law is worth: the decisions of the published runs, judged with one part left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import ModuleType
from unittest.mock import patch

import numpy as np
import pandas as pd

from studies.decisions.judge import EXPECTED_REGRET, decisions_of, groups
from studies.decisions.priors import SLOPES
from toposcale.forecasting.decision.decision_points import DecisionPoint
from toposcale.forecasting.evaluation import GROUP
from toposcale.forecasting.laws import family_law
from toposcale.forecasting.laws import priors as constants
from toposcale.forecasting.laws.family_law import P
from toposcale.forecasting.laws.priors import Gaussian, Prior

NOTHING = 1e-6
BY_HAND = {"kappa": Gaussian(0.0, 0.15), "share": Gaussian(0.405, 0.25), "log_alpha_n": Gaussian(np.log(0.34), 0.25)}
"""The size law that was stated by hand before: alpha 0.34 and E / L0 0.6."""

LEFT_OUT: dict[str, Callable[[Prior], Prior]] = {
    "nothing": lambda prior: prior,
    "the model discrepancy": lambda prior: prior._replace(log_discrepancy=Gaussian(np.log(NOTHING), NOTHING)),
    "the size of the discrepancy from the curve": lambda prior: prior._replace(
        log_discrepancy=prior.log_discrepancy._replace(sd=0.01)
    ),
    "the time exponent: T is the sum of the rates": lambda prior: prior._replace(time_exponent=1.0),
    "the decay exponent: a decay counts as it is": lambda prior: prior._replace(decay_exponent=1.0),
    "B changes with peak rate, batch and size": lambda prior: prior._replace(**dict.fromkeys(SLOPES, 0.0)),  # type: ignore[arg-type]
    "the learnt scaling in N: one by hand": lambda prior: prior._replace(**BY_HAND),  # type: ignore[arg-type]
}
"""What takes a part of the law away."""

PATCHED: dict[str, Sequence[tuple[ModuleType | type, str, object]]] = {
    "the second model": ((Prior, "second_model", property(lambda prior: prior)),),
    "the growth of the discrepancy towards the past": ((constants, "DISCREPANCY_GROWTH", 0.0),),
    "the part of the discrepancy of a run alone": ((constants, "SAME_SIZE_CORR", 1.0),),
    "the cost of the first steps": (
        (family_law, "_OF_ONE_SIZE", family_law._OF_ONE_SIZE | {P.LOG_F: Gaussian(float(np.log(NOTHING)), 0.01)}),
    ),
    "the scatter of sizes around the scaling law": (
        (family_law, "SCATTER", dict.fromkeys(family_law.SCATTER, NOTHING)),
        (Prior, "b_scatter", NOTHING),
    ),
}
"""Constants of the law, and the values that take a part away."""

EVERY = 20
"""Of the decision_points of runs of usual shapes one of so many is judged, for time."""


def ablation(decision_points: Sequence[DecisionPoint], priors: Mapping[str, Prior]) -> pd.DataFrame:
    """A row for each part: means over the groups of usual shapes without it.

    Columns: left_out, regret, more_regret (that less the regret of the whole law) and its standard error over the groups,
    confident, confident_right, near_right, error_continue, error_start, coverage_continue, coverage_start.
    """
    some = [point for point in decision_points if point.base.is_usual][::EVERY]
    changed = {name: {source: change(prior) for source, prior in priors.items()} for name, change in LEFT_OUT.items()}
    judged = {name: _usual_groups(some, without, ()) for name, without in changed.items()}
    judged |= {name: _usual_groups(some, priors, patches) for name, patches in PATCHED.items()}
    rows = []
    for name, table in judged.items():
        more = table["regret"] - judged["nothing"]["regret"]
        row = {
            "left_out": name,
            "regret": table["regret"].mean(),
            "more_regret": more.mean(),
            "more_regret_se": more.sem(),
        }
        rows.append(row | table[MEASURED].astype(float).mean().to_dict())
    return pd.DataFrame(rows)


MEASURED = [
    *("confident", "confident_right", "near_right"),
    *("error_continue", "error_start", "coverage_continue", "coverage_start"),
]


def _usual_groups(
    decision_points: Sequence[DecisionPoint],
    priors: Mapping[str, Prior],
    changes: Sequence[tuple[ModuleType | type, str, object]],
) -> pd.DataFrame:
    """The groups of usual shapes, judged with some constants replaced; regret is that of the advice."""
    with ExitStack() as stack:
        for module, constant, value in changes:
            stack.enter_context(patch.object(module, constant, value))
        usual = [group for group in groups(decisions_of(decision_points, priors)) if group["usual"]]
    regrets = {"regret": [group["regret"][EXPECTED_REGRET] for group in usual]}
    return pd.DataFrame(usual).assign(**regrets).set_index(GROUP)
