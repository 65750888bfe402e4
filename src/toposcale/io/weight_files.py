"""Weight files of a checkpoint: which they are, and the names, shapes and types of their tensors.

A checkpoint is one safetensors file, or a folder in the layout of Hugging Face (safetensors or `.bin`, in one file or in
shards). A file that holds one part of a checkpoint, such as that of one process, is refused with the command that joins
them. Torch is imported only for `.bin` files.
"""

import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from toposcale.io.bin_files import Arrays, open_bin
from toposcale.io.errors import UserError, as_user_error, listed
from toposcale.io.files import not_a_pipe, parse_json, read_text, regular_file
from toposcale.io.tensor_files import TensorFile, has_header, open_file

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".tar")
# Files without weights that have their suffixes.
_NO_WEIGHTS = re.compile(
    r"^(?!model_optim_rng\.pt$).*(optim|(?<![^_-])opt(?![a-z])|sched|scaler|rng|random_state|training_args)", re.I
)
# Folders that hold the weights in that of a checkpoint, of Megatron-LM that of its only process.
_INNER = ("unet", "transformer", "model", "huggingface", "mp_rank_00", "mp_rank_00_000")
# Formats that are not read.
_AS_SAFETENSORS = (
    "save them as safetensors under their own names: a tensor called kernel is read as (in, out) and transposed, any other "
    "as (out, in)"
)
_OTHER_FORMATS = {
    ".npz": "arrays of NumPy; from Python: toposcale.describe(dict(numpy.load(FILE)))",
    ".npy": "one array of NumPy; from Python: toposcale.describe({'weight': numpy.load(FILE)})",
    ".gguf": "weights of llama.cpp, mostly quantised; name the checkpoint from which they were made",
    ".h5": f"weights of Keras or TensorFlow; {_AS_SAFETENSORS}",
    ".keras": f"weights of Keras; {_AS_SAFETENSORS}",
    ".onnx": "a graph of ONNX; name the checkpoint from which it was made",
    ".msgpack": f"weights of Flax; {_AS_SAFETENSORS}",
}
_FROM_TENSORFLOW = (
    "variables of TensorFlow; from Python: reader = tensorflow.train.load_checkpoint({place!r}); toposcale.describe("
    "{{name: reader.get_tensor(name) for name, shape in reader.get_variable_to_shape_map().items() if shape}}), without "
    "the variables of the optimizer"
)
# Names of files in folders of other formats, and what each is and how it is read.
_OTHER_FOLDERS = {
    "*.distcp": "a distributed checkpoint of PyTorch; convert it: python -m torch.distributed.checkpoint.format_utils "
    "dcp_to_torch {folder} FILE",
    "*.data-00000-of-*": _FROM_TENSORFLOW,
    "_METADATA": "a checkpoint of Orbax; from Python: tree = orbax.checkpoint.PyTreeCheckpointer().restore("
    "{folder!r}); toposcale.describe(flax.traverse_util.flatten_dict(tree, sep='.'))",
    ".zarray": "arrays of Zarr; load them in the program that wrote them, and give them to toposcale.describe by name",
}
# The name of a file of weights, and how its shards are named; their index is {name}.index.json.
_FORMATS = {
    "model.safetensors": re.compile(r"model-\d+-of-\d+\.safetensors"),
    "pytorch_model.bin": re.compile(r"pytorch_model-\d+-of-\d+\.bin"),
    "adapter_model.safetensors": re.compile(r"adapter_model-\d+-of-\d+\.safetensors"),
    "adapter_model.bin": re.compile(r"adapter_model-\d+-of-\d+\.bin"),
}


class _PartNames(NamedTuple):
    """Pattern of the names of parts, and how to join them.

    Its groups `part` and `of`, where there are any, are number and total; without them all names of the pattern are parts.
    """

    pattern: re.Pattern[str]
    remedy: str


