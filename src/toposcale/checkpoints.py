"""Checkpoints of any kind: which steps there are, their weight files, and their matrices, one at a time.

A checkpoint is a path: one safetensors file (written by our own training), or a folder in the layout of Hugging Face
(safetensors or `.bin`, whole or in shards). A source says which steps there are and turns a step into such a path;
`toposcale.hub` has the one for repositories. Nothing here imports torch unless a `.bin` file has to be read.
"""

from __future__ import annotations

import json
import pickle
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from toposcale.errors import UserError
from toposcale.tensor_files import check_content

if TYPE_CHECKING:
    from toposcale.hub_client import Limits

# Buffers that old files carry beside the weights: causal masks and rotary frequencies.
_BUFFERS = re.compile(r"(^|\.)(attention|attn)\.(bias|masked_bias)$|(^|\.)rotary_emb\.inv_freq$")

# Types that NumPy's own functions do not know; each of their values is a float32.
_WIDENED = tuple(
    np.dtype(kind) for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
)


@dataclass(frozen=True)
class _Format:
    """The names that weights go by in one file format: alone, or an index and its shards."""

    single: str
    index: str
    shard: re.Pattern[str]


_FORMATS = (
    _Format(
        "model.safetensors", "model.safetensors.index.json", re.compile(r"model-\d+-of-\d+\.safetensors")
    ),
    _Format(
        "pytorch_model.bin", "pytorch_model.bin.index.json", re.compile(r"pytorch_model-\d+-of-\d+\.bin")
    ),
)


class Source(Protocol):
    """Where the checkpoints of one model come from."""

    def steps(self) -> list[int]:
        """Steps with a checkpoint, ascending."""

    def fetch(self, step: int) -> Path:
        """The checkpoint of a step as a path on this machine, whole."""

    def release(self, step: int) -> None:
        """Free the disk that fetching the step took; does nothing where the files are the user's own."""


def open_source(kind: str, settings: Mapping[str, Any], *, limits: Limits | None = None) -> Source:
    """The source behind an entry of `models:`.

    `gpt` and `folder` need `path`, and take `pattern`; `hub` needs `repo` and `revisions`, and takes `cache` and `keep`.
    All take `steps`: the checkpoints that are wanted, every one that is found where there are none.
    ValueError: another kind.
    """
    steps = tuple(settings.get("steps") or ())
    if kind in ("gpt", "folder"):
        default = "step-{step}.safetensors" if kind == "gpt" else "step{step}"
        return FolderSource(Path(settings["path"]), settings.get("pattern") or default, steps)
    if kind == "hub":
        from toposcale import hub, hub_client

        return hub.HubSource(
            settings["repo"],
            settings["revisions"],
            steps,
            cache=settings.get("cache"),
            keep=settings.get("keep", True),
            limits=limits or hub_client.Limits(),
        )
    raise ValueError(f"kind must be gpt, hub or folder, got {kind!r}")


@dataclass(frozen=True)
class FolderSource:
    """Checkpoints under one folder, each a file or a folder whose name is `pattern` with `{step}` a number."""

    path: Path
    pattern: str
    wanted: tuple[int, ...] = ()

    def steps(self) -> list[int]:
        """Steps with a checkpoint, ascending."""
        found = self._found()
        return wanted_steps(self.wanted, found, f"{self.path}: {self.pattern}")

    def fetch(self, step: int) -> Path:
        """The file or folder of a step, its weight files checked to be whole."""
        path = self.path / find_step(step, self._found(), f"{self.path}: {self.pattern}")
        weight_files(path)
        return path

    def release(self, step: int) -> None:
        """Nothing: these files are the user's own."""

    def _found(self) -> dict[int, str]:
        try:
            names = [entry.name for entry in self.path.iterdir()]
        except OSError as error:
            raise UserError(f"{self.path}: no such folder of checkpoints ({error.strerror})") from error
        return steps_by_name(self.pattern, names)


def locate(path: str | Path) -> Path:
    """What holds the weights: `path` itself, or what a manifest (`.json`, see `toposcale.hub`) points to."""
    if Path(path).suffix != ".json":
        return Path(path)
    from toposcale import hub

    return hub.read_manifest(path)


# Names and steps.


