"""Training of small language models, exactly resumable and with bytes that do not depend on the number of cores.

A step depends on the settings, the seed and its number only, so a model trained without interruption and one trained from
checkpoint to checkpoint have the same weights, bit for bit.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from toposcale.forecasting.runs.schedules import Schedule, ScheduleTable
from toposcale.io import tensor_files
from toposcale.io.errors import SharedError, UserError
from toposcale.training.gpt import GPT, GPTShape

# Stream 2 of the seed belongs to `callbacks`.
_BATCH_STREAM = 1

CLIPPING_EPSILON = 1e-6
BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8
_MOMENTS = ("first_moment", "second_moment")


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of a training: AdamW on all parameters, linear warm-up, cosine decay to zero, gradient clipping.

    `schedule` replaces warm-up and cosine; ValueError if it does not end at `steps`.
    """

    steps: int = 5000
    batch_size: int = 64
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    warmup_steps: int = 200
    clip: float = 1.0
    seed: int = 42
    schedule: Schedule | ScheduleTable | None = None

    def __post_init__(self) -> None:
        if self.schedule is not None and self.schedule.steps != self.steps:
            raise ValueError(f"schedule: it ends at step {self.schedule.steps}, the training at {self.steps}")

    @cached_property
    def rates(self) -> Schedule | ScheduleTable:
        """Learning-rate schedule."""
        if self.schedule is not None:
            return self.schedule
        return Schedule("cosine", self.learning_rate, self.steps, self.warmup_steps)


@dataclass
class TrainingState:
    """Model and AdamW's two moments of the gradient after `step` updates.

    `weights`, `first_moment` and `second_moment` are float32 (n_parameters,) in the order of `model.parameters()`; the
    model's parameters are views of `weights`.
    """

    name: str
    model: GPT
    step: int
    weights: Tensor
    first_moment: Tensor
    second_moment: Tensor


Row = dict[str, float | int]
Callback = Callable[[TrainingState, Row], None]


class NonFiniteLossError(UserError):
    """Loss or gradient that is not finite; nothing of the failed step was kept."""


def configure_torch(device: str, threads: int = 1) -> torch.device:
    """Make PyTorch deterministic and return the device of `auto`, `cpu` or `cuda`.

    A CPU job runs on one thread by default, because the order of sums, and so their last bits, depends on the number of
    threads; nothing else is random there. PyTorch's deterministic mode is only for CUDA: it loads the compiler, which
    takes a second. Raise SharedError if CUDA is asked for and missing.
    """
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise SharedError("device: cuda, but PyTorch sees no CUDA device here; use auto or cpu")
    torch.set_num_threads(threads)
    if not available or device == "cpu":
        return torch.device("cpu")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    # Products in full float32; an environment variable of some installations selects TF32, which keeps 10 bits.
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    # The default fills every new buffer with NaN, which is slow and not needed here.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    return torch.device("cuda")


def share_of_text(tokens: NDArray[np.uint16], fraction: float, context: int) -> NDArray[np.uint16]:
    """Return the first `fraction` of a text, rounded up to a token; raise UserError if it is shorter than one sequence."""
    first_tokens = tokens[: math.ceil(fraction * len(tokens))]
    if len(first_tokens) <= context:
        raise UserError(
            f"training.data_fraction: {fraction:g} of the training text is {len(first_tokens)} tokens, "
            f"but a sequence takes {context + 1}"
        )
    return first_tokens


def draw_batch(tokens: NDArray[np.integer], context: int, step: int, settings: TrainingSettings) -> NDArray[np.int64]:
    """Return the sequences of a step, int64 (batch_size, context + 1): inputs and, shifted by one, targets.

    Positions are uniform, with replacement, and depend on the seed and the step only: not on earlier draws, the model or
    the device. Raise ValueError if the text has no more tokens than the context.
    """
    random = np.random.default_rng((settings.seed, _BATCH_STREAM, step))
    return _sequences(tokens, context, lambda n: random.integers(0, n, size=settings.batch_size))


