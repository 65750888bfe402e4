"""Tables of a made-up run of five models, drifting as a real one does, for the tests of the figures."""

from __future__ import annotations

import numpy as np
import pandas as pd

from toposcale.analysis.decisions import advice_table, advised_runs, candidate_table
from toposcale.analysis.forecasts import evaluate, forecast_table, trainings_from_tables
from toposcale.analysis.scaling import scaling_tables
from toposcale.analysis.verdicts import verdict_tables

SIZES = {"tiny-3k": 2936, "small-7k": 7408, "med-21k": 20640, "large-46k": 46368, "xl-97k": 97200}
FINAL_LOSS = dict(zip(SIZES, (2.31, 1.92, 1.69, 1.49, 1.37), strict=True))
LAST_STEP, EVERY, WARMUP = 1000, 20, 40
CHECKPOINTS = range(0, LAST_STEP + 1, EVERY)
LOG_STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 2000, 5000, 10000, 33000, 66000, 100000, 143000)


def models_table(seeds: tuple[int, ...] = (42,)) -> pd.DataFrame:
    """Five sizes of a family, one model a seed."""
    widths = dict(zip(SIZES, (8, 16, 24, 32, 48), strict=True))
    return pd.DataFrame(
        [
            {
                "model": name if seed == seeds[0] else f"{name}.seed{seed}",
                "family": "gpt",
                "seed": seed,
                "n_parameters": size,
                "d_model": widths[name],
                "n_layers": 2,
                "n_heads": 2,
                "tokens_per_step": 64 * 128,
                "final_step": LAST_STEP,
                "warmup_steps": WARMUP,
            }
            for name, size in SIZES.items()
            for seed in seeds
        ]
    )


def learning_rate(step: np.ndarray) -> np.ndarray:
    """Linear warm-up, then a cosine to 0."""
    progress = np.clip((step - WARMUP) / (LAST_STEP - WARMUP), 0, 1)
    return 3e-3 * np.where(step < WARMUP, step / WARMUP, 0.5 * (1 + np.cos(np.pi * progress)))


def schedules_table() -> pd.DataFrame:
    """The plan of every model."""
    steps = np.arange(LAST_STEP + 1)
    return pd.concat(
        pd.DataFrame({"model": model, "step": steps, "learning_rate": learning_rate(steps)}) for model in SIZES
    )


def loss(model: str, step: np.ndarray) -> np.ndarray:
    """A falling loss from ln 128."""
    final = FINAL_LOSS[model]
    return final + (np.log(128) - final) * (1 + step / 30) ** -1.1


def training_table() -> pd.DataFrame:
    """Every optimiser step of every model."""
    rng = np.random.default_rng(1)
    steps = np.arange(1, LAST_STEP + 1)
    return pd.concat(
        pd.DataFrame(
            {
                "model": model,
                "step": steps,
                "loss": loss(model, steps) + 0.06 * rng.standard_normal(len(steps)),
                "gradient_norm": 1 / (1 + steps / 50) + 0.2 + 0.05 * rng.random(len(steps)),
                "learning_rate": learning_rate(steps),
            }
        )
        for model in SIZES
    )


def metrics_table(steps: tuple[int, ...] | range = CHECKPOINTS) -> pd.DataFrame:
    """Losses and perplexity at every checkpoint."""
    rng = np.random.default_rng(2)
    rows = []
    for model in SIZES:
        losses = loss(model, np.asarray(steps) * (LAST_STEP / steps[-1]))
        for step, value in zip(steps, losses, strict=True):
            measured = {
                "training_loss": value + 0.02 * rng.standard_normal(),
                "validation_loss": value + 0.05,
                "perplexity": np.exp(value + 0.05),
            }
            rows.extend((model, step, metric, number) for metric, number in measured.items())
    return pd.DataFrame(rows, columns=["model", "step", "metric", "value"])


