"""A checkpoint: where it lies, and the weight matrices in it, opened once and read one matrix at a time.

The place is a path of the user's, or a note that a run makes of a published checkpoint (`.json`). Such a note holds `repo`,
`step`, `revision` and the `folder` of what was fetched, or why there is none.
"""

import hashlib
import math
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toposcale.io.bin_files import Arrays, weights_beside
from toposcale.io.errors import UserError, counted, listed
from toposcale.io.files import read_json
from toposcale.io.not_weights import COPY, MAX_AXES, PART, bytes_of, is_buffer, refuse_quantised, with_reasons
from toposcale.io.reparametrised import ComputedWeights, second_factor
from toposcale.io.stub_unpickler import load_without_torch
from toposcale.io.tensor_files import Stored, TensorFile
from toposcale.io.weight_files import choose_weight_files, names_in_index, open_weights, weight_files

_HASHED_ENTRIES = 4096  # of a part of a tensor that is hashed
_HASHED_PARTS = 64  # of a large tensor
# Names of token and position embeddings.
_EMBEDDINGS = re.compile(
    r"(^|\.)(wte|wpe|embed_tokens|embed_positions|embed_in|word_embeddings|token_embedding|position_embeddings?"
    r"|tokens_embed|positions_embed)\.weight$"
)
# transformers' Conv1D, used by GPT-2 and its relatives, stores a matrix as (n_in, n_out).
_CONV1D = re.compile(r"(^|\.)(c_attn|q_attn|c_proj|c_fc)\.weight$")
# Flax and Keras store (in, out), convolutions (height, width, in, out), and attention (in, heads, size) and back.
_KERNEL = re.compile(r"(^|[./_])kernel(:0|/\.ATTRIBUTES/VARIABLE_VALUE)?$")
_TO_HEADS = re.compile(r"(query|key|value|qkv)[./]kernel")
_FROM_HEADS = re.compile(r"(^|[./])out[./]kernel")
# Stacked matrices of experts.
_EXPERTS = re.compile(r"expert|moe|(^|\.)(input|output)_linear\b")
_VECTORS = "1-D"
_NOT_CHOSEN = "not chosen"
_SCHEDULES = ("scheduler.pt", "scheduler.bin")  # of transformers' Trainer and of Accelerate


class ParameterCount(NamedTuple):
    """Number of parameters of a model, and that without token and position embeddings."""

    total: int
    without_embeddings: int


class Sizes(NamedTuple):
    """Number of weights of a checkpoint, number of entries of its largest matrix, and number of matrices."""

    n_parameters: int
    largest_matrix: int
    n_matrices: int


