"""Weight files of a checkpoint, and their matrices, one at a time.

A checkpoint is one safetensors file, or a folder in the layout of Hugging Face (safetensors or `.bin`, in one file or in
shards). Torch is imported for `.bin` files alone.
"""

import math
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toposcale.io.errors import NOT_TENSORS, UserError, listed
from toposcale.io.files import parse_json, read_text, regular_file, regular_files
from toposcale.io.tensor_files import check_content, opened

# Buffers that old files carry beside the weights: causal masks and rotary frequencies.
_BUFFERS = re.compile(r"(^|\.)(attention|attn)\.(bias|masked_bias)$|(^|\.)rotary_emb\.inv_freq$")

_EMBEDDINGS = re.compile(
    r"(^|\.)(wte|wpe|embed_tokens|embed_positions|embed_in|word_embeddings|token_embedding|position_embeddings?"
    r"|tokens_embed|positions_embed)\.weight$"
)
# Token embedding and output head, which many models tie.
_TOKENS = re.compile(r"(^|\.)(wte|embed_tokens|embed_in|word_embeddings|token_embedding|tokens_embed)\.weight$")
_SCORES = re.compile(r"(^|\.)(lm_head|embed_out|output_projection|decoder|head)\.weight$")
# transformers' Conv1D, which GPT-2 and its kin are made of, keeps a matrix as (n_in, n_out).
_CONV1D = re.compile(r"(^|\.)(c_attn|q_attn|c_proj|c_fc)\.weight$")
# Types of ml_dtypes that NumPy's own functions do not support; float32 holds each of their values.
_WIDENED = re.compile(r"bfloat16|float8_e[345]m[234]\w*")
# First bytes of a `.bin`: an archive, or before torch 1.6 a pickle.
_ARCHIVE, _PICKLE = b"PK\x03\x04", b"\x80"
# The name of a file of weights, and how its shards are named; their index is {name}.index.json.
_FORMATS = {
    "model.safetensors": re.compile(r"model-\d+-of-\d+\.safetensors"),
    "pytorch_model.bin": re.compile(r"pytorch_model-\d+-of-\d+\.bin"),
    "adapter_model.safetensors": re.compile(r"adapter_model-\d+-of-\d+\.safetensors"),
}


def choose_weight_files(names: Iterable[str]) -> list[str]:
    """Return the weight files among `names`, of one format: safetensors before `.bin`, one file before shards.

    An index comes before its shards. The list is empty if there are no weights.
    """
    names = set(names)
    for single, shard in _FORMATS.items():
        if single in names:
            return [single]
        index, shards = f"{single}.index.json", sorted(filter(shard.fullmatch, names))
        if index in names and shards:
            return [index, *shards]
    return []


def weight_files(checkpoint: str | Path) -> list[Path]:
    """Return the weight files of a checkpoint, in order, each checked to be complete.

    The header of a complete safetensors file accounts for every byte; a complete `.bin` archive has its end. Raise
    UserError if there are no weights, if a shard is missing, or if a file is truncated or damaged.
    """
    path = Path(checkpoint)
    if path.is_file():
        files = [path]
    elif path.is_dir():
        # All files are checked: a model is loaded with the configuration and the tokenizer beside its weights.
        if not (chosen := choose_weight_files(entry.name for entry in regular_files(path))):
            raise UserError(f"{path}: no weights; the folder has none of {', '.join(_FORMATS)}")
        files = _shards(path / chosen[0]) if chosen[0].endswith(".json") else [path / chosen[0]]
    else:
        raise UserError(f"{regular_file(path)}: no such checkpoint")
    for file in files:
        _check_complete(file)
    return files


