"""How many checkpoints the test of prewhitened residuals needs: its power on simulated runs.

    python -m studies.nulls.checkpoints_needed

A run is a power law with autoregressive noise, a feature is its loss with more noise, and the norm is held fixed. Found: p
of at most 0.05 / 33, as among 33 features. docs/statistics.md has the columns of 0.5 and 0.7.
"""

import numpy as np

from toposcale.statistics.prewhitening import SharedFlips, prewhiten, residual_test, with_squares

CHECKPOINTS, MODELS = (10, 15, 20, 25, 30, 40, 60, 80, 100, 150, 200), (1, 2, 5)
EFFECTS, FEATURES, REPEATS, N_TESTED = (0.3, 0.5, 0.7, 0.9), 200, 3, 33


def power(n_checkpoints: int, n_models: int, seed: int) -> np.ndarray:
    """Return the share of features that is found at each of `EFFECTS`."""
    random = np.random.default_rng([n_checkpoints, n_models, seed])
    effects, steps = np.repeat(EFFECTS, FEATURES), np.arange(n_checkpoints) + 20.0
    pool = SharedFlips(len(effects), np.concatenate([steps] * n_models))
    for _ in range(n_models):
        noise = np.zeros(n_checkpoints + 50)
        for step, fresh in enumerate(random.standard_normal(len(noise) - 1), 1):
            noise[step] = 0.5 * noise[step - 1] + fresh
        loss = (2 + 5 * (steps / 20) ** -0.5 + 0.01 * noise[50:])[None]
        norm = (10 * (steps / 20) ** 0.3 + 0.001 * np.cumsum(random.standard_normal(n_checkpoints)))[None]
        new = prewhiten(loss, with_squares(norm), half_cosine=True)
        size = np.sqrt((new.values**2).sum(axis=1) / (new.values.shape[1] - new.n_fitted))[:, None]
        scale = loss.std() * size * np.sqrt(1 / effects[:, None] ** 2 - 1)
        features = loss + scale * random.standard_normal((len(effects), n_checkpoints))
        pool.add(residual_test(features, loss, with_squares(norm)), steps, weight=1.0)
    return (pool.p_values() <= 0.05 / N_TESTED).reshape(len(EFFECTS), FEATURES).mean(axis=1)


if __name__ == "__main__":
    print("| checkpoints | " + " | ".join(f"{n} model{'s' * (n > 1)}" for n in MODELS) + " |")
    print("| --- " * (1 + len(MODELS)) + "|")
    for count in CHECKPOINTS:
        shares = [np.mean([power(count, n, seed) for seed in range(REPEATS)], axis=0) for n in MODELS]
        cells = [", ".join(f"{share:.0%}" for share in of_models) for of_models in shares]
        print(f"| {count} | {' | '.join(cells)} |", flush=True)