class Checkpoint:
    """Weights of a model, in files or in memory. Files are opened once, when something is asked of them.

    Every property raises UserError for no weights, a missing shard, a damaged file, a `.bin` with more than plain tensors,
    or quantised weights.

    Parameters
    ----------
    source : path, or mapping of str to array
        A file of weights, a folder in the layout of Hugging Face, or arrays by name.
    """

    def __init__(self, source: str | os.PathLike[str] | Mapping[str, Any]) -> None:
        self._arrays = source if isinstance(source, Mapping) else None
        self.path = None if isinstance(source, Mapping) else Path(source)
        self.where = f"{self.path}: " if self.path else ""  # begins messages

    @cached_property
    def files(self) -> list[Path]:
        """The files of weights, none of arrays in memory."""
        return weight_files(self.path) if self.path else []

    @property
    def is_only_file(self) -> bool:
        """True for the only file of weights in a folder, under another name than those of Hugging Face."""
        return self.files not in ([], [self.path]) and not choose_weight_files(os.listdir(self.files[0].parent))

    @cached_property
    def parts(self) -> Sequence[TensorFile | Arrays]:
        """The opened files, or the arrays in memory."""
        return list(map(open_weights, self.files)) if self._arrays is None else [Arrays(self._arrays)]

    @cached_property
    def _computed(self) -> ComputedWeights:
        """The weights that layers compute from several tensors."""
        return ComputedWeights({name: part for part in self.parts for name in part.stored}, self.where)

    @cached_property
    def _part_of(self) -> dict[str, TensorFile | Arrays | ComputedWeights]:
        return {name: part for part in (*self.parts, self._computed) for name in part.stored}

    @cached_property
    def tensors(self) -> dict[str, Stored]:
        """Shape and type of all tensors by name, and why some are not weights of their own."""
        stored = {name: part.stored[name] for name, part in self._part_of.items()}
        folder = self.files[0].parent if self.files else None
        refuse_quantised({name: tensor for name, tensor in stored.items() if not is_buffer(name)}, folder, self.where)
        readable = [name for name, part in self._part_of.items() if part.is_readable(name)]
        return with_reasons(stored, readable, self._computed.parts, self._rows)

    @property
    def weights(self) -> dict[str, Stored]:
        """Shape and type of the weights by name, each once."""
        return {name: tensor for name, tensor in self.tensors.items() if not tensor.not_weight}

    @property
    def shapes(self) -> dict[str, list[int]]:
        """Shapes of the weights by name."""
        return {name: list(tensor.shape) for name, tensor in self.weights.items()}

    @property
    def count(self) -> ParameterCount:
        """Number of parameters, tied weights counted once."""
        return ParameterCount(count_weights(self.shapes), count_weights(self.shapes, embeddings=False))

    @property
    def sizes(self) -> Sizes:
        """Sizes of the weights; of most, the headers of the files are read."""
        matrices = [math.prod(shape) for shape in matrix_shapes(self.weights).values()]
        return Sizes(self.count.total, max(matrices, default=0), len(matrices))

    def matrix_shapes(self, frozen: Collection[str] = ()) -> dict[str, tuple[int, int]]:
        """Return the shapes (n_out, n_in) of the weight matrices by name, without those of the names `frozen`."""
        return matrix_shapes(self.tensors, frozen)

    def matrices(self, frozen: Collection[str] = ()) -> Iterator[tuple[str, np.ndarray]]:
        """Yield name and values (n_out, n_in) of the weight matrices, with one in memory at a time.

        Rows are outputs, also if the file stores them as columns (transformers' Conv1D). Tensors of more than two axes are
        matrices as `matrix_layouts` says. Vectors, the second copy of tied weights, tensors that are not weights
        (`io.not_weights`), empty matrices and the tensors of the names `frozen` are left out. float64, float32 and float16
        are as stored; bfloat16 and float8 are float32, which is exact. Raise UserError if there is no matrix.
        """
        layouts = measured_layouts(self.tensors, frozen)
        for part in (*self.parts, self._computed):
            if isinstance(part, TensorFile):
                part.check()
            for name in part.stored:
                if name in layouts:
                    yield from split(name, part.values(name), layouts[name])
        if not layouts:
            reasons = unmeasured(self.tensors, frozen)
            shapes = {name: tensor.shape for name, tensor in self.tensors.items() if len(tensor.shape) > 1}
            unusable = [f"{name} ({' x '.join(map(str, shape))}): {reasons[name]}" for name, shape in shapes.items()]
            why = listed(unusable, 3) or "no tensor is 2-D"
            raise UserError(f"{self.where}no weight matrix (2-D, floating-point): {why}")

    def digests(self, *, whole: bool = False) -> dict[str, str]:
        """Return a short hash of each weight by name, of its values; of a large one, of 64 parts of its rows.

        A tensor with the same hash at every checkpoint of a training is a buffer or frozen. whole: of all rows.
        """
        named = self.weights.items()
        return {
            name: _digest(name, shape, self._rows(name), whole)
            for name, (shape, *_) in named
            if shape and 0 not in shape
        }

    def frozen(self, digests: Collection[str], *, whole: bool = False) -> set[str]:
        """Return the names of the weights whose `digests` are among these; none if all are.

        A factor of an adapter counts as long as the other one changes, and so their product does.
        """
        if not digests:
            return set()
        digest_of = self.digests(whole=whole)
        same = {name for name, digest in digest_of.items() if digest in digests}
        pairs = [pair for first in digest_of if (pair := {first, second_factor(first)}) <= digest_of.keys()]
        names = same.difference(*(pair for pair in pairs if not pair <= same))
        return names if measured_layouts(self.tensors, names) else set()

    def left_out(self, frozen: Collection[str] = (), wants: Callable[[str], bool] | None = None) -> list[str]:
        """Return a sentence on each kind of what is not measured, in the file or of its tensors."""
        in_memory = [part for part in self.parts if isinstance(part, Arrays)]
        names = sorted({name for part in in_memory for name in part.foreign})
        further = [key for part in in_memory for key in weights_beside(part.content)]
        missing = sorted(names_in_index(self.files) - self.tensors.keys())
        return [
            *([f"missing, though the index of the shards names them: {listed(missing, 3)}"] if missing else []),
            *([f"not read: further weights in the file, under {listed(further, 3)}"] if further else []),
            *([f"not loaded, and not needed: objects of {listed(names, 3)}"] if names else []),
            *unmeasured_sentences(self.tensors, frozen, wants),
        ]

    @property
    def content(self) -> Any:
        """All that a training loop saved in the file, or the state of the schedule in a folder; None without either."""
        if self.path is None:
            return None
        if self.files == [self.path]:
            return self.parts[0].content if isinstance(self.parts[0], Arrays) else None
        return {name: state for name, state in self._schedules.items() if not isinstance(state, UserError)}

    @property
    def unread_schedules(self) -> list[str]:
        """Reasons why states of the schedule in a folder cannot be read."""
        return [str(state) for state in self._schedules.values() if isinstance(state, UserError)]

    @cached_property
    def _schedules(self) -> dict[str, Any]:
        """States of the schedule in a folder by the names of their files; of one that cannot be read the error."""
        states: dict[str, Any] = {}
        for name in _SCHEDULES:
            if self.path is None or not (self.path / name).exists():  # nothing is within a file
                continue
            try:
                states[name] = load_without_torch(self.path / name)
            except UserError as error:
                states[name] = error
        return states

    def _rows(self, name: str) -> Any:
        return self._part_of[name].rows(name)