def features_table(steps: tuple[int, ...] | range = CHECKPOINTS, source: str = "weights") -> pd.DataFrame:
    """Whole-model and per-layer features that drift with the step."""
    rng = np.random.default_rng(3)
    rows = []
    for rank, (model, size) in enumerate(SIZES.items()):
        progress = np.asarray(steps) / steps[-1]
        growth = 1 + (2 + rank / 2) * progress**0.6
        noise = 1 + 0.01 * rng.standard_normal((40, len(progress)))
        whole = {
            "neural_persistence": (0.62 - 0.03 * rank) + 0.05 * (rank - 1) * progress,
            "neural_persistence_p2": 0.75 - 0.02 * rank + 0.03 * progress,
            "frobenius_norm": 0.02 * size**0.5 * growth,
            "stable_rank": 6 + rank - 2 * progress,
            "powerlaw_alpha": 4 - progress,
            "effective_rank": 4 + (6 + 3 * rank) * progress**0.5,
            "participation_ratio": 3 + (4 + 2 * rank) * progress**0.4,
            "eigenspectrum_decay": 2.5 - progress,
        }
        for dimension, share in ((0, 1.0), (1, 0.06)):
            total = share * 0.05 * size**0.6 * growth
            whole |= {
                f"h{dimension}_count": np.full(len(progress), 30 * (rank + 1) * share).round(),
                f"h{dimension}_total": total,
                f"h{dimension}_total_scaled": total / growth**0.9,
                f"h{dimension}_max": total / 8,
                f"h{dimension}_mean": total / 30,
                f"h{dimension}_entropy": 3 + 0.2 * progress,
                f"h{dimension}_wasserstein_1": 0.2 * total / (1 + 20 * progress),
                f"h{dimension}_wasserstein_2": 0.1 * total / (1 + 20 * progress),
                f"h{dimension}_bottleneck": 0.02 * total / (1 + 20 * progress),
            }
        for number, (feature, values) in enumerate(whole.items()):
            values = values * noise[number]
            rows.extend((model, step, source, "all", feature, v) for step, v in zip(steps, values, strict=True))
        for layer in LAYERS:
            for number, feature in enumerate(("neural_persistence", "h0_total", "frobenius_norm")):
                values = whole[feature] * (0.5 + rng.random()) * noise[20 + number]
                rows.extend((model, step, source, layer, feature, v) for step, v in zip(steps, values, strict=True))
    return pd.DataFrame(rows, columns=["model", "step", "source", "layer", "feature", "value"])


LAYERS = (
    "token_embedding.weight",
    "position_embedding.weight",
    "blocks.0.attention.qkv.weight",
    "blocks.0.attention.projection.weight",
    "blocks.0.feed_forward.expansion.weight",
    "blocks.0.feed_forward.projection.weight",
    "blocks.1.attention.qkv.weight",
    "blocks.1.attention.projection.weight",
    "blocks.1.feed_forward.expansion.weight",
    "blocks.1.feed_forward.projection.weight",
)


def diagrams_table(steps: tuple[int, ...] | range = LOG_STEPS, source: str = "embeddings") -> pd.DataFrame:
    """H0 bars born at 0 and short H1 bars, on clouds that grow with the step, for the two largest models."""
    rng = np.random.default_rng(5)
    rows = []
    for model in ("large-46k", "xl-97k"):
        for index, step in enumerate(steps):
            radius = 1 + 0.2 * index
            deaths = rng.normal(radius, 0.15 * radius, 60).clip(0.05)
            births = rng.normal(1.2 * radius, 0.1 * radius, 15).clip(0.05)
            lengths = rng.exponential(0.1 * radius, 15)
            rows.extend((model, step, source, "last", 0, 0.0, death) for death in deaths)
            pairs = zip(births, births + lengths, strict=True)
            rows.extend((model, step, source, "last", 1, birth, death) for birth, death in pairs)
    return pd.DataFrame(rows, columns=["model", "step", "source", "layer", "dimension", "birth", "death"])


def surfaces_table(points: int = 21) -> pd.DataFrame:
    """A bowl with bumps, so that there are several minima."""
    axis = np.linspace(-3, 3, points)
    x, y = (values.ravel() for values in np.meshgrid(axis, axis))
    bumps = np.cos(2.2 * x) * np.cos(1.9 * y + 0.4)
    parts = [
        pd.DataFrame(
            {"model": "xl-97k", "step": step, "plane": plane, "x": x, "y": y}
            | {"loss": 1.4 + 0.25 * (x**2 + y**2) + height * bumps}
        )
        for plane, height in (("negative_1", 0.35), ("random_1", 0.0))
        for step in (0, LAST_STEP)
    ]
    return pd.concat(parts, ignore_index=True)


