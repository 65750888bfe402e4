"""Bootstrap correlations against a plain loop over resamples, blocks, intervals, coverage."""

import numpy as np
import pytest
import scipy.stats

from toposcale.statistics import resampling
from toposcale.statistics.resampling import (
    bootstrap_pearson,
    bootstrap_spearman,
    independent_counts,
    moving_block_counts,
    percentile_interval,
)


def expanded(row):
    return np.repeat(np.arange(len(row)), row.astype(int))


@pytest.mark.parametrize("tied", [False, True])
def test_ranks_are_taken_within_each_resample(tied):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((5, 14)), rng.standard_normal((2, 14))
    if tied:
        x, y = np.round(x), np.round(y)
    counts = independent_counts(14, 30, rng)
    spearmans, pearsons = bootstrap_spearman(x, y, counts), bootstrap_pearson(x, y, counts)
    for b, row in enumerate(counts):
        drawn = expanded(row)
        for i in range(5):
            for j in range(2):
                if len(set(x[i, drawn])) > 1 and len(set(y[j, drawn])) > 1:
                    one, other = x[i, drawn], y[j, drawn]
                    # 1e-12: rounding of sums of 14 terms.
                    assert spearmans[b, i, j] == pytest.approx(scipy.stats.spearmanr(one, other)[0], abs=1e-12)
                    assert pearsons[b, i, j] == pytest.approx(scipy.stats.pearsonr(one, other)[0], abs=1e-12)
                else:
                    assert np.isnan(spearmans[b, i, j])
                    assert np.isnan(pearsons[b, i, j])


def test_chunks_do_not_change_a_bit(monkeypatch):
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((7, 20)), rng.standard_normal((2, 20))
    counts = independent_counts(20, 50, rng)
    whole = bootstrap_spearman(x, y, counts)
    monkeypatch.setattr(resampling, "_CHUNK_BYTES", 1)
    assert bootstrap_spearman(x, y, counts).tobytes() == whole.tobytes()


@pytest.mark.parametrize("n", [5, 51, 256])
def test_single_precision_does_not_change_a_bit(n, monkeypatch):
    random = np.random.default_rng(n)
    x, y, counts = random.normal(size=(3, n)).round(1), np.arange(n), independent_counts(n, 200, random)
    counts[0] = np.eye(n)[0] * n  # the largest products of ranks
    counts[1] = (np.eye(n)[0] + np.eye(n)[-1]) * (n // 2)
    single = bootstrap_spearman(x, y, counts)
    monkeypatch.setattr(resampling, "_EXACT_SINGLE", 0)
    assert single.tobytes() == bootstrap_spearman(x, y, counts).tobytes()


def test_every_resample_has_n_points_and_blocks_are_neighbours():
    rng = np.random.default_rng(1)
    assert (independent_counts(11, 200, rng).sum(axis=1) == 11).all()
    counts = moving_block_counts(12, 200, rng, block_length=4)
    assert (counts.sum(axis=1) == 12).all()
    for row in counts:
        # Three blocks of four neighbours: subtracting block after block from the left must use up the row.
        left, blocks = row.copy(), 0
        while left.any():
            first = int(np.flatnonzero(left)[0])
            left[first : first + 4] -= 1
            blocks += 1
            assert (left >= 0).all()
        assert blocks == 3
    with pytest.raises(ValueError, match="block_length"):
        moving_block_counts(5, 10, rng, block_length=6)


def test_percentile_interval_with_undefined_resamples():
    samples = np.tile(np.arange(100.0)[:, None], (1, 3))
    samples[:5, 1] = np.nan
    samples[:50, 2] = np.nan
    low, high = percentile_interval(samples)
    assert [low[0], high[0]] == pytest.approx(np.quantile(np.arange(100), [0.025, 0.975]).tolist())
    assert low[1] == pytest.approx(np.quantile(np.arange(5, 100), 0.025))
    assert np.isnan(low[2])
    assert np.isnan(high[2])


def test_intervals_agree_with_scipys_bootstrap():
    rng = np.random.default_rng(4)
    x = rng.standard_normal(60)
    y = 0.7 * x + rng.standard_normal(60)
    low, high = percentile_interval(bootstrap_pearson(x, y, independent_counts(60, 4000, rng)))
    oracle = scipy.stats.bootstrap(
        (x, y),
        lambda a, b: scipy.stats.pearsonr(a, b)[0],
        paired=True,
        vectorized=False,
        n_resamples=4000,
        method="percentile",
        rng=np.random.default_rng(5),
    ).confidence_interval
    # Monte Carlo error of a 2.5% quantile from 4,000 draws is about 0.005 here; four of them.
    assert low[0, 0] == pytest.approx(oracle.low, abs=0.02)
    assert high[0, 0] == pytest.approx(oracle.high, abs=0.02)


def test_blocks_widen_the_interval_of_series_with_memory():
    rng = np.random.default_rng(6)
    noise = rng.standard_normal((2, 40, 60))
    for t in range(1, 60):
        noise[:, :, t] += 0.9 * noise[:, :, t - 1]
    x, y = noise
    independent = independent_counts(60, 200, rng)
    blocks = moving_block_counts(60, 200, rng)
    width = [
        np.subtract(*percentile_interval(bootstrap_spearman(x, y, counts))[::-1]) for counts in (independent, blocks)
    ]
    assert np.median(width[1] / width[0]) > 1.3


def test_an_interval_that_cannot_have_a_width_is_none():
    """Six checkpoints in one order: every resample has a correlation of -1, which says nothing of its uncertainty."""
    rng = np.random.default_rng(8)
    x = np.arange(6.0)
    drawn = bootstrap_spearman(x, -x, independent_counts(6, 500, rng))
    low, high = percentile_interval(drawn)
    assert np.isnan(low).all()
    assert np.isnan(high).all()
