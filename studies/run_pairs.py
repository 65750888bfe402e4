"""How often the comparison of two runs is right: replicates, and pairs of published runs.

    python -m studies.run_pairs [FOLDER ...]

Replicates are runs of the project's own studies that differ only by their seed: the share that is told to differ is the
false-positive rate. So are three published records of 124M models, of twelve seeds each; there a difference of `PLANTED`
nats is planted, too. Pairs are runs of one family of published runs (FOLDERS, by default studies/decisions/published_runs)
whose losses differ at the end: from 30 and 50% of both, the sign of the forecast difference is compared with the measured
one. The prior is learnt without the source of the pair (`priors.csv`). Nothing is trained.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import pandas as pd

from studies import small_tables
from studies.decisions import PUBLISHED_RUNS, computed
from studies.decisions.published import read
from studies.nulls.configurations import RUNS
from toposcale.forecasting.decision.compare_runs import RunPair, compare
from toposcale.forecasting.decision.differences import Axis, Difference
from toposcale.forecasting.laws.joint import Joint
from toposcale.forecasting.laws.prior_table import NONE, priors
from toposcale.forecasting.laws.priors import Prior
from toposcale.forecasting.runs.facts import RunFacts
from toposcale.forecasting.runs.learning_rate_schedule import LearningRateSchedule
from toposcale.forecasting.runs.published_run import PublishedRun
from toposcale.forecasting.runs.training_run import TrainingRun
from toposcale.io.errors import NoForecast, UserError

PAIRS, MAX_RUNS = 60, 8
"""Pairs of replicates of each configuration, and runs of each family and length."""
SHARES = (0.3, 0.5)
REPLICATE_TOKENS = 524_288.0
"""Tokens of a step of the published replicates."""
PLANTED = 0.01
"""Difference that is planted between replicates, nats."""
APART = 0.01
"""Least measured difference of a pair, nats: the sign of a smaller one is noise."""


def replicates() -> Iterator[tuple[str, RunPair]]:
    """Yield the comparison of pairs of replicates, with their configuration."""
    for study in ("study-2", "study-3"):
        for path in sorted((RUNS / study / "series").glob("*.csv.gz")):
            models = pd.read_csv(RUNS / study / "models" / path.name).set_index("model")
            runs = []
            for name, rows in pd.read_csv(path).sort_values("step").groupby("model"):
                facts: dict[Any, Any] = models.loc[name].to_dict()
                rows = rows[rows["step"] > 0]
                runs.append(
                    TrainingRun(
                        RunFacts(str(name), int(facts["n_parameters"]), float(facts["tokens_per_step"])),
                        LearningRateSchedule(int(facts["final_step"])),
                        checkpoint_steps=rows["step"].to_numpy(np.float64),
                        checkpoint_losses=rows["validation_loss"].to_numpy(np.float64),
                        metric="validation loss",
                    )
                )
            rng = np.random.default_rng(0)
            for _ in range(PAIRS):
                one, other = rng.choice(len(runs), 2, replace=False)
                yield path.name.removesuffix(".csv.gz"), compare(Joint(), [runs[one], runs[other]]).pairs[0]


def published_replicates() -> pd.DataFrame:
    """A row for each published record: pairs, the standard deviation of their difference and the median half-width of its
    interval, nats, and the shares of pairs that are told to differ (significant), and of those where `PLANTED` is found.

    The row `attainable` is what the least width for all does that calls 5% of the pairs different.
    """
    rows, values = [], []
    for record, losses in pd.read_csv(PUBLISHED_RUNS / "replicates.csv.gz").query("step > 0").groupby("record"):
        runs = [
            TrainingRun(
                RunFacts(str(log), 124_000_000, REPLICATE_TOKENS),
                LearningRateSchedule(int(rows["steps"].iloc[0])),
                checkpoint_steps=rows["step"].to_numpy(np.float64),
                checkpoint_losses=rows["loss"].to_numpy(np.float64),
                metric="validation loss",
            )
            for log, rows in losses.groupby("log")
        ]
        ends = [compare(Joint(), list(pair)).pairs[0].end for pair in combinations(runs, 2)]
        value = np.array([end.value for end in ends])
        half = np.array([(end.high - end.low) / 2 for end in ends])
        row = {
            "record": record,
            "pairs": len(ends),
            "deviation": float(value.std()),
            "half_width": float(np.median(half)),
        }
        rows.append(row | _found(value, half))
        values.append(value)
    together = np.concatenate(values)
    width = np.quantile(np.abs(together), 0.95)
    row = {
        "record": "attainable",
        "pairs": len(together),
        "deviation": float(together.std()),
        "half_width": float(width),
    }
    return pd.DataFrame([*rows, row | _found(together, width)])


def _found(value: np.ndarray, half: np.ndarray) -> dict[str, float]:
    """The shares of differences outside their intervals, as they are and with `PLANTED`."""
    significant = [sign * value + PLANTED > half for sign in (1, -1)]
    return {"significant": float(np.mean(np.abs(value) > half)), "found": float(np.mean(significant))}


class RememberingLaw(Joint):
    """A law that fits a run up to a step once: a run is in several pairs."""

    def __init__(self, prior: Prior) -> None:
        super().__init__(prior)
        self.fits: dict[tuple[str, float], Joint | NoForecast] = {}

    def fit(self, run: TrainingRun, others: Sequence[TrainingRun] = ()) -> Self:
        key = run.model, run.progress.step
        if key not in self.fits:
            try:
                self.fits[key] = super().fit(run, others)
            except NoForecast as error:
                self.fits[key] = error
        if isinstance(fitted := self.fits[key], NoForecast):
            raise fitted
        return cast(Self, fitted)


def pairs(runs: Sequence[PublishedRun], by_source: Mapping[str, Prior]) -> Iterator[dict[str, object]]:
    """Yield a row for each pair of finished runs of a family that end after as many tokens, by share of their training.

    by_source: the prior learnt without each; `NONE` for a source that no prior was learnt from.
    """
    families: dict[tuple[str, float], list[TrainingRun]] = {}
    for run in runs:
        if run.is_finished:
            families.setdefault((f"{run.source}/{run.family}", round(run.tokens / 1e8)), []).append(run)
    for (family, _), members in sorted(families.items()):
        source = family.partition("/")[0]
        law = RememberingLaw(by_source.get(source, by_source[NONE]))
        rng = np.random.default_rng(0)
        chosen = [members[index] for index in sorted(rng.permutation(len(members))[:MAX_RUNS])]
        for one, other in combinations(chosen, 2):
            truth = other.progress.loss - one.progress.loss
            if abs(truth) < APART:
                continue
            for share in SHARES:
                try:
                    end = compare(law, [one.first(share), other.first(share)]).pairs[0].end
                except UserError as error:
                    end = Difference(Axis.END, reason=str(error))
                yield {
                    "source": source,
                    "share": share,
                    "truth": truth,
                    "has_forecast": not end.reason,
                    "is_significant": end.is_significant,
                    "is_right": bool(end.value * truth > 0),
                    "is_inside": bool(end.low <= truth <= end.high),
                }


def pairs_by_source(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each source: pairs, the shares with a forecast (forecast) and with a run that is called better
    (significant), and how often the interval contains the measured difference (coverage) and the better run is better
    (right)."""
    means = []
    for source, part in rows.groupby("source"):
        forecast, significant = part[part["has_forecast"]], part[part["is_significant"]]
        means.append(
            {
                "source": source,
                "pairs": len(part),
                "forecast": len(forecast) / len(part),
                "coverage": forecast["is_inside"].mean(),
                "significant": len(significant) / len(part),
                "right": significant["is_right"].mean(),
            }
        )
    return pd.DataFrame(means)