def steps_by_name(pattern: str, names: Iterable[str]) -> dict[int, str]:
    """The names that `pattern` matches, by step, ascending.

    `{step}` stands for a whole number, padded or not; any other `{group}` for letters, digits and dots, for example
    `stage1-step{step}-tokens{tokens}B`. UserError: no `{step}` in the pattern, or two names of one step.
    """
    expression = _pattern_expression(pattern)
    found: dict[int, str] = {}
    for name in sorted(names):
        if match := expression.fullmatch(name):
            step = int(match["step"])
            if step in found:
                raise UserError(
                    f"{pattern}: {found[step]} and {name} are both step {step}; make it match one"
                )
            found[step] = name
    return dict(sorted(found.items()))


def find_step(step: int, found: Mapping[int, str], where: str) -> str:
    """The name of a step; a `UserError` names the steps around one that is not there."""
    if step in found:
        return found[step]
    if not found:
        raise UserError(f"{where}: no checkpoint there has a name of this pattern, so none of step {step}")
    near = sorted(sorted(found, key=lambda other: abs(other - step))[:4])
    raise UserError(f"{where}: no checkpoint of step {step}; the nearest are {', '.join(map(str, near))}")


def wanted_steps(wanted: Iterable[int], found: Mapping[int, str], where: str) -> list[int]:
    """The wanted steps, each checked to be there, ascending; all that are there where none is named."""
    steps = sorted(set(wanted))
    for step in steps:
        find_step(step, found, where)
    if not steps and not found:
        raise UserError(f"{where}: no checkpoint there has a name of this pattern")
    return steps or sorted(found)


def _pattern_expression(pattern: str) -> re.Pattern[str]:
    # Text and groups in turn; an odd number of pieces, with every brace in a group.
    pieces = re.split(r"\{([^{}]*)\}", pattern)
    texts, groups = pieces[::2], pieces[1::2]
    if any("{" in text or "}" in text for text in texts) or len(set(groups)) < len(groups):
        raise UserError(f"{pattern}: its braces must pair up and each name stand once, as in step{{step}}")
    if not all(re.fullmatch(r"[A-Za-z_]\w*", group) for group in groups):
        raise UserError(f"{pattern}: what stands in braces must be a plain name, as in step{{step}}")
    if "step" not in groups:
        raise UserError(f"{pattern}: a pattern of checkpoint names must hold {{step}}, as in step{{step}}")
    expression = re.escape(texts[0])
    for group, text in zip(groups, texts[1:], strict=True):
        expression += rf"(?P<{group}>{'[0-9]+' if group == 'step' else '[0-9A-Za-z.]+'})" + re.escape(text)
    return re.compile(expression)


# Files.


def choose_weight_files(names: Iterable[str]) -> list[str]:
    """The weight files among `names`, of one format only: safetensors before `.bin`, one file before shards.

    The index comes before its shards. Empty where there are no weights.
    """
    names = set(names)
    for form in _FORMATS:
        if form.single in names:
            return [form.single]
        shards = sorted(name for name in names if form.shard.fullmatch(name))
        if form.index in names and shards:
            return [form.index, *shards]
    return []


def weight_files(checkpoint: str | Path) -> list[Path]:
    """The files that hold a checkpoint's weights, in order, each checked to be there and whole.

    For safetensors whole means that the header accounts for every byte; for `.bin`, that the archive has its end.
    UserError: no weights, a shard that is missing, a file that is cut or damaged.
    """
    path = Path(checkpoint)
    if path.is_file():
        files = [path]
    elif path.is_dir():
        chosen = choose_weight_files(entry.name for entry in path.iterdir())
        if not chosen:
            raise UserError(f"{path}: no {' and no '.join(form.single for form in _FORMATS)} there")
        files = _shards(path / chosen[0]) if chosen[0].endswith(".json") else [path / chosen[0]]
    else:
        raise UserError(f"{path}: no such checkpoint")
    for file in files:
        _check_whole(file)
    return files


def iterate_matrices(checkpoint: str | Path) -> Iterator[tuple[str, np.ndarray]]:
    """Name and values of every weight matrix (n_out, n_in), one in memory at a time.

    float64, float32 and float16 come as they are stored, bfloat16 and float8 as float32, which holds them exactly.
    Left out: what is not 2-D, whole numbers, and the buffers `attention.bias`, `attention.masked_bias` and
    `rotary_emb.inv_freq`. UserError as in `weight_files`, and for a `.bin` that holds more than tensors.
    """
    for file in weight_files(checkpoint):
        if file.suffix == ".safetensors":
            check_content(file)
        for name, tensor in (_safetensors_tensors if file.suffix == ".safetensors" else _bin_tensors)(file):
            if tensor.ndim == 2 and tensor.dtype.kind == "f":
                yield name, tensor


