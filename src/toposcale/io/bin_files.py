"""Read the tensors of a `.bin`, the format of PyTorch, without running the code that it may hold."""

import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from toposcale.io.errors import NOT_TENSORS, UserError, listed, needs_extra
from toposcale.io.files import regular_file
from toposcale.io.not_weights import is_buffer
from toposcale.io.stub_unpickler import Stub, load_with_stubs, not_loaded
from toposcale.io.tensor_files import Stored, exact

# Keys under which a training loop saves the weights.
_NESTED = ("state_dict", "model_state_dict", "model", "module", "net", "weights", "params", "state")
_SAVE_STATE_DICT = "save the weights: torch.save(model.state_dict(), FILE)"
_ARCHIVE = b"PK\x03\x04"  # first bytes of a `.bin`
_PICKLE = b"\x80"  # the same before torch 1.6


def _check_complete(file: Path) -> None:
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
        raise UserError(
            f"{file}: not a file of weights (.safetensors, .bin, .pt or .ckpt); name one, or its folder; `check` reads logs"
        )


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


def unwrap_weights(content: Any, where: str | Path) -> Any:
    """Return the weights in the checkpoint of a training loop by name; raise UserError for none, or several sets."""
    while not _is_state(content := _entries_or_parameters(content)) and isinstance(content, dict) and content:
        if {"state", "param_groups"} <= content.keys():
            raise UserError(
                f"{where}: the state of an optimizer, which holds no weights; name the checkpoint that it belongs to"
            )
        content = content[_key_of_weights(content, where)]
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        return content
    # Steps, options and the states of layers without weights may be among them.
    other_types = int | float | str | list | Stub | None
    return plain_names({key: value for key, value in content.items() if not isinstance(value, other_types)})


def _entries_or_parameters(content: Any) -> Any:
    """Return the entries of an object that is a dictionary, or the parameters of one that is a module."""
    if not isinstance(content, Stub):
        return content
    return content.entries or dict(_parameters(content)) or content