def path_surfaces_table() -> pd.DataFrame:
    """The plane of the training path: one surface."""
    surfaces = surfaces_table()
    chosen = (surfaces["step"] == LAST_STEP) & (surfaces["plane"] == "negative_1")
    return surfaces[chosen].drop(columns="plane")


def trajectories_table() -> pd.DataFrame:
    """A way that starts outside the window and ends at the origin."""
    progress = np.linspace(0, 1, 11)
    return pd.DataFrame(
        {
            "model": "xl-97k",
            "step": (progress * LAST_STEP).astype(int),
            "x": 4 * (1 - progress) ** 1.5,
            "y": -2 * (1 - progress) * np.cos(3 * progress),
            "distance": progress * (1 - progress),
        }
    )


def densities_table() -> pd.DataFrame:
    """A bulk at 0 and an outlier per model."""
    parts = []
    for rank, model in enumerate(SIZES):
        eigenvalue = np.linspace(-2, 14, 400)
        density = np.exp(-((eigenvalue / 0.5) ** 2) / 2) + 1e-3 * np.exp(-(((eigenvalue - 6 - rank) / 0.3) ** 2) / 2)
        parts.append(pd.DataFrame({"model": model, "step": LAST_STEP, "eigenvalue": eigenvalue, "density": density}))
    return pd.concat(parts)


def profiles_table() -> pd.DataFrame:
    """Two basins on each of two lines; the younger ends where it meets the older."""
    rows = []
    for direction in ("from the checkpoint before", "negative_1"):
        levels = np.linspace(1.4, 2.4, 21)
        rows.extend(
            (direction, 0, level, min(1.0, 0.05 + 0.9 * (level - 1.4) ** 2 + 0.3 * (level > 2.0))) for level in levels
        )
        rows.extend((direction, 1, level, 0.02 + 0.4 * (level - 1.6)) for level in levels if 1.6 <= level <= 2.0)
    table = pd.DataFrame(rows, columns=["direction", "component", "level", "mass"])
    return table.assign(model="xl-97k", step=LAST_STEP)


def analysed(features: pd.DataFrame, metrics: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The tables that the statistics make of the features and metrics, with few resamples."""
    whole = features[features["layer"] == "all"]
    tables = verdict_tables(whole, metrics, models_table(), seed=1, resamples=20)
    return {name: tables[name] for name in ("correlations", "pooled_correlations", "verdicts")}


def all_tables() -> dict[str, pd.DataFrame]:
    """Every table that a figure of the weights, the statistics or the forecasts reads."""
    features, metrics = features_table(), metrics_table()
    models, training = models_table(), training_table()
    whole = features[features["layer"] == "all"]
    histories = trainings_from_tables(whole, metrics, training, models)
    forecasts = forecast_table(histories, methods=("power_law", "weight_norm", "topology_rate", "combined"))
    return {
        "features": features,
        "metrics": metrics,
        "models": models,
        "training": training,
        **analysed(features, metrics),
        **scaling_tables(whole, metrics, models),
        "forecast_evaluation": evaluate(forecasts, resamples=50),
        "forecasts": forecasts,
        "advice": advice_table(advised_runs(histories)),
        "candidates": candidate_table(advised_runs(histories)),
        "schedules": schedules_table(),
    }


def embedding_tables() -> dict[str, pd.DataFrame]:
    """The tables of a run over published checkpoints at steps spaced by ratios."""
    features, metrics = features_table(LOG_STEPS, "embeddings"), metrics_table(LOG_STEPS)
    whole = features[features["layer"] == "all"]
    features = pd.concat([features, *(whole.assign(layer=f"hidden.{layer:02d}") for layer in range(3))])
    tables = {"features": features, "metrics": metrics, "models": models_table(), "diagrams": diagrams_table()}
    return tables | analysed(features, metrics)


def landscape_tables() -> dict[str, pd.DataFrame]:
    """The tables of the landscape stage."""
    return {
        "models": models_table(),
        "surfaces": surfaces_table(),
        "path_surfaces": path_surfaces_table(),
        "trajectories": trajectories_table(),
        "densities": densities_table(),
        "profiles": profiles_table(),
    }