_RANK = re.compile(r"(mp|tp)_rank_\d+(_(pp_rank_)?\d+)*")  # a folder of Megatron-LM
_DEEPSPEED = "join them: python {above}/zero_to_fp32.py {above} OUT --tag {name}"
# The first that fits counts.
_PART_NAMES = (
    _PartNames(
        re.compile(r"model_world_size_(?P<of>\d+)_rank_(?P<part>\d+)\.pt"),
        "join them: python -m verl.model_merger merge --backend fsdp --local_dir {folder} --target_dir OUT",
    ),
    _PartNames(re.compile(r"(bf16_)?zero_pp_rank_(?P<part>\d+)_mp_rank_\d+_(optim|model)_states\.pt"), _DEEPSPEED),
    _PartNames(re.compile(r"mp_rank_(?P<part>\d+)_model_states\.pt"), _DEEPSPEED),
    _PartNames(
        _RANK, "convert them to one checkpoint: tools/checkpoint/convert.py of Megatron-LM, --load-dir {folder}"
    ),
    _PartNames(
        re.compile(r"consolidated\.(?P<part>\d+)\.pth"),
        "join them: python -m transformers.models.llama.convert_llama_weights_to_hf --input_dir {folder} --output_dir OUT",
    ),
    _PartNames(
        re.compile(r".*-(?P<part>\d+)-of-(?P<of>\d+)\.(safetensors|bin|pt)"),
        "name the folder, with the index of its files (.index.json) in it",
    ),
    _PartNames(
        re.compile(r"(?!.*optim).*rank[-_.]?(?P<part>\d+).*\.(safetensors|bin|ckpt|pth?)"),
        "save it whole: torch.distributed.checkpoint.state_dict.get_model_state_dict with full_state_dict=True",
    ),
)


class _Parts(NamedTuple):
    """Names of the parts at hand, the number of all parts of the checkpoint, and how to join them."""

    names: list[str]
    total: int
    remedy: str


def is_rank(name: str) -> bool:
    """Return whether a name is that of the folder of one process, whose number is not a step."""
    return _RANK.fullmatch(name) is not None


def parts_with(name: str, others: Iterable[str]) -> _Parts | None:
    """Return the parts of a checkpoint by the name of one and of the other files; None for a whole checkpoint."""
    for pattern, remedy in _PART_NAMES:
        if match := pattern.fullmatch(name):
            if "part" not in pattern.groupindex:
                names = sorted(filter(pattern.fullmatch, {name, *others}))
                return _Parts(names, len(names), remedy) if len(names) > 1 else None
            start, end = match.span("part")
            numbered_name = re.compile(rf"{re.escape(name[:start])}(\d+){re.escape(name[end:])}")
            number_of = {
                other: int(number_match[1])
                for other in {name, *others}
                if (number_match := numbered_name.fullmatch(other))
            }
            # Numbered from 0 on: other numbers may be those of a sweep, such as the rank of an adapter.
            are_parts = sorted(number_of.values()) == list(range(len(number_of)))
            names, total = sorted(number_of), int(match.groupdict().get("of") or len(number_of) * are_parts)
            if remedy is _DEEPSPEED and (states := [other for other in {name, *others} if "zero_pp_rank" in other]):
                names, total = sorted({name, *states}), max(2, len({name, *states}))
            return _Parts(names, total, remedy) if total > 1 else None
    return None


def refuse_parts(path: Path) -> None:
    """Raise UserError for a part of a checkpoint, or a folder of parts, with the command that joins them.

    A part is a file, or a folder with the file of one process.
    """
    folder = path if path.is_dir() else path.parent
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    for name in names if path.is_dir() else [path.name]:
        if parts := parts_with(name, names):
            _refuse(path, folder, parts, is_part=path == folder / name)
    rank = folder.absolute()  # the folder of a process, of which there may be others
    if parts := parts_with(rank.name, (entry.name for entry in rank.parent.iterdir() if entry.is_dir())):
        _refuse(path, folder.parent, parts, is_part=True)
    if path.is_dir() and "zero_to_fp32.py" in names:
        raise UserError(
            f"{path}: a checkpoint of DeepSpeed in parts; join them: python {path}/zero_to_fp32.py {path} OUT"
        )


