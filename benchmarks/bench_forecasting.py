"""Forecasts and decisions of a paper run (5 models, 51 checkpoints, 5,000 steps), and the two laws alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.timing import Line, Row, seconds_of
from toposcale.analysis.decisions import decision_table
from toposcale.analysis.forecasts import evaluate, forecast_table
from toposcale.analysis.methods import METHODS
from toposcale.analysis.training_runs import FeaturedRun
from toposcale.forecasting import LearningRateSchedule, RunFacts
from toposcale.forecasting.laws.chinchilla import fit_chinchilla
from toposcale.forecasting.laws.multi_power_law import fit_multi_power_law

SIZES = {"tiny-3k": 2936, "small-7k": 7408, "med-21k": 20640, "large-46k": 46368, "xl-97k": 97200}
FINAL_STEP, WARMUP, PEAK = 5000, 200, 3e-3


def schedule(steps: int, warmup: int = WARMUP, peak: float = PEAK) -> np.ndarray:
    """Linear warm-up and a cosine to a tenth, one rate a step."""
    share = np.arange(steps + 1 - warmup) / (steps - warmup)
    return np.concatenate([peak * np.arange(warmup) / warmup, peak * (0.55 + 0.45 * np.cos(np.pi * share))])


def paper_run(seed: int = 0) -> list[FeaturedRun]:
    """Made-up runs of the paper's sizes: power laws with batch noise, and three features that drift."""
    rng = np.random.default_rng(seed)
    steps, at = np.arange(1, FINAL_STEP + 1), np.linspace(0, FINAL_STEP, 51).astype(int)
    drift = np.log(at + WARMUP)
    return [
        FeaturedRun(
            RunFacts(model, size, 8192, "paper"),
            LearningRateSchedule(FINAL_STEP, schedule(FINAL_STEP)),
            steps=steps,
            losses=8 * steps**-0.4 + 12 * size**-0.25 + 0.5 + 0.03 * rng.normal(size=FINAL_STEP),
            gradient_norms=0.5 + steps**-0.2 + 0.03 * rng.normal(size=FINAL_STEP),
            checkpoint_steps=at,
            checkpoint_losses=8 * np.maximum(at, 10) ** -0.4 + 12 * size**-0.25 + 0.5,
            features={
                "weights/neural_persistence": 0.5 - 0.05 * drift + 0.001 * rng.normal(size=51),
                "weights/frobenius_norm": 3 * drift + 0.01 * rng.normal(size=51),
                "weights/h0_total": 9 * drift + 0.1 * rng.normal(size=51),
            },
        )
        for model, size in SIZES.items()
    ]


def rows() -> Iterator[Line]:
    """One row a table or law; a method's seconds are those of all models and all fractions."""
    trainings = paper_run()
    slow = {"multi_power_law", "chinchilla"}
    for method in sorted(slow):
        yield timed(f"forecasts of a paper run, {method}", 20, forecast_table, trainings, methods=[method])
    rest = [method for method in METHODS if method not in slow]
    yield timed(f"forecasts, the {len(rest)} other methods", 20, forecast_table, trainings, methods=rest)
    forecasts = forecast_table(trainings)
    yield timed("forecast_evaluation, 200 permutations", 20, evaluate, forecasts, trainings)
    yield timed("decisions of a paper run, all policies", 30, decision_table, trainings)
    rates, seen = schedule(24_000, 2160, 3e-4), np.arange(2160, 24_000, 128)
    curve = (rates, seen, 2.6 + 0.6 * np.cumsum(rates)[seen] ** -0.45)
    yield timed("fit_multi_power_law, 3 x 24,000 steps", 60, fit_multi_power_law, [curve] * 3)
    sizes, tokens = np.repeat(np.geomspace(3e3, 1e5, 5), 40), np.tile(np.geomspace(1e6, 4e7, 40), 5)
    losses = 1 + 10 / sizes**0.3 + 30 / tokens**0.25
    yield timed("fit_chinchilla, 200 points", 5, fit_chinchilla, sizes, tokens, losses)


def timed(name: str, limit: float, function: Callable[..., Any], *arguments: Any, **options: Any) -> Row:
    """Seconds of one call."""
    return Row(name, seconds_of(function, *arguments, **options)[0], limit)
