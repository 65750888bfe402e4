"""Placebos for a test of two series: series that drift as one of them does and have nothing else in common with it."""

import numpy as np
from numpy.typing import ArrayLike

from toposcale.statistics.coefficients import Floats, as_series, orthogonal_to
from toposcale.statistics.prewhitening import trend

_FLOOR = 1e-12  # of the spectrum, relative to its peak


def phase_randomised(series: ArrayLike, count: int, rng: np.random.Generator) -> Floats:
    """Draw `count` surrogates (count, T) of a series (T,): its trend, and deviations of the same spectrum in random phases.

    The trend is that of `prewhiten`. The amplitudes are drawn around the smoothed spectrum of the deviations: with those of
    the sample itself (Theiler et al. 1992) two spectra that coincide by chance are kept, and found again.
    """
    values = as_series(series, "series")
    n = values.shape[1]
    deviations = orthogonal_to(values, trend(n))[0]
    # Without the line from end to end: a jump where the ends meet would count as fast changes.
    deviations = deviations - np.linspace(deviations[0, 0], deviations[0, -1], n)
    power = np.abs(np.fft.rfft(deviations)[0, 1:]) ** 2
    if not power.any():
        return np.repeat(values, count, axis=0)
    # In logarithms, so that the steep spectrum of a random walk keeps its slope.
    reach = int(np.sqrt(len(power)) / 2)
    padded = np.pad(np.log(np.maximum(power, power.max() * _FLOOR)), reach, mode="reflect")
    smooth = np.exp(np.convolve(padded, np.full(2 * reach + 1, 1 / (2 * reach + 1)), mode="valid"))
    drawn = rng.standard_normal((2, count, len(power)))
    coefficients = np.zeros((count, len(power) + 1), dtype=np.complex128)
    coefficients[:, 1:] = np.sqrt(smooth / 2 * np.exp(np.euler_gamma)) * (drawn[0] + 1j * drawn[1])
    return values - deviations + np.fft.irfft(coefficients, n)