def _parameters(module: Stub, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the parameters of a module that was saved whole, by name."""
    state = module.state if isinstance(module.state, dict) else {}
    parameters, inner = (state.get(key) for key in ("_parameters", "_modules"))
    for name, values in (parameters or {}).items() if isinstance(parameters, dict) else ():
        if values is not None:
            yield prefix + str(name), values
    for name, module_inner in inner.items() if isinstance(inner, dict) else ():
        if isinstance(module_inner, Stub):
            yield from _parameters(module_inner, f"{prefix}{name}.")


def _is_state(content: Any) -> bool:
    """Return whether a dictionary holds tensors itself, and not in an entry whose key is one of `_NESTED`."""
    if not isinstance(content, dict) or not any(getattr(value, "ndim", 0) for value in content.values()):
        return False
    return not any(_is_state(_entries_or_parameters(content.get(key))) for key in _NESTED)


def _key_of_weights(content: Mapping[Any, Any], where: str | Path) -> Any:
    """Return the key under which a checkpoint holds its weights; raise UserError if there is none, or several."""
    if nested_keys := [key for key in _NESTED if isinstance(_entries_or_parameters(content.get(key)), dict)]:
        return nested_keys[0]
    states = [key for key, value in content.items() if _is_state(_entries_or_parameters(value))]
    if len(states) == 1:
        return states[0]
    keys = listed(map(str, content), 8)
    if states:
        file, key = Path(where).name, str(states[0])
        raise UserError(
            f"{where}: several parts with weights, {' and '.join(map(str, states))}; save the one to measure: "
            f"torch.save(torch.load({file!r})[{key!r}], {f'{key}.pt'!r})"
        )
    raise UserError(
        f"{where}: not a dictionary of tensors; it holds {keys}, none of which is called {' or '.join(_NESTED)}; "
        f"{_SAVE_STATE_DICT}"
    )


def weights_beside(content: Any) -> list[str]:
    """Return the keys of a checkpoint under which it holds further weights that are not read, such as a moving average."""
    if not isinstance(content, dict) or _is_state(content):
        return []
    states = [str(key) for key, value in content.items() if _is_state(_entries_or_parameters(value))]
    return [key for key in states if key != str(_key_of_weights(content, ""))]


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
        raise UserError(f"{file}: not a dictionary of tensors; {_SAVE_STATE_DICT}")
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


def load_content(file: Path) -> tuple[Any, list[str]]:
    """Return the content of a `.bin`, tensors memory-mapped if possible, and the names of the classes of its stubs.

    No code is executed: in place of other objects than tensors stand stubs.
    """
    _check_complete(file)
    with needs_extra("monitor", f"{file}: a file of PyTorch, which"):
        import torch

    is_archive = _head(file) == _ARCHIVE
    try:
        # Files from before torch 1.6 are not archives and cannot be mapped.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of other protocols of pickle, which are read all the same
            return torch.load(file, map_location="cpu", weights_only=True, mmap=is_archive), []
    except Exception as error:  # a file that is not a .bin fails anywhere in the reader
        # PyTorch would advise `weights_only=False`, which runs what the file says.
        if isinstance(error, pickle.UnpicklingError) or "weights_only" in str(error):
            return load_with_stubs(file)
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{file}: not a complete .bin file ({reason}); fetch it again") from error


class Arrays:
    """Tensors of NumPy or of PyTorch on any device, by name, each once: of views of the same entries the first name counts.

    where: prefix of messages about them.
    content: all of the file that holds them.
    foreign: names of the classes in that file that were replaced by stubs.
    """

    def __init__(self, tensors: Mapping[str, Any], where: str = "", content: Any = None, foreign: Sequence[str] = ()):
        self.where, self.content, self.foreign = where, content, foreign
        first: dict[Any, str] = {}
        arrays = {name: tensor if hasattr(tensor, "detach") else np.asarray(tensor) for name, tensor in tensors.items()}
        for name, tensor in arrays.items():
            first.setdefault(_view(tensor) or name, name)
        self._tensors = {name: arrays[name] for name in first.values()}

    @cached_property
    def stored(self) -> dict[str, Stored]:
        """Shape and type of all tensors."""
        # NumPy's text of a dtype is ">f4" in another byte order; PyTorch's have no name.
        dtypes = {name: getattr(tensor.dtype, "name", str(tensor.dtype)) for name, tensor in self._tensors.items()}
        return {name: Stored(tuple(tensor.shape), dtypes[name]) for name, tensor in self._tensors.items()}

    def is_readable(self, name: str) -> bool:
        """Return whether a tensor can be read into an array."""
        tensor = self._tensors[name]
        return not hasattr(tensor, "detach") or not not_plain(tensor)

    def values(self, name: str) -> np.ndarray:
        """Return a tensor as an array, bfloat16 and float8 as float32; raise UserError if it is not supported."""
        tensor = self._tensors[name]
        return torch_values(name, tensor, self.where) if hasattr(tensor, "detach") else exact(tensor)

    def rows(self, name: str) -> Any:
        """Return a tensor, whose slices `[start:stop]` are its rows."""
        return self._tensors[name]


def _view(tensor: Any) -> tuple[Any, ...]:
    """Return address, shape and strides of a tensor; () of one without entries, or without an address."""
    if not hasattr(tensor, "detach"):
        return (tensor.__array_interface__["data"][0], tensor.shape, tensor.strides) if tensor.size else ()
    return (tensor.data_ptr(), tensor.shape, tensor.stride()) if not not_plain(tensor) and tensor.numel() else ()


def open_bin(file: Path) -> Arrays:
    """Return the tensors of a `.bin`."""
    content, names = load_content(file)
    try:
        tensors = unwrap_weights(content, file)
        if isinstance(tensors, dict):
            tensors = {name: _as_tensor(value) for name, value in tensors.items()}
        _check_plain(file, tensors)
    except UserError as error:
        if names and NOT_TENSORS not in str(error):  # what is missing may be among them
            raise not_loaded(file, names) from error
        raise
    return Arrays(tensors, f"{file}: ", content, names)


def _as_tensor(values: Any) -> Any:
    """Return an array of NumPy as a tensor, and anything else as it is."""
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiubc":
        return values
    import torch

    return torch.from_numpy(np.array(values, values.dtype.newbyteorder("=")))


def _head(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(4)