class LeftOutError(UserError):
    """Checkpoint that is left out on purpose, because it repeats the weights of `original`."""

    def __init__(self, message: str, original: str) -> None:
        super().__init__(message)
        self.original = original


def locate(path: str | Path) -> Path:
    """Return the file or folder of the weights: `path` itself, or the folder that a note names.

    Raise UserError if the checkpoint was unusable when it was fetched, and LeftOutError for a duplicate.
    """
    facts = noted(path)
    if "unusable" in facts:
        raise UserError(facts["unusable"])
    if "folder" not in facts and facts:
        original = facts["repeats"]
        raise LeftOutError(f"{facts['repo']}: step {facts['step']} serves the weights of {original}", original)
    return Path(facts.get("folder", path))


def noted(path: str | Path) -> dict[str, Any]:
    """Return what was noted of a published checkpoint; nothing for a path of the user's."""
    return read_json(path) if Path(path).suffix == ".json" else {}


def readable(message: str, facts: Mapping[str, Any]) -> str:
    """Return a message with the repository and revision of a download in place of its folder."""
    if "folder" not in facts:
        return message
    name = f"{facts['repo']}, revision {facts['revision']}"
    return message.replace(f"{facts['folder']}/", f"{name}: ").replace(facts["folder"], name)


def count_weights(shapes: Mapping[str, Sequence[int]], *, embeddings: bool = True) -> int:
    """Return the number of weights in tensors of these names and shapes, token and position embeddings only if asked."""
    return sum(math.prod(shape) for name, shape in shapes.items() if embeddings or not _EMBEDDINGS.search(name))


