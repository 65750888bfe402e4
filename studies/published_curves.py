"""Every forecasting method on published loss curves at 20, 30 and 50%: error, coverage, and the prior left out.

    python -m studies.published_curves FOLDER [--prior]

FOLDER holds csv_25, csv_100 and perhaps csv_400: the curves under nine schedules that were published with the
multi-power law (columns step, lr, loss). Writes tables/published_curves.csv. --prior chooses the two numbers of the prior
for each curve without its size and without its schedule, and prints the errors that this gives.
"""

import argparse
import csv
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from studies import small_tables
from toposcale.analysis.forecasts import FRACTIONS, evaluate, forecast_table
from toposcale.analysis.methods import forecast
from toposcale.forecasting import LearningRateSchedule, MultiPowerLaw, RunFacts, ScheduleProvenance, TrainingRun
from toposcale.forecasting.runs.schedules import Schedule

WARMUP, PEAK, FINAL, STEP_DOWN = 2160, 3e-4, 3e-5, 8000


def plan(name: str, last: int) -> np.ndarray:
    """The schedule that a curve's name stands for, one rate a step."""
    shape, _, numbers = name.partition("_")
    if shape == "wsdcon":
        low = float(numbers) * 1e-5
        rates = Schedule("constant", PEAK, last, WARMUP).rates()
        return np.where(np.arange(last + 1) < STEP_DOWN, rates, low)
    ends = [int(number) for number in numbers.split("_")]
    if shape in ("constant", "cosine"):
        return Schedule(shape, PEAK, ends[0], WARMUP, FINAL).rates()
    decay = "linear" if shape == "wsdld" else "exponential"
    return Schedule("wsd", PEAK, ends[1], WARMUP, FINAL, decay_start=ends[0], decay_shape=decay).rates()


def histories(folder: Path) -> list[TrainingRun]:
    """A finished run for each file."""
    found = []
    for size in (25, 100, 400):
        for file in sorted(folder.glob(f"csv_{size}/*.csv")):
            with file.open(newline="") as lines:
                rows = np.array([[float(cell) for cell in row] for row in list(csv.reader(lines))[1:]])
            steps, logged, losses = rows[:, 0].astype(int), rows[:, 1], rows[:, 2]
            rates = plan(file.stem, int(steps[-1]))[: steps[-1] + 1]
            assert np.allclose(rates[steps], logged, rtol=5e-3), file
            found.append(
                TrainingRun(
                    RunFacts(f"{size}M_{file.stem}", size * 1_000_000, 524_288, "published"),
                    LearningRateSchedule(int(steps[-1]), rates, ScheduleProvenance.GIVEN),
                    checkpoint_steps=steps,
                    checkpoint_losses=losses,
                    steps=steps,
                    losses=losses,
                )
            )
    return found


def methods_table(runs: list[TrainingRun]) -> pd.DataFrame:
    """A row a share of the run and method: forecasts, mean error in nats, and coverage of its own intervals."""
    rows = evaluate(forecast_table(runs, fractions=FRACTIONS), resamples=200).dropna(subset=["mae"])
    return rows.sort_values(["fraction", "mae"])[["fraction", "method", "n_forecasts", "mae", "interval_coverage"]]


def left_out(runs: list[TrainingRun]) -> str:
    """Errors with a prior that was chosen without a curve's size and without its schedule, by the likelihood."""
    grid = list(product((0.15, 0.25, 0.35, 0.5, 1.0), (0.001, 0.002, 0.003)))
    errors = np.empty((len(grid), len(runs), len(FRACTIONS)))
    widths = np.empty_like(errors)
    for g, (tightness, discrepancy) in enumerate(grid):
        for r, run in enumerate(runs):
            for f, fraction in enumerate(FRACTIONS):
                found = forecast(MultiPowerLaw(tightness, discrepancy), run.first(fraction))
                errors[g, r, f] = found.value - run.progress.loss
                widths[g, r, f] = found.value * np.log(found.high / found.value) / 1.96
    score = np.log(widths) + 0.5 * (errors / widths) ** 2
    chosen = []
    for run in runs:
        schedule = run.model.partition("_")[2]
        kept = [other.n_parameters != run.n_parameters and other.model.partition("_")[2] != schedule for other in runs]
        chosen.append(int(np.nanargmin(np.nanmean(score[:, kept], axis=(1, 2)))))
    picked = errors[chosen, np.arange(len(runs))]
    held = np.abs(picked) <= 1.96 * widths[chosen, np.arange(len(runs))]
    lines = [
        f"{fraction:.0%}: mean error {np.nanmean(np.abs(picked[:, f])):.4f}, empirical coverage {np.mean(held[:, f]):.0%}"
        for f, fraction in enumerate(FRACTIONS)
    ]
    counts = {grid[index]: chosen.count(index) for index in sorted(set(chosen))}
    return "\n".join([*lines, f"chosen (tightness, discrepancy): {counts}"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--prior", action="store_true")
    given = parser.parse_args()
    curves = histories(given.folder)
    if given.prior:
        print(left_out(curves))
    else:
        small_tables.write(methods_table(curves), small_tables.TABLES / "published_curves.csv")