def _sequences(tokens: NDArray[np.integer], context: int, starts_among: Callable[[int], NDArray]) -> NDArray[np.int64]:
    """Return sequences (n, context + 1) of a text from the start positions that `starts_among` chooses."""
    n_positions = len(tokens) - context
    if n_positions < 1:
        raise ValueError(f"tokens: {len(tokens)}, but a sequence takes {context + 1}")
    return tokens[starts_among(n_positions)[:, None] + np.arange(context + 1)].astype(np.int64)


def initial_state(name: str, shape: GPTShape, settings: TrainingSettings, device: torch.device) -> TrainingState:
    """Return an untrained model; its weights depend on the shape and the seed only."""
    model = GPT(shape, seed=settings.seed).to(device)
    weights = _flatten_parameters(model)
    return TrainingState(name, model, 0, weights, torch.zeros_like(weights), torch.zeros_like(weights))


def train(
    state: TrainingState,
    settings: TrainingSettings,
    tokens: NDArray[np.uint16],
    until_step: int,
    callbacks: Iterable[Callback] = (),
) -> tuple[TrainingState, list[Row]]:
    """Train `state` in place up to `until_step` updates; return it and a row for each step.

    A row holds step, loss, gradient_norm (before clipping) and learning_rate: loss and gradient of the weights after `step`
    updates on that step's batch, and the rate of the next update. At the end one row is added for the final weights,
    with rate 0, so that every checkpoint has a row. Callbacks get each row before the update. On NonFiniteLossError the
    state is that before the failing step.
    """
    callbacks, rows = tuple(callbacks), []
    for step in range(state.step, until_step + (until_step == settings.steps)):
        row, gradient = _measure(state, settings, tokens, step)
        rows.append(row)
        for callback in callbacks:
            callback(state, row)
        if step < settings.steps:
            gradient *= min(1.0, settings.clip / (row["gradient_norm"] + CLIPPING_EPSILON))
            adamw_step(state.weights, state.first_moment, state.second_moment, gradient, settings, step)
            state.step += 1
    return state, rows


def _measure(
    state: TrainingState, settings: TrainingSettings, tokens: NDArray[np.uint16], step: int
) -> tuple[Row, Tensor]:
    """Return the row of a step and its flat gradient (n_parameters,), not yet clipped."""
    sequences = torch.from_numpy(draw_batch(tokens, state.model.shape.context, step, settings)).to(state.weights.device)
    loss, gradient = loss_and_gradient(state.model, sequences)
    norm = torch.linalg.vector_norm(gradient)
    loss_value, norm_value = torch.stack([loss, norm]).tolist()
    rate = settings.rates.rate(step)
    if not (math.isfinite(loss_value) and math.isfinite(norm_value)):
        raise NonFiniteLossError(
            f"{state.name}: loss {loss_value} with gradient norm {norm_value} at step {step}, learning rate "
            f"{rate:g}; nothing of this step was kept; try a lower learning rate or a longer warm-up"
        )
    return {"step": step, "loss": loss_value, "gradient_norm": norm_value, "learning_rate": rate}, gradient


