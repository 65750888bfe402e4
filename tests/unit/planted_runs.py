"""Planted trainings: runs whose loss is a power law of the step, and their tables."""

import numpy as np
import pandas as pd

from made_runs import training_run
from toposcale.analysis import methods as every
from toposcale.analysis.methods import Family, make

FINAL = 1000
WARMUP = 40


def cosine(final=FINAL, warmup=WARMUP, peak=3e-3):
    ramp = peak * np.arange(warmup + 1) / warmup
    return np.concatenate(
        [ramp, peak * 0.5 * (1 + np.cos(np.pi * np.arange(1, final - warmup + 1) / (final - warmup)))]
    )


def run(number, *, noise=0.01, seed=0, checkpoints=21, final=FINAL):
    """A run of model `number` (0 is the smallest) whose loss is a power law of the step."""
    rng = np.random.default_rng([seed, number])
    steps = np.arange(1, final + 1)
    clean = 6.0 * steps**-0.35 + 2.0 - 0.2 * number
    at = np.linspace(0, final, checkpoints).astype(int)
    metric = np.where(at > 0, 6.0 * np.maximum(at, 1) ** -0.35 + 2.03 - 0.2 * number, 4.85)
    return training_run(
        model=f"model-{number}",
        family="planted",
        n_parameters=3000 * 3**number,
        tokens_per_step=1024,
        final_step=final,
        steps=steps,
        losses=clean + noise * rng.normal(size=final),
        gradient_norms=0.4 + 0.1 * clean + noise * rng.normal(size=final),
        learning_rates=cosine(final),
        checkpoint_steps=at,
        checkpoint_losses=metric + 0.1 * noise * rng.normal(size=checkpoints),
        features={
            "weights/neural_persistence": 0.5 - 0.05 * np.log(at + WARMUP) + 0.001 * rng.normal(size=checkpoints),
            "weights/frobenius_norm": 5 * number + 2 * np.log(at + WARMUP) + 0.01 * rng.normal(size=checkpoints),
            "weights/h0_total": 50 * number + np.log(at + WARMUP) + 0.01 * rng.normal(size=checkpoints),
            "weights/persistence_image": rng.normal(size=(checkpoints, 12)) + number,
        },
    )


def family(size=5, **options):
    return [run(number, **options) for number in range(size)]


def forecast(method, histories, fraction, number=0, seed=0):
    cut = [history.first(fraction) for history in histories]
    finished = {history.model: history for history in histories if history.is_finished}
    return every.forecast(make(method, Family(cut, finished, seed)), cut[number], cut)


def tables(histories):
    features, metrics, training, models = [], [], [], []
    for h in histories:
        for name, values in h.features.items():
            if values.ndim == 1:
                source, _, feature = name.partition("/")
                features.append(
                    pd.DataFrame(
                        {
                            "model": h.model,
                            "step": h.checkpoint_steps.astype(int),
                            "source": source,
                            "layer": "all",
                            "feature": feature,
                            "value": values,
                        }
                    )
                )
        metrics.append(
            pd.DataFrame(
                {
                    "model": h.model,
                    "step": h.checkpoint_steps.astype(int),
                    "metric": "validation_loss",
                    "value": h.checkpoint_losses,
                }
            )
        )
        training.append(
            pd.DataFrame(
                {
                    "model": h.model,
                    "step": h.steps.astype(int),
                    "loss": h.losses,
                    "gradient_norm": h.gradient_norms,
                    "learning_rate": h.schedule.rates[1:],
                }
            )
        )
        models.append(
            {
                "model": h.model,
                "family": h.family,
                "seed": h.facts.seed,
                "n_parameters": h.n_parameters,
                "tokens_per_step": h.tokens_per_step,
                "final_step": h.final_step,
            }
        )
    return pd.concat(features), pd.concat(metrics), pd.concat(training), pd.DataFrame(models)
