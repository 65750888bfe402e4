"""Spectra of the weights of a GPT-2 small against weightwatcher, and of one small matrix against two SVDs.

weightwatcher takes singular values of every matrix but the token embedding, which is too long for it, and fits a
power law to their squares. Ours computes the stable rank and the exponent of the same matrices.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.timing import Line, beside, compare, quiet
from toposcale.features.registry import weight_spectra
from toposcale.features.spectra import powerlaw_alpha, stable_rank, weight_eigenvalues


def rows() -> Iterator[Line]:
    """The large model first, with the limit that the project aims at."""
    yield from beside("weightwatcher", against_weightwatcher)
    small = np.random.default_rng(0).standard_normal((192, 48))

    def two_svds() -> None:
        np.linalg.svd(small, compute_uv=False)
        np.linalg.svd(small, compute_uv=False)

    yield compare(
        "stable_rank + powerlaw_alpha, 192 x 48 / two SVDs",
        lambda: (stable_rank(weight_eigenvalues(small).values), powerlaw_alpha(weight_eigenvalues(small).values)),
        two_svds,
        limit=2.0,
        rounds=50,
    )


def against_weightwatcher(weightwatcher: ModuleType) -> Iterator[Line]:
    """All its matrices at once, as its users call it, and ours one after the other."""
    model = random_gpt2()
    watcher = weightwatcher.WeightWatcher(model=model)
    with quiet():
        details = watcher.analyze()
    matrices = [model.get_submodule(name).weight.detach().numpy() for name in details["longname"]]
    ours = [weight_spectra(matrix) for matrix in matrices]
    # Its singular values are float32. Its exponent may differ: it looks at one side of the steps only.
    np.testing.assert_allclose([found["stable_rank"] for found in ours], details["stable_rank"], rtol=1e-4)
    yield compare(
        f"spectra of GPT-2 small, {len(matrices)} matrices / weightwatcher",
        lambda: [weight_spectra(matrix) for matrix in matrices],
        watcher.analyze,
        limit=0.3,
        rounds=3,
    )


def random_gpt2() -> Any:
    """A GPT-2 small (124 million weights) with the random weights that its training starts from."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config())
