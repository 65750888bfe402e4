"""Files that hold one part of a checkpoint, such as that of one process, and the command that joins them."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from toposcale.io.errors import UserError, listed


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
    """Return whether a name is that of the folder of one process, whose number is no step."""
    return _RANK.fullmatch(name) is not None


def parts_with(name: str, beside: Iterable[str]) -> _Parts | None:
    """Return the parts of a checkpoint by the name of one and of the files beside it; None for a whole checkpoint."""
    for pattern, remedy in _PART_NAMES:
        if match := pattern.fullmatch(name):
            if "part" not in pattern.groupindex:
                names = sorted(filter(pattern.fullmatch, {name, *beside}))
                return _Parts(names, len(names), remedy) if len(names) > 1 else None
            start, end = match.span("part")
            numbered_name = re.compile(rf"{re.escape(name[:start])}(\d+){re.escape(name[end:])}")
            number_of = {
                other: int(number_match[1])
                for other in {name, *beside}
                if (number_match := numbered_name.fullmatch(other))
            }
            # Numbered from 0 on: other numbers may be those of a sweep, such as the rank of an adapter.
            are_parts = sorted(number_of.values()) == list(range(len(number_of)))
            names, total = sorted(number_of), int(match.groupdict().get("of") or len(number_of) * are_parts)
            if remedy is _DEEPSPEED and (states := [other for other in {name, *beside} if "zero_pp_rank" in other]):
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
    raise UserError(f"{what} ({files}), which are no checkpoint on their own; {remedy}")
