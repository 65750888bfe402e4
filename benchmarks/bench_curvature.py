"""The two leading Hessian eigenpairs of the xl-97k model against PyHessian and against SciPy's eigsh used plainly.

The model has been trained for a while, because the spectrum of random weights is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from unittest import mock

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.timing import Line, Row, beside, compare, quiet
from toposcale.landscape import Hessian, probe_loss
from toposcale.training.gpt import GPT, GPTShape
from toposcale.training.trainer import TrainingSettings, configure_torch, draw_batch, initial_state, train

STEPS, SEQUENCES = 200, 16


def trained_probe() -> tuple[GPT, Tensor, Tensor]:
    """xl-97k after some steps on tokens that follow one another by a noisy rule, and a batch that it has not seen."""
    steps = np.random.default_rng(0).integers(1, 4, size=50_000)
    text = (steps.cumsum() % 96).astype(np.uint16)
    settings = TrainingSettings(batch_size=SEQUENCES)
    shape = GPTShape(vocab_size=128, context=128, d_model=48, n_layers=3, n_heads=4)
    state = initial_state("xl-97k", shape, settings, configure_torch("cpu"))
    train(state, settings, text, STEPS)
    batch = torch.from_numpy(draw_batch(text, shape.context, settings.steps, settings))
    return state.model, batch[:, :-1], batch[:, 1:]


def rows() -> Iterator[Line]:
    """The number of products with the Hessian, then the seconds compared with those of the others."""
    model, tokens, targets = trained_probe()
    loss, parameters = probe_loss(model, tokens, targets), dict(model.named_parameters())

    def ours() -> np.ndarray:
        return Hessian(loss, parameters).eigenpairs(2, seed=0)[0]

    yield Row("leading two eigenpairs of xl-97k, Hessian products", products_of(ours), 24, unit="")

    def against_pyhessian(pyhessian: ModuleType) -> Iterator[Line]:
        def theirs() -> list[float]:
            return power_iteration(pyhessian, model, tokens, targets)

        # Its default tolerance leaves an error of half a percent; ours are good to 1e-7.
        np.testing.assert_allclose(theirs(), ours(), rtol=0.02)
        yield compare("leading two eigenpairs of xl-97k / PyHessian", ours, theirs, limit=1.0, rounds=3)

    yield from beside("pyhessian", against_pyhessian)
    np.testing.assert_allclose(plain_eigsh(model, tokens, targets), ours(), rtol=1e-5)
    yield compare(
        "leading two eigenpairs of xl-97k / plain eigsh",
        ours,
        lambda: plain_eigsh(model, tokens, targets),
        limit=1.0,
        rounds=3,
    )


def products_of(work: Callable[[], object]) -> int:
    """How many products with the Hessian a piece of work takes."""
    product = Hessian.__call__
    with mock.patch.object(Hessian, "__call__", autospec=True, side_effect=product) as counted:
        work()
    return counted.call_count


def power_iteration(pyhessian: ModuleType, model: GPT, tokens: Tensor, targets: Tensor) -> list[float]:
    """PyHessian with its defaults: power iteration, one eigenvalue after the other."""
    torch.manual_seed(0)
    model.zero_grad()

    def criterion(logits: Tensor, wanted: Tensor) -> Tensor:
        return functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())

    with sdpa_kernel(SDPBackend.MATH), quiet():  # the fused attention kernels have no second derivative
        return pyhessian.hessian(model, criterion, (tokens, targets), cuda=False).eigenvalues(top_n=2)[0]


def plain_eigsh(model: GPT, tokens: Tensor, targets: Tensor) -> np.ndarray:
    """eigsh with its defaults on a product that differentiates the loss twice each time."""
    parameters = list(model.parameters())
    size = sum(parameter.numel() for parameter in parameters)

    def product(vector: np.ndarray) -> np.ndarray:
        with sdpa_kernel(SDPBackend.MATH):
            gradient = torch.autograd.grad(model.loss(tokens, targets), parameters, create_graph=True)
            slope = torch.cat([part.flatten() for part in gradient]) @ torch.from_numpy(vector).float()
            return torch.cat([part.flatten() for part in torch.autograd.grad(slope, parameters)]).numpy()

    operator = LinearOperator((size, size), matvec=product, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(size)
    values = eigsh(operator, k=2, which="LM", v0=start, return_eigenvectors=True)[0]
    return values[np.argsort(-np.abs(values))]