def count_parameters(checkpoint: str | Path) -> int:
    """Number of stored weights, buffers left out; a tensor that is stored twice (tied weights) is counted twice."""
    total = 0
    for file in weight_files(checkpoint):
        if file.suffix == ".safetensors":
            with _open_safetensors(file) as tensors:
                shapes = {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}  # noqa: SIM118
        else:
            shapes = {name: list(tensor.shape) for name, tensor in _load_bin(file).items()}
        total += sum(int(np.prod(shape)) for name, shape in shapes.items() if not is_buffer(name))
    return total


def read_metadata(checkpoint: str | Path) -> dict[str, str]:
    """The text metadata of one safetensors file."""
    with _open_safetensors(Path(checkpoint)) as tensors:
        return tensors.metadata() or {}


def exact(tensor: np.ndarray) -> np.ndarray:
    """`tensor` itself, or as float32, which holds them exactly, where its values are bfloat16 or float8."""
    return tensor.astype(np.float32) if tensor.dtype in _WIDENED else tensor


def is_buffer(name: str) -> bool:
    """Whether a tensor of that name is a mask or a table that was saved along, not a weight."""
    return _BUFFERS.search(name) is not None


def _shards(index: Path) -> list[Path]:
    """The shards that an index file names, all there, and nowhere but beside it."""
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{index}: not an index of weight files; fetch it again") from error
    for name in names:
        if not isinstance(name, str) or not any(form.shard.fullmatch(name) for form in _FORMATS):
            raise UserError(f"{index}: names {name!r}, which is not a shard beside it")
        if not (index.parent / name).is_file():
            raise UserError(f"{index.parent / name}: missing, but {index.name} names it; fetch it again")
    return [index.parent / name for name in names]


def _check_whole(file: Path) -> None:
    if file.suffix == ".safetensors":
        with _open_safetensors(file):
            return
    elif _is_archive(file) and not zipfile.is_zipfile(file):
        raise UserError(f"{file}: not a whole .bin file (its end is missing); fetch it again")
    elif file.stat().st_size == 0:
        raise UserError(f"{file}: empty; fetch it again")


@contextmanager
def _open_safetensors(file: Path) -> Iterator[Any]:
    """The open file; reading its header already compares the length that it states with the file's."""
    try:
        with safe_open(str(file), framework="numpy") as tensors:
            yield tensors
    except FileNotFoundError as error:
        raise UserError(f"{file}: no such file") from error
    except (SafetensorError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{file}: not a whole safetensors file ({reason}); delete it and run again"
        ) from error


def _safetensors_tensors(file: Path) -> Iterator[tuple[str, np.ndarray]]:
    with _open_safetensors(file) as tensors:
        for name in tensors.keys():  # noqa: SIM118
            if not is_buffer(name):
                tensor = tensors.get_tensor(name)
                yield name, exact(tensor)


def _bin_tensors(file: Path) -> Iterator[tuple[str, np.ndarray]]:
    for name, tensor in _load_bin(file).items():
        if not is_buffer(name):
            known = (
                not tensor.is_floating_point() or tensor.itemsize > 2 or str(tensor.dtype) == "torch.float16"
            )
            yield name, (tensor if known else tensor.float()).numpy()


def _load_bin(file: Path) -> dict[str, Any]:
    """The tensors of a `.bin`, mapped from disk where its layout allows; nothing in it is ever executed."""
    import torch

    try:
        # Files from before torch 1.6 are no archives and cannot be mapped.
        tensors = torch.load(file, map_location="cpu", weights_only=True, mmap=_is_archive(file))
    except pickle.UnpicklingError as error:
        raise UserError(f"{file}: holds something other than tensors, which is not loaded") from error
    except (RuntimeError, OSError, EOFError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{file}: not a whole .bin file ({reason}); fetch it again") from error
    if not isinstance(tensors, dict) or not all(
        isinstance(value, torch.Tensor) for value in tensors.values()
    ):
        raise UserError(f"{file}: not a table of tensors by name")
    return tensors


def _is_archive(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(4) == b"PK\x03\x04"