def iterate_matrices(checkpoint: str | Path) -> Iterator[tuple[str, np.ndarray]]:
    """Iterate over the weight matrices of a checkpoint, with one in memory at a time.

    Rows are outputs, also if the file stores them as columns (transformers' Conv1D). Tensors that are not 2-D, integers,
    the second copy of tied weights and buffers are left out; with a RuntimeWarning, empty matrices.

    Parameters
    ----------
    checkpoint : str or Path
        A safetensors or `.bin` file, or a folder in the layout of Hugging Face.

    Yields
    ------
    tuple of (str, ndarray of shape (n_out, n_in))
        Name and values: float64, float32 and float16 as stored; bfloat16 and float8 as float32, which is exact.

    Raises
    ------
    UserError
        No weights, a missing shard, a damaged file, a `.bin` with more than plain tensors, or no matrix of weights.
    """
    files = weight_files(checkpoint)
    copies = tied_copies(files)
    transposed = stored_transposed({name: shape for file in files for name, shape in _shapes(file).items()})
    tensors = (pair for file in files for pair in _tensors(file) if pair[0] not in copies)
    yield from _weights_among(tensors, transposed, f"{checkpoint}: ")


def iterate_arrays(tensors: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Iterate over matrices in memory, of NumPy or of PyTorch on any device, as `iterate_matrices` does over files."""
    transposed = stored_transposed({name: tuple(tensor.shape) for name, tensor in tensors.items()})
    yield from _weights_among(_each_once(tensors), transposed, "")


def _weights_among(
    tensors: Iterable[tuple[str, np.ndarray]], transposed: set[str], where: str
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the matrices of weights, rows as outputs; raise UserError, prefixed with `where`, if there is none."""
    others, empty = [], True
    for name, values in tensors:
        if values.ndim != 2:
            continue
        if values.size and values.dtype.kind == "f":
            empty = False
            yield name, values.T if name in transposed else values
            continue
        kind = values.dtype if values.size else "empty"
        others.append(f"{name} ({' x '.join(map(str, values.shape))}) is {kind}")
        if not values.size:
            warnings.warn(f"{where}{others[-1]}, and left out", RuntimeWarning, stacklevel=3)
    if empty:
        why = listed(others, 3) or "no tensor is 2-D"
        raise UserError(f"{where}no matrix of weights (2-D, floating-point): {why}")


def _each_once(tensors: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield name and values of the matrices in memory, those under two names once."""
    seen = {}
    for name, matrix in tensors.items():
        if len(matrix.shape) != 2 or is_buffer(name):
            continue
        of_torch = hasattr(matrix, "detach")
        stored = matrix if of_torch else np.asarray(matrix)
        values = _torch_values(name, matrix) if of_torch else exact(stored)
        address = matrix.data_ptr() if of_torch else stored.__array_interface__["data"][0]
        view = address, tuple(matrix.shape)
        if view not in seen or not values.size:
            seen[view] = stored  # kept, so that no other array gets its address
            yield name, values


def empty_matrices(checkpoint: str | Path) -> list[str]:
    """Return a sentence on each empty matrix, which `iterate_matrices` leaves out."""
    return [
        f"{name}: an empty matrix ({shape[0]} x {shape[1]}) is left out"
        for name, shape in tensor_shapes(checkpoint).items()
        if len(shape) == 2 and 0 in shape
    ]


def tied_copies(files: Sequence[Path]) -> set[str]:
    """Return the names of output heads in safetensors files whose values equal those of the token embedding."""
    # The format has no tensor under two names, so some programs store tied weights twice.
    shapes = {file: _shapes(file) for file in files if file.suffix == ".safetensors"}
    named = {name: (file, shape) for file, of_file in shapes.items() for name, shape in of_file.items()}
    return {
        head
        for head in filter(_SCORES.search, named)
        for table in filter(_TOKENS.search, named)
        if named[head][1] == named[table][1] and _same_values(table, head, named)
    }


def _same_values(one: str, other: str, named: Mapping[str, tuple[Path, list[int]]]) -> bool:
    """Return True if two matrices hold the same bytes, compared in blocks: most that differ do so in the first."""
    (file, shape), (other_file, _) = named[one], named[other]
    with opened(file) as tensors, opened(other_file) as others:
        matrices = tensors.rows(one), others.rows(other)
        blocks = (slice(row, min(row + 1024, shape[0])) for row in range(0, shape[0], 1024))
        return all(matrices[0][block].tobytes() == matrices[1][block].tobytes() for block in blocks)


def stored_transposed(shapes: Mapping[str, Sequence[int]]) -> set[str]:
    """Return the names of the matrices that are stored as (n_in, n_out): those of transformers' Conv1D.

    These are the attention and feed-forward matrices of GPT-2 and its relatives (OpenAI GPT, ImageGPT, DistilGPT-2,
    Decision Transformer). They are recognised by the matrix of queries, keys and values, three times as wide as high; other
    architectures (GPT-BigCode) use the same names for matrices with outputs as rows.
    """
    queries = (shape for name, shape in shapes.items() if re.search(r"(^|\.)c_attn\.weight$", name))
    is_conv1d = any(len(shape) == 2 and shape[1] == 3 * shape[0] for shape in queries)
    return {name for name in shapes if is_conv1d and _CONV1D.search(name)}


def tensor_shapes(checkpoint: str | Path) -> dict[str, list[int]]:
    """Return the shapes of the tensors of a checkpoint by name, without buffers; errors as in `weight_files`."""
    files = weight_files(checkpoint)
    return {name: shape for file in files for name, shape in _shapes(file).items() if not is_buffer(name)}


def _shapes(file: Path) -> dict[str, list[int]]:
    """Return the shapes of the tensors of a file; the values are read only if the format requires it."""
    if file.suffix != ".safetensors":
        return {name: list(tensor.shape) for name, tensor in _load_bin(file).items()}
    with opened(file) as tensors:
        return {name: tensors.shape(name) for name in tensors.names}


def count_parameters(checkpoint: str | Path, *, embeddings: bool = True) -> int:
    """Return the number of parameters of a checkpoint.

    Parameters
    ----------
    checkpoint : str or Path
        As in `iterate_matrices`.
    embeddings : bool
        Count token and position embeddings too, which are recognised by name.

    Returns
    -------
    int
        Number of parameters, tied weights counted once.
    """
    copies = tied_copies(weight_files(checkpoint))
    shapes = {name: shape for name, shape in tensor_shapes(checkpoint).items() if name not in copies}
    return count_weights(shapes, embeddings=embeddings)


def count_weights(shapes: Mapping[str, Sequence[int]], *, embeddings: bool = True) -> int:
    """Return the number of weights in tensors of these names and shapes; `embeddings` as in `count_parameters`."""
    return sum(math.prod(shape) for name, shape in shapes.items() if embeddings or not _EMBEDDINGS.search(name))


class Sizes(NamedTuple):
    """Number of weights of a checkpoint, number of entries of its largest matrix, and number of matrices."""

    n_parameters: int
    largest_matrix: int
    n_matrices: int


def stored_sizes(checkpoint: str | Path) -> Sizes:
    """Return the sizes that the headers of the files state; weights stored twice count twice."""
    shapes = tensor_shapes(checkpoint)
    matrices = [math.prod(shape) for shape in shapes.values() if len(shape) == 2]
    return Sizes(count_weights(shapes), max(matrices, default=0), len(matrices))


def exact(tensor: np.ndarray) -> np.ndarray:
    """Return the tensor, bfloat16 and float8 as float32, which holds them exactly."""
    return tensor.astype(np.float32) if _WIDENED.fullmatch(tensor.dtype.name) else tensor


def is_buffer(name: str) -> bool:
    """Return True if a tensor of this name is a buffer (a mask or a table), not a weight."""
    return _BUFFERS.search(name) is not None


def _shards(index: Path) -> list[Path]:
    """Return the shards that an index file names; raise UserError if one is missing or in another folder."""
    try:
        names = sorted(set(parse_json(read_text(index))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{index}: not an index of weight files; fetch it again") from error
    for name in names:
        if not isinstance(name, str) or not any(shard.fullmatch(name) for shard in _FORMATS.values()):
            raise UserError(f"{index}: it names {name!r}, which is not a shard in the same folder")
        if not (index.parent / name).is_file():
            raise UserError(f"{index.parent / name}: missing, but {index.name} names it; fetch it again")
    return [index.parent / name for name in names]


def _check_complete(file: Path) -> None:
    if file.suffix == ".safetensors":
        with opened(file):
            return
    head = _head(file)
    if not head:
        raise UserError(f"{file}: empty; fetch it again")
    if head == _ARCHIVE:
        try:
            with zipfile.ZipFile(file) as archive:
                stored = sum(entry.file_size for entry in archive.infolist())
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            raise UserError(f"{file}: not a complete .bin file (the end is missing); fetch it again") from error
        # PyTorch stores its entries as they are, and a small archive may hold any number of compressed bytes.
        if stored > file.stat().st_size:
            raise UserError(f"{file}: its {stored} bytes are compressed, which PyTorch's are not; save it again")
    if head != _ARCHIVE and head[:1] != _PICKLE:
        raise UserError(f"{file}: not a file of weights (safetensors or .bin); name one, or its folder")


def _tensors(file: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield name and values of the tensors of a file, without buffers."""
    if file.suffix == ".safetensors":
        check_content(file)
        with opened(file) as tensors:
            for name in tensors.names:
                if not is_buffer(name) and len(tensors.shape(name)) == 2:
                    yield name, exact(tensors.tensor(name))
    else:
        for name, stored in _load_bin(file).items():
            if not is_buffer(name):
                yield name, _torch_values(name, stored, f"{file}: ")


def _torch_values(name: str, tensor: Any, where: str = "") -> np.ndarray:
    """Return a tensor of PyTorch as an array; bfloat16 and float8 as float32, which holds them exactly."""
    if reason := _not_plain(tensor):
        raise UserError(f"{where}{name} {reason}, which is not supported")
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    in_numpy = not plain.is_floating_point() or plain.itemsize > 2 or str(plain.dtype) == "torch.float16"
    try:
        return (plain if in_numpy else plain.float()).numpy()
    except (TypeError, RuntimeError) as error:
        raise UserError(f"{where}{name} is {plain.dtype}, which is not supported") from error


def _not_plain(tensor: Any) -> str:
    """Return why a tensor of PyTorch cannot be read as an array of its shape; empty if it can."""
    if tensor.is_nested or str(tensor.layout) != "torch.strided":
        return f"is sparse or nested ({tensor.layout})"
    if tensor.is_meta:
        return "has no values (it is on the meta device)"
    return f"is {tensor.dtype}" if tensor.is_quantized else ""


def _check_plain(file: Path, tensors: Any) -> None:
    """Raise UserError unless `tensors` is a dictionary of plain tensors by name, each no larger than the file."""
    import torch

    if not isinstance(tensors, dict) or not all(isinstance(value, torch.Tensor) for value in tensors.values()):
        raise UserError(f"{file}: not a dictionary of tensors")
    size = file.stat().st_size
    for name, value in tensors.items():
        if not isinstance(name, str):
            raise UserError(f"{file}: a tensor in it is named {name!r}, which is not a text")
        if reason := _not_plain(value):
            raise UserError(f"{file}: {name} {reason}, which is not supported")
        # One stored entry may be expanded to any number of them, which no memory holds.
        if value.numel() * value.element_size() > size and not is_buffer(name):
            shape = " x ".join(map(str, value.shape))
            raise UserError(f"{file}: {name} has {shape} entries, more than the {size} bytes of the file hold")


def _load_bin(file: Path) -> dict[str, Any]:
    """Return the tensors of a `.bin`, memory-mapped if possible, tied ones under their first name; execute no code."""
    try:
        import torch
    except ImportError as error:
        raise UserError(f"{file}: only safetensors are read without PyTorch: pip install torch") from error

    try:
        # Files from before torch 1.6 are no archives and cannot be mapped.
        tensors = torch.load(file, map_location="cpu", weights_only=True, mmap=_head(file) == _ARCHIVE)
    except Exception as error:  # a file that is not a .bin fails anywhere in the reader
        # PyTorch would advise `weights_only=False`, which runs what the file says.
        if isinstance(error, pickle.UnpicklingError) or "weights_only" in str(error):
            raise UserError(f"{file}: contains {NOT_TENSORS}") from error
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{file}: not a complete .bin file ({reason}); fetch it again") from error
    _check_plain(file, tensors)
    views = {name: (tensor.data_ptr(), tensor.shape, tensor.stride()) for name, tensor in tensors.items()}
    first = {view: name for name, view in reversed(views.items())}
    return {name: tensor for name, tensor in tensors.items() if first[views[name]] == name or not tensor.numel()}


def _head(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(4)