def _refuse(path: Path, folder: Path, parts: _Parts, *, is_part: bool) -> None:
    remedy = parts.remedy.format(folder=folder, above=folder.parent, name=folder.name)
    files = f"{listed(parts.names, 2)}{'' if len(parts.names) > 1 else f' of {parts.total}'}"
    what = f"{path}: one of {parts.total} parts of a checkpoint" if is_part else f"{path}: parts"
    raise UserError(f"{what} ({files}), which are not a checkpoint on their own; {remedy}")


def hub_snapshots(folder: Path) -> list[Path]:
    """Return the snapshots in a folder of the Hub's cache, of all repositories or of one; [] for any other folder."""
    inside = folder.absolute()
    if inside.name == "snapshots" and (inside.parent / "refs").is_dir():
        repositories = [folder.parent]
    else:
        repositories = [folder] if (folder / "refs").is_dir() else sorted(folder.glob("models--*"))
    return [path for repository in repositories for path in sorted(repository.glob("snapshots/*")) if path.is_dir()]


def refuse_other_formats(folder: Path) -> None:
    """Raise UserError, with what reads it, for a folder that is a checkpoint in another format, or holds one within."""
    for levels in ("", "*/", "*/*/"):
        for pattern, reason in _OTHER_FOLDERS.items():
            if match := next(folder.glob(levels + pattern), None):
                options = {"folder": str(match.parent.absolute()), "place": str(match.with_suffix(""))}
                raise UserError(f"{folder}: {reason.format(**options)}")


def may_hold_weights(name: str) -> bool:
    """Return whether a file may hold weights, by its name: not the state of an optimizer or a schedule."""
    return name.endswith(WEIGHT_SUFFIXES) and not _NO_WEIGHTS.search(name)


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


def chosen_or_only_file(names: Collection[str]) -> list[str]:
    """Return `choose_weight_files` of the names in a folder, or the only file there that may hold weights."""
    if chosen := choose_weight_files(names):
        return chosen
    candidates = [name for name in names if may_hold_weights(name)]
    return candidates if len(candidates) == 1 and not parts_with(candidates[0], names) else []


def folder_with_weights(folder: Path) -> Path | None:
    """Return a folder if it holds weights, or else its only subfolder of a usual name that does; None without one."""
    folders = [folder, *(folder / name for name in _INNER if (folder / name).is_dir()), *hub_snapshots(folder)]
    with_weights = [one for one in folders if chosen_or_only_file(os.listdir(one))]
    return with_weights[0] if with_weights[:1] == [folder] or len(with_weights) == 1 else None


def weight_files(checkpoint: str | Path) -> list[Path]:
    """Return the weight files of a checkpoint, in order; raise UserError if there are none, or if a shard is missing."""
    path = Path(checkpoint)
    if path.is_file():
        refuse_parts(path)
        files = [path]
    elif path.is_dir():
        files = _files_in(path)
    else:
        if path.with_name(f"{path.name}.index").is_file():
            raise UserError(f"{path}: {_FROM_TENSORFLOW.format(place=str(path))}")
        is_there = path.parent != Path() and path.parent.exists()
        of_hub = not is_there and re.fullmatch(r"(?!.*(check|step|ckpt))[\w-]+(/[\w.-]+)?", str(checkpoint))
        load = f"; if it is a repository of the Hub: hf download {path} --local-dir FOLDER, then name FOLDER"
        raise UserError(f"{regular_file(path)}: no such checkpoint{load if of_hub else ''}")
    for file in files:
        if reason := _OTHER_FORMATS.get(file.suffix):
            raise UserError(f"{file}: {reason}")
        if prefix := re.fullmatch(r"(.+)\.(index|data-\d+-of-\d+)", str(file)):
            raise UserError(f"{file}: {_FROM_TENSORFLOW.format(place=prefix[1])}")
        if not file.exists():  # such as a link in a cache whose file was removed
            raise UserError(f"{file}: no such file")
    return files