def loss_and_gradient(model: GPT, sequences: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean loss () of sequences (n, context + 1) and its flat gradient (n_parameters,), both detached."""
    parameters = list(model.parameters())
    with torch.enable_grad():
        loss = model.loss(sequences[:, :-1], sequences[:, 1:])
        gradients = torch.autograd.grad(loss, parameters)
    return loss.detach(), torch.cat([gradient.reshape(-1) for gradient in gradients])


@torch.no_grad()
def adamw_step(
    weights: Tensor,
    first_moment: Tensor,
    second_moment: Tensor,
    gradient: Tensor,
    settings: TrainingSettings,
    step: int,
) -> None:
    """Make the AdamW update that follows `step` earlier ones (Loshchilov and Hutter 2019, arXiv 1711.05101), in place.

    weights, moments and the clipped gradient are of one shape (..., n_parameters).
    """
    rate, updates = settings.rates.rate(step), step + 1
    beta1, beta2 = BETAS
    weights *= 1 - rate * settings.weight_decay
    first_moment.lerp_(gradient, 1 - beta1)
    second_moment.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    spread = second_moment.sqrt().div_(math.sqrt(1 - beta2**updates)).add_(ADAM_EPSILON)
    weights.addcdiv_(first_moment, spread, value=-rate / (1 - beta1**updates))


def validation_sequences(tokens: NDArray[np.uint16], context: int, count: int = 128) -> NDArray[np.int64]:
    """Return at most `count` evenly spaced sequences (n, context + 1) of a text; they overlap only if it is short."""
    return _sequences(tokens, context, lambda n: np.unique(np.linspace(0, n - 1, count).astype(np.int64)))


@torch.no_grad()
def validation_loss(model: GPT, sequences: NDArray[np.int64], batch_size: int = 16) -> float:
    """Return the mean cross-entropy in nats per token over sequences (n, context + 1); batches are summed in float64."""
    # 16 sequences of a tiny model fit in a processor's cache: 0.4 to 0.8 of the time of 64 at once.
    device = next(model.parameters()).device
    total = 0.0
    for start in range(0, len(sequences), batch_size):
        batch = torch.from_numpy(sequences[start : start + batch_size]).to(device)
        total += model.loss(batch[:, :-1], batch[:, 1:]).item() * len(batch)
    return total / len(sequences)


def save_weights(path: str | Path, state: TrainingState, metadata: Mapping[str, str]) -> None:
    """Write the weights by name, with `metadata` (seed, configuration hash), model and step."""
    arrays = {name: value.detach().cpu().numpy() for name, value in state.model.named_parameters()}
    tensor_files.write(path, arrays, {**metadata, "model": state.name, "step": str(state.step)})


def save_optimiser(path: str | Path, state: TrainingState, metadata: Mapping[str, str]) -> None:
    """Write AdamW's two moments, 8 bytes per parameter; with the weights of the same step they suffice to resume."""
    arrays = {name: getattr(state, name).cpu().numpy() for name in _MOMENTS}
    tensor_files.write(path, arrays, {**metadata, "model": state.name, "step": str(state.step)})


def load_weights(path: str | Path, shape: GPTShape, device: torch.device) -> GPT:
    """Return a model with the weights of a file; raise UserError if they are of another shape of model."""
    arrays, _ = tensor_files.read(path)
    model = GPT(shape)
    expected = {name: tuple(value.shape) for name, value in model.named_parameters()}
    stored = {name: array.shape for name, array in arrays.items()}
    if expected != stored:
        different = sorted(name for name in expected | stored if expected.get(name) != stored.get(name))
        raise UserError(f"{path}: weights of another model ({different[0]} differs); delete it and train again")
    model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    return model.to(device)


def load_state(
    weights_path: str | Path, optimiser_path: str | Path, shape: GPTShape, device: torch.device
) -> TrainingState:
    """Return the saved state; raise UserError if a file is damaged or of another shape, model or step than expected."""
    model, origin = load_weights(weights_path, shape, device), tensor_files.read_metadata(weights_path)
    moments, moments_origin = tensor_files.read(optimiser_path)
    for key in ("model", "step"):
        if origin.get(key) is None or origin.get(key) != moments_origin.get(key):
            raise UserError(
                f"{optimiser_path}: {key} {moments_origin.get(key)}, but {weights_path} has "
                f"{origin.get(key)}; delete both and train again from an earlier checkpoint"
            )
    weights = _flatten_parameters(model)
    if any(name not in moments or moments[name].shape != weights.shape for name in _MOMENTS):
        raise UserError(f"{optimiser_path}: not an optimiser state of a model with {weights.numel()} parameters")
    first, second = (torch.from_numpy(moments[name]).to(device) for name in _MOMENTS)
    return TrainingState(origin["model"], model, int(origin["step"]), weights, first, second)


@torch.no_grad()
def _flatten_parameters(model: GPT) -> Tensor:
    """Return all parameters as one vector (n_parameters,), of which the model's parameters become views."""
    parameters = list(model.parameters())
    flat = torch.cat([parameter.reshape(-1) for parameter in parameters])
    parts = flat.split([parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.data = part.view_as(parameter)
    return flat
