"""Read the tensors of a `.bin`, the format of PyTorch, without running the code that it may hold."""

import argparse
import pickle
import re
import zipfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path, PosixPath
from typing import Any

import numpy as np

from toposcale.io.errors import NOT_TENSORS, UserError, listed
from toposcale.io.files import regular_file
from toposcale.io.not_weights import is_buffer

# Keys under which a training loop saves the weights beside its own state.
_NESTED = ("state_dict", "model_state_dict", "model", "module", "net", "weights", "params", "state")
_SAVE_ALONE = "save the weights alone: torch.save(model.state_dict(), FILE)"
# First bytes of a `.bin`: an archive, or before torch 1.6 a pickle.
_ARCHIVE, _PICKLE = b"PK\x03\x04", b"\x80"


def check_complete(file: Path) -> None:
    """Raise UserError unless a file is a complete `.bin`: its archive has an end, and is not compressed."""
    head = _head(regular_file(file))
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


def torch_values(name: str, tensor: Any, where: str = "") -> np.ndarray:
    """Return a tensor of PyTorch as an array; bfloat16 and float8 as float32, which holds them exactly."""
    if reason := not_plain(tensor):
        raise UserError(f"{where}{name} {reason}, which is not supported")
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    in_numpy = not plain.is_floating_point() or plain.itemsize > 2 or str(plain.dtype) == "torch.float16"
    try:
        return (plain if in_numpy else plain.float()).numpy()
    except (TypeError, RuntimeError) as error:
        raise UserError(f"{where}{name} is {plain.dtype}, which is not supported") from error


def not_plain(tensor: Any) -> str:
    """Return why a PyTorch tensor cannot be read as an array of its shape; "" if it can."""
    if tensor.is_nested or str(tensor.layout) != "torch.strided":
        return f"is sparse or nested ({tensor.layout})"
    if tensor.is_meta:
        return "has no values (it is on the meta device)"
    return f"is {tensor.dtype}" if tensor.is_quantized else ""


def unwrapped(content: Any, where: str | Path) -> Any:
    """Return the weights in the checkpoint of a training loop, by name; raise UserError if there are none."""

    def is_state(named: dict[Any, Any]) -> bool:
        return any(getattr(value, "ndim", 0) for value in named.values())

    while isinstance(content, dict) and content and not is_state(content):
        inner = next((key for key in _NESTED if isinstance(content.get(key), dict)), None)
        if inner is None:
            raise UserError(
                f"{where}: not a dictionary of tensors; it holds {listed(map(str, content), 8)}, none of which is called "
                f"{' or '.join(_NESTED)}; {_SAVE_ALONE}"
            )
        content = content[inner]
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        return content
    # Steps and the states of layers without weights may be among them.
    return plain_names(
        {key: value for key, value in content.items() if not isinstance(value, int | float | str | None)}
    )


def plain_names(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return weights by name, without the prefixes of wrappers (DistributedDataParallel, torch.compile).

    The names stay unchanged if two weights would otherwise have the same one.
    """
    plain = [re.sub(r"(^|\.)(_orig_mod|_fsdp_wrapped_module)\.", r"\1", name) for name in named]
    while plain and all(name.startswith("module.") for name in plain):
        plain = [name.removeprefix("module.") for name in plain]
    return dict(zip(plain, named.values(), strict=True)) if len(set(plain)) == len(named) else dict(named)


def _check_plain(file: Path, tensors: Any) -> None:
    """Raise UserError unless `tensors` is a dictionary of plain tensors by name, each no larger than the file."""
    import torch

    if not isinstance(tensors, dict) or not all(isinstance(value, torch.Tensor) for value in tensors.values()):
        raise UserError(f"{file}: not a dictionary of tensors; {_SAVE_ALONE}")
    size = file.stat().st_size
    for name, value in tensors.items():
        if not isinstance(name, str):
            raise UserError(f"{file}: a tensor in it is named {name!r}, which is not a text")
        if reason := not_plain(value):
            raise UserError(f"{file}: {name} {reason}, which is not supported")
        # One stored entry may be expanded to any number of them, which no memory holds.
        if value.numel() * value.element_size() > size and not is_buffer(name):
            shape = " x ".join(map(str, value.shape))
            raise UserError(f"{file}: {name} has {shape} entries, more than the {size} bytes of the file hold")


def load_content(file: Path) -> Any:
    """Return what a `.bin` holds, tensors memory-mapped if possible; execute no code."""
    try:
        import torch
    except ImportError as error:
        raise UserError(f"{file}: only safetensors are read without PyTorch: pip install torch") from error

    try:
        # Files from before torch 1.6 are not archives and cannot be mapped.
        with _harmless(torch):
            return torch.load(file, map_location="cpu", weights_only=True, mmap=_head(file) == _ARCHIVE)
    except Exception as error:  # a file that is not a .bin fails anywhere in the reader
        # PyTorch would advise `weights_only=False`, which runs what the file says.
        if isinstance(error, pickle.UnpicklingError) or "weights_only" in str(error):
            raise UserError(f"{file}: contains {NOT_TENSORS}; {_SAVE_ALONE}") from error
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{file}: not a complete .bin file ({reason}); fetch it again") from error


def load_bin(file: Path) -> dict[str, Any]:
    """Return the tensors of a `.bin`, tied ones under their first name."""
    tensors = unwrapped(load_content(file), file)
    _check_plain(file, tensors)
    views = {name: (tensor.data_ptr(), tensor.shape, tensor.stride()) for name, tensor in tensors.items()}
    first = {view: name for name, view in reversed(views.items())}
    return {name: tensor for name, tensor in tensors.items() if first[views[name]] == name or not tensor.numel()}


def _harmless(torch: Any) -> AbstractContextManager[Any]:
    """Allow what training loops save beside the weights and what cannot run code: options, paths, numbers of NumPy."""
    if torch.__version__ < (2, 6):
        return nullcontext()
    scalar = np.float64(0).__reduce__()[0]
    old = "numpy.core.multiarray.scalar"  # before NumPy 2
    allowed = [argparse.Namespace, PosixPath, np.dtype, *(type(np.dtype(kind)) for kind in ("f8", "f4", "i8"))]
    return torch.serialization.safe_globals([*allowed, scalar, (scalar, old)])


def _head(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(4)
