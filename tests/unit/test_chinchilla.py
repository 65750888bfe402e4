import numpy as np
import pytest

from toposcale.forecasting.laws.chinchilla import fit_chinchilla

HOFFMANN = {"E": 1.69, "A": 406.4, "B": 410.7, "alpha": 0.34, "beta": 0.28}


def law(sizes, tokens, E, A, B, alpha, beta):
    return E + A / sizes**alpha + B / tokens**beta


def spread(seed=0, points=240):
    rng = np.random.default_rng(seed)
    return np.exp(rng.uniform(np.log(4e7), np.log(1.6e10), points)), np.exp(
        rng.uniform(np.log(5e9), np.log(5e11), points)
    )


def test_the_published_law_is_found_again_from_exact_losses():
    sizes, tokens = spread()
    found = fit_chinchilla(sizes, tokens, law(sizes, tokens, **HOFFMANN))
    for name, value in HOFFMANN.items():
        # the optimum is exact; L-BFGS stops at a relative change of 1e-15 of a flat objective
        assert found.constants[name] == pytest.approx(value, rel=1e-3)
    np.testing.assert_allclose(found(sizes, tokens), law(sizes, tokens, **HOFFMANN), rtol=1e-6)


def test_a_family_of_tiny_models_too():
    truth = {"E": 1.0, "A": 10.0, "B": 30.0, "alpha": 0.3, "beta": 0.25}
    sizes, tokens = np.repeat(np.geomspace(3e3, 1e5, 5), 40), np.tile(np.geomspace(1e6, 4e7, 40), 5)
    found = fit_chinchilla(sizes, tokens, law(sizes, tokens, **truth))
    for name, value in truth.items():
        assert found.constants[name] == pytest.approx(value, rel=1e-3)


def test_one_wild_loss_in_twenty_hardly_moves_a_huber_fit():
    sizes, tokens = spread()
    losses = law(sizes, tokens, **HOFFMANN)
    losses[::20] *= 1.5
    found = fit_chinchilla(sizes, tokens, losses)
    clean = np.delete(np.arange(len(sizes)), np.arange(0, len(sizes), 20))
    np.testing.assert_allclose(
        found(sizes[clean], tokens[clean]), law(sizes[clean], tokens[clean], **HOFFMANN), rtol=2e-3
    )


def test_bootstrap_intervals_hold_the_truth_at_about_their_rate():
    sizes, tokens = spread()
    hits = []
    for seed in range(12):
        noise = np.exp(np.random.default_rng(seed).normal(scale=0.002, size=len(sizes)))
        found = fit_chinchilla(sizes, tokens, law(sizes, tokens, **HOFFMANN) * noise)
        intervals = found.bootstrap(np.random.default_rng(seed), draws=50).intervals()
        hits += [low <= HOFFMANN[name] <= high for name, (low, high) in intervals.items()]
    # 60 intervals at 95%, correlated within a fit: 4 standard errors of 12 independent ones below
    assert np.mean(hits) > 0.95 - 4 * np.sqrt(0.95 * 0.05 / 12)


def test_the_same_seed_gives_the_same_bytes():
    sizes, tokens = spread(points=60)
    losses = law(sizes, tokens, **HOFFMANN) * np.exp(np.random.default_rng(1).normal(scale=0.01, size=60))
    runs = [
        fit_chinchilla(sizes, tokens, losses).bootstrap(np.random.default_rng(3), draws=10).intervals()
        for _ in range(2)
    ]
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("sizes", "tokens", "losses", "named"),
    [
        (np.ones(6), np.arange(1, 7), np.ones(6), "n_parameters"),
        (np.arange(1, 7), np.arange(1, 6), np.ones(6), "n_tokens"),
        (np.arange(1, 7), np.arange(1, 7), np.full(6, np.nan), "losses"),
        (np.arange(6), np.arange(1, 7), np.ones(6), "n_parameters"),
    ],
)
def test_bad_input_is_named(sizes, tokens, losses, named):
    with pytest.raises(ValueError, match=named):
        fit_chinchilla(sizes, tokens, losses)
