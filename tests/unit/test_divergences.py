"""Divergence of embedded texts: over only the common texts, the same halves each time, honest about NaN."""

import numpy as np
import pytest

from toposcale import homology
from toposcale.features.divergences import Cloud, divergence, load_clouds, save_clouds


def cloud(seed, texts, d=4):
    points = np.random.default_rng(seed).standard_normal((100, d))
    return Cloud(points[texts], np.asarray(texts))


def test_divergence_only_texts_that_both_models_read_count():
    first, second = cloud(0, range(0, 24)), cloud(1, range(4, 30), d=6)
    measures = divergence(first, second, repeats=0, seed=(1,))
    common = cloud(0, range(4, 24)).points, cloud(1, range(4, 24), d=6).points
    assert measures == {"rtd": homology.representation_topology_divergence(*common)}


def test_divergence_spread_is_that_of_halves_and_same_each_time():
    first, second = cloud(0, range(20)), cloud(1, range(20))
    measures = divergence(first, second, repeats=3, seed=(1, "m"))
    assert measures == divergence(first, second, repeats=3, seed=(1, "m"))
    rng = homology.seeded_generator((1, "m"))
    halves = [np.sort(rng.choice(20, 10, replace=False)) for _ in range(3)]
    values = [homology.representation_topology_divergence(first.points[rows], second.points[rows]) for rows in halves]
    assert measures["rtd_spread"] == pytest.approx(np.std(values, ddof=1), rel=1e-12)
    assert measures["rtd_spread"] > 0
    assert divergence(first, second, repeats=3, seed=(2, "m"))["rtd"] == measures["rtd"]


def test_divergence_what_has_no_divergence():
    first, second = cloud(0, range(20)), cloud(1, range(20))
    second.points[3] = np.nan
    assert np.isnan(list(divergence(first, second, repeats=2, seed=(1,)).values())).all()
    assert np.isnan(divergence(first, cloud(1, range(17, 40)), repeats=0, seed=(1,))["rtd"])


def test_load_clouds_returns_what_was_saved_by_step(tmp_path):
    clouds = {100: cloud(0, range(3)), 20: cloud(1, range(5, 9)), 3: Cloud(np.empty((0, 1)), np.empty(0, np.int64))}
    save_clouds(tmp_path / "clouds.safetensors", clouds, {"rule": "embeddings"})
    reread = load_clouds(tmp_path / "clouds.safetensors")
    assert list(reread) == [3, 20, 100]
    for step, expected in clouds.items():
        assert np.array_equal(reread[step].points, expected.points.astype(np.float32))
        assert np.array_equal(reread[step].texts, expected.texts)
