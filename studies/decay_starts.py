"""How much is lost by decaying when the law says, and by fixed shares of the training.

    python -m studies.decay_starts

Some published runs differ only in the start of their decay: of one peak rate and length the outcome
of every start is known. At 20 and 40% of the run with the shortest decay, whose rate is still constant, the law chooses
among those that have not begun; its prior was learnt without the source. The regret is the final loss of a choice less the
lowest one. Nothing is trained.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from studies import small_tables
from studies.decisions import PUBLISHED_RUNS, computed
from studies.decisions.published import read
from toposcale.forecasting.decision.decay import when_to_decay
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.laws.prior_table import priors
from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule, ScheduleProvenance

AT = (0.2, 0.4)
FIXED = (0.1, 0.2, 0.4, 0.6)
FEWEST = 4
"""Fewest starts of a decay among which there is a choice."""


def main() -> None:
    """Print the regret of each policy at each decision, and write the means."""
    prior_without = priors()
    published = read(PUBLISHED_RUNS)
    runs = {run.model: run for run in published}
    facts = {
        name: (run.family, run.schedule.peak_rate, run.final_step, run.decay_start)
        for name, run in runs.items()
        if run.shape == "wsd" and run.schedule.peak_rate < 1  # else the rates are relative to an unknown peak
    }
    decayed = pd.DataFrame.from_dict(facts, orient="index", columns=["family", "peak_rate", "steps", "decay_start"])
    rows = []
    for _, members in decayed.groupby(["family", "peak_rate", "steps"]):
        family, peak, steps = members.iloc[0][["family", "peak_rate", "steps"]].tolist()
        shares = {name: round(1 - start / steps, 3) for name, start in members["decay_start"].items()}
        ends = {share: runs[str(name)].progress.loss for name, share in shares.items()}
        if len(ends) < FEWEST:
            continue
        trunk = runs[str(min(shares, key=lambda name: shares[name]))]
        warming = np.arange(1, steps + 2) / max(trunk.stated_warmup, 1)
        constant = LearningRateSchedule(steps, peak * np.minimum(warming, 1), ScheduleProvenance.GIVEN)
        for at in AT:
            now = replace(trunk.first(at), schedule=constant)
            open_ends = {share: end for share, end in ends.items() if 1 - share >= at}
            law = Joint(prior_without[trunk.source]).fit(now)
            decision = when_to_decay(law, now, ("linear",), tuple(open_ends))
            chosen = [1 - weighed.candidate.decay_start / steps for weighed in decision.candidates] if decision else []
            share = min(open_ends, key=lambda share: abs(share - chosen[0]))
            best = min(open_ends.values())
            row = {"family": family, "peak_rate": peak, "steps": steps, "at": at, "chosen": share}
            row |= {"best": min(open_ends, key=lambda share: open_ends[share]), "law": open_ends[share] - best}
            rows.append(row | {f"always {fixed:.0%}": _nearest(open_ends, fixed) - best for fixed in FIXED})
    regrets = pd.DataFrame(rows)
    print(small_tables.markdown(regrets))
    policies = ["law", *(f"always {fixed:.0%}" for fixed in FIXED)]
    means = regrets[policies].mean().rename("regret").rename_axis("policy").reset_index()
    computed.write(means.assign(decisions=len(regrets)), PUBLISHED_RUNS, "decay_starts", published)


def _nearest(ends: dict[float, float], share: float) -> float:
    return ends[min(ends, key=lambda one: abs(one - share))]


if __name__ == "__main__":
    main()
