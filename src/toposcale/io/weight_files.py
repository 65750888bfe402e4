"""Weight files of a checkpoint: which they are, and the names, shapes and types of their tensors.

A checkpoint is one safetensors file, or a folder in the layout of Hugging Face (safetensors or `.bin`, in one file or in
shards). Torch is imported for `.bin` files alone.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from toposcale.io.bin_files import check_complete, is_buffer, load_bin
from toposcale.io.errors import UserError, listed
from toposcale.io.files import parse_json, read_text, regular_file, regular_files
from toposcale.io.quantisation import refuse_quantised
from toposcale.io.tensor_files import Stored, opened

_EMBEDDINGS = re.compile(
    r"(^|\.)(wte|wpe|embed_tokens|embed_positions|embed_in|word_embeddings|token_embedding|position_embeddings?"
    r"|tokens_embed|positions_embed)\.weight$"
)
# Token embedding and output head, which many models tie.
_TOKENS = re.compile(r"(^|\.)(wte|embed_tokens|embed_in|word_embeddings|token_embedding|tokens_embed)\.weight$")
_SCORES = re.compile(r"(^|\.)(lm_head|embed_out|output_projection|decoder|head)\.weight$")
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")
# Formats that are not read.
_OTHER_FORMATS = {
    ".npz": "arrays of NumPy; from Python: toposcale.describe(dict(numpy.load(FILE)))",
    ".npy": "one array of NumPy; from Python: toposcale.describe({'weight': numpy.load(FILE)})",
    ".gguf": "weights of llama.cpp, mostly quantised; name the checkpoint from which they were made",
    ".h5": "weights of Keras or TensorFlow; save them as safetensors",
    ".onnx": "a graph of ONNX; name the checkpoint from which it was made",
    ".msgpack": "weights of Flax; save them as safetensors",
}
_FROM_DCP = "convert it: python -m torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER FILE"
# The name of a file of weights, and how its shards are named; their index is {name}.index.json.
_FORMATS = {
    "model.safetensors": re.compile(r"model-\d+-of-\d+\.safetensors"),
    "pytorch_model.bin": re.compile(r"pytorch_model-\d+-of-\d+\.bin"),
    "adapter_model.safetensors": re.compile(r"adapter_model-\d+-of-\d+\.safetensors"),
    "adapter_model.bin": re.compile(r"adapter_model-\d+-of-\d+\.bin"),
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
            others = sorted(entry.name for entry in path.iterdir() if entry.suffix in WEIGHT_SUFFIXES)
            seen = f", but {listed(others, 3)}; name that file" if others else ""
            if without := [single for single, shard in _FORMATS.items() if any(map(shard.fullmatch, others))]:
                seen = f", but {listed(others, 3)} without their index {without[0]}.index.json; fetch it too"
            elif any(entry.suffix == ".distcp" for entry in path.iterdir()):
                seen = f", but a distributed checkpoint of PyTorch; {_FROM_DCP}"
            raise UserError(f"{path}: no weights; the folder has none of {', '.join(_FORMATS)}{seen}")
        files = _shards(path / chosen[0]) if chosen[0].endswith(".json") else [path / chosen[0]]
    else:
        is_there = path.parent != Path() and path.parent.exists()
        of_hub = not is_there and re.fullmatch(r"(?!.*(check|step|ckpt))[\w-]+(/[\w.-]+)?", str(checkpoint))
        load = f"; if it is a repository of the Hub: hf download {path} --local-dir FOLDER, then name FOLDER"
        raise UserError(f"{regular_file(path)}: no such checkpoint{load if of_hub else ''}")
    for file in files:
        if reason := _OTHER_FORMATS.get(file.suffix):
            raise UserError(f"{file}: {reason}")
        if file.suffix == ".safetensors":
            _stored(file)
        else:
            check_complete(file)
    return files


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


def stored_tensors(checkpoint: str | Path) -> dict[str, Stored]:
    """Return shape and type of the tensors of a checkpoint by name, without buffers; errors as in `iterate_matrices`."""
    tensors = (item for file in weight_files(checkpoint) for item in _stored(file).items())
    stored = {name: tensor for name, tensor in tensors if not is_buffer(name)}
    folder = Path(checkpoint) if Path(checkpoint).is_dir() else Path(checkpoint).parent
    refuse_quantised(stored, folder, f"{checkpoint}: ")
    return stored


def tensor_shapes(checkpoint: str | Path) -> dict[str, list[int]]:
    """Return the shapes of the tensors of a checkpoint by name, as `stored_tensors` does."""
    return {name: list(tensor.shape) for name, tensor in stored_tensors(checkpoint).items()}


def _stored(file: Path) -> dict[str, Stored]:
    """Return shape and type of the tensors of a file, which is opened once as long as it stays as it is."""
    try:
        status = file.stat()
    except FileNotFoundError as error:  # such as a link in a cache whose file was removed
        raise UserError(f"{file}: no such file") from error
    return _stored_as_of(file, status.st_size, status.st_mtime_ns)


@cache
def _stored_as_of(file: Path, size: int, changed: int) -> dict[str, Stored]:
    """Return shape and type of the tensors of a file; the values are read only if the format requires it."""
    if file.suffix != ".safetensors":
        return {name: Stored(tuple(tensor.shape), str(tensor.dtype)) for name, tensor in load_bin(file).items()}
    with opened(file) as tensors:
        return {name: Stored(tuple(tensors.shape(name)), tensors.dtype(name)) for name in tensors.names}


def tied_copies(files: Sequence[Path]) -> set[str]:
    """Return the names of output heads in safetensors files whose values equal those of the token embedding."""
    # The format has no tensor under two names, so some programs store tied weights twice.
    named = {
        name: (file, tensor.shape)
        for file in files
        if file.suffix == ".safetensors"
        for name, tensor in _stored(file).items()
    }
    return {
        head
        for head in filter(_SCORES.search, named)
        for table in filter(_TOKENS.search, named)
        if named[head][1] == named[table][1] and _same_values(table, head, named)
    }


def _same_values(one: str, other: str, named: Mapping[str, tuple[Path, tuple[int, ...]]]) -> bool:
    """Return True if two matrices hold the same bytes, compared in blocks: most that differ do so in the first."""
    (file, shape), (other_file, _) = named[one], named[other]
    with opened(file) as tensors, opened(other_file) as others:
        matrices = tensors.rows(one), others.rows(other)
        blocks = (slice(row, min(row + 1024, shape[0])) for row in range(0, shape[0], 1024))
        return all(matrices[0][block].tobytes() == matrices[1][block].tobytes() for block in blocks)


def count_parameters(checkpoint: str | Path, *, embeddings: bool = True) -> int:
    """Return the number of parameters of a checkpoint, tied weights counted once; `embeddings` as in `count_weights`."""
    copies = tied_copies(weight_files(checkpoint))
    shapes = {name: shape for name, shape in tensor_shapes(checkpoint).items() if name not in copies}
    return count_weights(shapes, embeddings=embeddings)


def count_weights(shapes: Mapping[str, Sequence[int]], *, embeddings: bool = True) -> int:
    """Return the number of weights in tensors of these names and shapes, token and position embeddings only if asked."""
    return sum(math.prod(shape) for name, shape in shapes.items() if embeddings or not _EMBEDDINGS.search(name))