def _files_in(folder: Path) -> list[Path]:
    """Return the weight files of a folder that is a checkpoint, or of the only one in it."""
    # All files are checked: a model is loaded with the configuration and the tokenizer in its folder.
    names = [entry.name for entry in regular_files(folder)]
    if chosen := choose_weight_files(names):
        return _shards(folder / chosen[0]) if chosen[0].endswith(".json") else [folder / chosen[0]]
    candidates = sorted(filter(may_hold_weights, names))
    hint = f", but {listed(candidates, 3)}; name that file" if candidates else ""
    if without := [single for single, shard in _FORMATS.items() if any(map(shard.fullmatch, candidates))]:
        hint = f", but {listed(candidates, 3)} without their index {without[0]}.index.json; fetch it too"
    else:
        refuse_parts(folder)
        only = chosen_or_only_file(names)
        if only and not any(name.endswith(".distcp") for name in names):
            return [folder / only[0]]
        refuse_other_formats(folder)
        if (inner := folder_with_weights(folder)) and inner != folder:
            return weight_files(inner)
        if snapshots := hub_snapshots(folder):
            hint = f", but snapshots of {len(snapshots)} revisions; name one of them, such as {snapshots[-1]}"
        elif folders := sorted(entry.name for entry in folder.iterdir() if entry.is_dir()):
            hint = hint or f", but folders; name one of them: {listed(folders, 3)}"
        elif optimisers := sorted(name for name in names if name.endswith(WEIGHT_SUFFIXES)):
            hint = hint or f", but the state of a training without its weights: {listed(optimisers, 3)}"
    raise UserError(f"{folder}: no weights; the folder has none of {', '.join(_FORMATS)}{hint}")


def names_in_index(files: Sequence[Path]) -> set[str]:
    """Return the names of the tensors in the index of these shards; none for a file that is not a shard."""
    of_shards = [single for single, shard in _FORMATS.items() if files and shard.fullmatch(files[0].name)]
    indices = [index for single in of_shards if (index := files[0].with_name(f"{single}.index.json")).is_file()]
    return {name for index in indices for name in _weight_map(index)}


def _weight_map(index: Path) -> dict[str, str]:
    """Return the shard of each tensor by name; raise UserError if the file is not an index."""
    with as_user_error(index, "not an index of weight files", remedy="fetch it again"):
        return {name: str(shard) for name, shard in parse_json(read_text(index))["weight_map"].items()}


def _shards(index: Path) -> list[Path]:
    """Return the shards that an index file names; raise UserError if one is missing or in another folder."""
    names = sorted(set(_weight_map(index).values()))
    for name in names:
        if not any(shard.fullmatch(name) for shard in _FORMATS.values()):
            raise UserError(f"{index}: it names {name!r}, which is not a shard in the same folder")
        if not (index.parent / name).is_file():
            raise UserError(f"{index.parent / name}: missing, but {index.name} names it; fetch it again")
    return [index.parent / name for name in names]


def open_weights(file: Path) -> Arrays | TensorFile:
    """Open a file of weights; raise UserError if it is truncated or damaged.

    The header of a complete safetensors file accounts for every byte; a complete `.bin` archive has its end. A file of
    another name is of safetensors if it begins with such a header, as those in the cache of the Hub do.
    """
    return open_file(file) if file.suffix == ".safetensors" or has_header(file) else open_bin(file)


def regular_files(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the entries of a folder; raise UserError for a pipe, a socket or a device among them."""
    return [not_a_pipe(entry) for entry in Path(folder).iterdir()]