def replicates_by_configuration() -> pd.DataFrame:
    """A row for each configuration, and one for all: the pairs, and the share of them that is found to differ."""
    rows = pd.DataFrame(
        {"configuration": name, "now": row.now[0].is_significant, "end": row.end.is_significant}
        for name, row in replicates()
    )
    grouped = rows.groupby("configuration")
    table = grouped.mean().join(grouped.size().rename("pairs")).reset_index()
    total = table[["now", "end"]].mean().to_dict() | {"configuration": "all", "pairs": len(rows)}
    return pd.concat([table, pd.DataFrame([total])], ignore_index=True)


def main(folders: list[Path]) -> None:
    """Write the three tables; of other folders than the committed one, print that of their pairs."""
    if folders:
        rows = [row for folder in folders for row in pairs(read(folder), priors())]
        print(small_tables.markdown(pairs_by_source(pd.DataFrame(rows))))
        return
    runs = read(PUBLISHED_RUNS)
    compared = pd.DataFrame(pairs(runs, priors()))
    computed.write(pairs_by_source(compared), PUBLISHED_RUNS, "pairs", runs)
    small_tables.write(published_replicates(), PUBLISHED_RUNS / "replicate_pairs.csv")
    small_tables.write(replicates_by_configuration(), small_tables.TABLES / "study_replicate_pairs.csv")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