def _digest(name: str, shape: Sequence[int], rows: Any, whole: bool) -> str:
    code = hashlib.blake2b(name.encode(), digest_size=6)
    n_rows = min(shape[0], max(1, _HASHED_ENTRIES // max(1, math.prod(shape[1:]))))  # of a part
    starts: Sequence[int] = range(0, shape[0], n_rows)
    if len(starts) > _HASHED_PARTS and not whole:
        starts = np.linspace(0, shape[0] - n_rows, _HASHED_PARTS, dtype=int).tolist()
    for start in starts:
        code.update(bytes_of(rows[start : min(start + n_rows, shape[0])]))
    return code.hexdigest()


class Layout(NamedTuple):
    """Shape (..., rows, columns) of the matrices in a tensor, and whether their rows are inputs."""

    shape: tuple[int, ...]
    transposed: bool


def matrix_layouts(shapes: Mapping[str, Sequence[int]]) -> dict[str, Layout]:
    """Return the layout of the matrices in tensors of these names and shapes, without tensors that hold none.

    Beyond two axes, those of length 1 are dropped. Stacked matrices (n, n_out, n_in), such as those of experts, are n
    matrices; they are recognised by name, or by three axes of which the first is shorter than the last. All other tensors
    are kernels of convolutions and become (n_out, the rest). What is called a kernel has its outputs last.
    """
    transposed = stored_transposed(shapes)
    layouts = {}
    for name, shape in shapes.items():
        axes = tuple(shape) if len(shape) <= 2 else tuple(length for length in shape if length != 1)
        if len(axes) > 2:
            low = name.lower()
            stacked = _EXPERTS.search(low) or (len(axes) == 3 and axes[0] < axes[2])
            if _KERNEL.search(low):
                axes = _kernel_axes(low, axes)
            elif not stacked or "conv" in low:
                axes = (axes[0], math.prod(axes[1:]))
        of_experts = len(shape) > 1 and _EXPERTS.search(name.lower()) and name.endswith("bias")
        if len(axes) > 1 and not of_experts and len(shape) <= MAX_AXES:
            layouts[name] = Layout(axes, name in transposed)
    return layouts


def _kernel_axes(name: str, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes (..., n_in, n_out) of a kernel of three axes or more."""
    if len(axes) == 3 and _TO_HEADS.search(name):
        return axes[0], axes[1] * axes[2]
    if len(axes) == 3 and "conv" not in name and not _FROM_HEADS.search(name):
        return axes  # layers that are stacked
    return math.prod(axes[:-1]), axes[-1]


def split(name: str, values: Any, layout: Layout) -> Iterator[tuple[str, Any]]:
    """Yield name and values (n_out, n_in) of the matrices of a NumPy or PyTorch tensor; stacked ones are numbered."""
    values = values.reshape(layout.shape)
    for index in np.ndindex(layout.shape[:-2]):
        matrix = values[index]
        yield ".".join([name, *map(str, index)]), matrix.T if layout.transposed else matrix


def measured_layouts(tensors: Mapping[str, Stored], frozen: Collection[str] = ()) -> dict[str, Layout]:
    """Return the layouts of the weight matrices in these tensors, by name, without those that never change."""
    reasons = unmeasured(tensors, frozen)
    layouts = matrix_layouts({name: tensor.shape for name, tensor in tensors.items()})
    return {name: layout for name, layout in layouts.items() if name not in reasons}


def matrix_shapes(tensors: Mapping[str, Stored], frozen: Collection[str] = ()) -> dict[str, tuple[int, int]]:
    """Return the shapes (n_out, n_in) of the matrices of `measured_layouts`, of stacked ones each."""
    return {
        part: (matrix.shape[0], matrix.shape[1])
        for name, layout in measured_layouts(tensors, frozen).items()
        for part, matrix in split(name, np.broadcast_to(0.0, layout.shape), layout)
    }


def unmeasured(tensors: Mapping[str, Stored], frozen: Collection[str] = ()) -> dict[str, str]:
    """Return why tensors are not measured, by name: no weights, frozen, or no matrices by the number of their axes."""
    layouts = matrix_layouts({name: tensor.shape for name, tensor in tensors.items()})
    reasons = {}
    for name, (shape, _, not_weight) in tensors.items():
        if not_weight or name in frozen:
            reasons[name] = not_weight or "the same at every checkpoint"
        elif 0 in shape:
            reasons[name] = "empty"
        elif name not in layouts:
            reasons[name] = f"{len(shape)}-D" if len(shape) > MAX_AXES else _VECTORS
    return reasons


def unmeasured_sentences(
    tensors: Mapping[str, Stored], frozen: Collection[str] = (), wants: Callable[[str], bool] | None = None
) -> list[str]:
    """Return a sentence on each kind of what is not measured, with its share of all entries; copies and parts have none.

    frozen: names of the tensors that never change. wants: whether the matrix of a name is chosen; None tells of no vectors.
    """
    sizes = {
        name: math.prod(tensor.shape) * (tensor.not_weight not in (COPY, PART)) for name, tensor in tensors.items()
    }
    total, reasons = max(1, sum(sizes.values())), unmeasured(tensors, frozen)
    if wants:
        shapes = matrix_shapes(tensors, frozen)
        sizes |= {name: math.prod(shape) for name, shape in shapes.items()}
        reasons |= {name: _NOT_CHOSEN for name in shapes if not wants(name)}
    by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        if wants or reason != _VECTORS:
            by_reason.setdefault(reason, []).append(name)
    kernels = [name for name, tensor in tensors.items() if _KERNEL.search(name) and len(tensor.shape) > 1]
    sentences = [f"read as (in, out), as Flax and Keras store a kernel: {listed(kernels, 3)}"] if kernels else []
    for reason, names in by_reason.items():
        share = 100 * sum(sizes[name] for name in names) / total
        of_names = "" if reason == _NOT_CHOSEN else f": {listed(names, 3)}"
        sentences.append(f"not measured: {counted(len(names), 'tensor')}, {share:.3g}%, {reason}{of_names}")
    return sentences


def stored_transposed(shapes: Mapping[str, Sequence[int]]) -> set[str]:
    """Return the names of the tensors whose matrices are stored as (n_in, n_out): kernels, and transformers' Conv1D.

    The latter are the attention and feed-forward matrices of GPT-2 and its relatives (OpenAI GPT, ImageGPT, DistilGPT-2,
    Decision Transformer). They are recognised by the matrix of queries, keys and values, three times as wide as high; other
    architectures (GPT-BigCode) use the same names for matrices with outputs as rows. Stacked experts (n, n_in, 2 n_hidden),
    as in Llama 4, are recognised by their projection back, (n, n_hidden, n_in).
    """
    queries = (shape for name, shape in shapes.items() if re.search(r"(^|\.)c_attn\.weight$", name))
    is_conv1d = any(len(shape) == 2 and shape[1] == 3 * shape[0] for shape in queries)
    transposed = {name for name in shapes if (is_conv1d and _CONV1D.search(name)) or _KERNEL.search(name)}
    for name, shape in shapes.items():
        back = name.replace("gate_up_proj", "down_proj")
        if back != name and back in shapes and len(shape) == len(shapes[back]) == 3:
            transposed |= {name, back} if (shape[2], shape[1]) == (2 * shapes[back][1], shapes[back][2]) else set()
    return transposed
