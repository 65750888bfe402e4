"""Question A of the study as it was planned: one slope for all configurations, and residuals as they are.

Kept so that its numbers can be computed again. The test of the library gives each configuration its own slopes and
spread, because this one rejects too often where the slopes differ between configurations (docs/study.md, corrections).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from toposcale.statistics.coefficients import Floats, orthogonal_to
from toposcale.statistics.permutations import DRAWS, share_as_extreme, within_configurations


@dataclass(frozen=True)
class OneSlope:
    """Partial correlations (S,), two-sided p-values (S,), and degrees of freedom: runs less configurations, controls
    and one."""

    correlation: Floats
    p: Floats
    degrees_of_freedom: int


def one_slope(
    features: Floats,
    outcome: Floats,
    configurations: Sequence[str],
    controls: Floats,
    *,
    own_slopes: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
) -> OneSlope:
    """The test of features (S, R) against an outcome (R,) given controls (C, R) and the means of the configurations.

    own_slopes: the controls have slopes of each configuration, and the configurations still weigh by how far they spread.
    """
    inside = np.array(
        [[configuration == one for configuration in configurations] for one in dict.fromkeys(configurations)],
        dtype=np.float64,
    )
    if own_slopes:
        controls = (inside[:, None] * controls).reshape(-1, len(outcome))
    # Without the mean of each configuration, so that the fit is well conditioned.
    centred = controls - (controls @ inside.T / inside.sum(axis=1)) @ inside
    design = np.vstack([inside, centred])
    left, _ = orthogonal_to(features, design)
    rest, rank = orthogonal_to(outcome[None], design)
    # What the fit holds of the permuted outcome is removed again, so the residuals alone need to be permuted.
    permuted, _ = orthogonal_to(rest[0][within_configurations(configurations, draws=draws, seed=seed)[0]], design)
    correlations = _unit(permuted) @ _unit(left).T
    return OneSlope(correlations[0], share_as_extreme(correlations), len(outcome) - rank - 1)


def _unit(rows: Floats) -> Floats:
    length = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return np.where(length > 0, rows / np.where(length > 0, length, 1.0), np.nan)
