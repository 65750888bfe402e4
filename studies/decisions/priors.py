"""The prior of the joint law, learnt from the published families: with all of them, and with each source left out.

The constants of a source are those of the joint law fitted to its runs under a wide prior, the mean over its families.
The prior's centre is the mean over sources. Its width holds a source that was not seen: the spread over so few sources is
drawn towards a width that was stated beforehand, which counts as `STATED` sources.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from studies.decisions.published import Run
from toposcale.forecasting.joint import Joint
from toposcale.forecasting.priors import PUBLISHED, Belief, Prior
from toposcale.forecasting.training_run import TrainingRun

WIDE = Prior(
    log_alpha=Belief(np.log(0.5), 0.5),
    log_b=Belief(np.log(0.04), 1.0),
    kappa=Belief(0.0, 0.5),
    share=Belief(0.7, 1.0),
    log_alpha_n=Belief(np.log(0.34), 0.5),
)
"""Centres of the order that Luo et al. 2025 and Hoffmann et al. 2022 publish, and little faith in them."""

WIDTHS = {"log_alpha": 0.2, "log_b": 0.25, "kappa": 0.07, "share": 0.35, "log_alpha_n": 0.25}
"""How far families are thought to differ, stated before they were looked at one by one."""

STATED = 4
MOMENT = 0.3
NONE = "none"


def learnt(runs: Sequence[Run]) -> pd.DataFrame:
    """A row for each source: the constants of its families, averaged."""
    rows = []
    for source in sorted({run.source for run in runs}):
        families = sorted({run.family for run in runs if run.source == source})
        found = [
            _constants([run.history for run in runs if run.family == family and run.is_usual])
            for family in families
        ]
        rows.append(
            {"source": source} | {name: float(np.mean([one[name] for one in found])) for name in WIDTHS}
        )
    return pd.DataFrame(rows).set_index("source")


def _constants(family: Sequence[TrainingRun]) -> dict[str, float]:
    """As decisions find them: from runs at a moment of decision, around a run of middle size.

    B alone is from whole runs, since a decay tells it.
    """
    sizes = sorted({run.n_parameters for run in family})
    of = max(
        (run for run in family if run.n_parameters == sizes[len(sizes) // 2]), key=lambda run: run.last_step
    )
    then = Joint(WIDE).fit([run.first(MOMENT) for run in family], of.first(MOMENT)).learnt()
    whole = Joint(WIDE).fit(family, of).learnt()
    return {name: getattr(whole if name == "log_b" else then, name).centre for name in WIDTHS}


def prior_table(constants: pd.DataFrame) -> pd.DataFrame:
    """A row for each source that is left out, and one for `NONE`: centre and width of every constant."""
    rows = []
    for left_out in (NONE, *constants.index):
        kept = constants.drop(index=left_out, errors="ignore")
        row: dict[str, object] = {"left_out": left_out}
        for name, stated in WIDTHS.items():
            values = kept[name].to_numpy(np.float64)
            squares = float(np.sum((values - values.mean()) ** 2))
            variance = (STATED * stated**2 + squares) / (STATED + len(values) - 1)
            row[name] = float(values.mean())
            row[f"{name}_width"] = float(np.sqrt(variance * (1 + 1 / len(values))))
        rows.append(row)
    return pd.DataFrame(rows).set_index("left_out")


def priors(table: pd.DataFrame) -> dict[str, Prior]:
    """The prior for each source, learnt without it; for `NONE` the one learnt from all."""
    return {
        str(left_out): PUBLISHED._replace(
            **{name: Belief(row[name], row[f"{name}_width"]) for name in WIDTHS}
        )
        for left_out, row in table.iterrows()
    }
