"""Safetensors files with deterministic bytes and a checksum.

Any safetensors reader opens them. The package keeps metadata in a hash map of random order, so all metadata are in one
entry, as JSON with sorted keys, with the SHA-256 of the file without that checksum.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from toposcale.io.errors import WHEN_DAMAGED, UserError, as_user_error
from toposcale.io.files import atomic_write, parse_json, regular_file

_ENTRY = "toposcale"
_DIGEST = "sha256"
# Types that NumPy lacks, and that old releases of safetensors do not read into arrays. Scales (F8_E8M0) and types of less
# than a byte are not weights on their own.
_NOT_IN_NUMPY = {
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}
# Types of ml_dtypes that NumPy's functions do not support; float32 represents their values exactly.
_WIDENED = re.compile(r"bfloat16|float8_e[345]m[234]\w*")
_TYPES = ("uint8", "uint16", "int32", "int64", "float16", "float32", "float64")


def write(path: str | Path, arrays: Mapping[str, NDArray], metadata: Mapping[str, str]) -> None:
    """Write arrays and metadata atomically; raise ValueError for an unsupported type, or metadata that are not text."""
    for name, array in arrays.items():
        if array.dtype.name not in _TYPES:
            raise ValueError(f"arrays: {name} is {array.dtype}, but only {', '.join(_TYPES)} are supported")
    for key, value in metadata.items():
        if not isinstance(value, str):
            raise ValueError(f"metadata: {key} is {value!r}, but safetensors metadata is text")
    content = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        file.write(_serialised(content, {**metadata, _DIGEST: _digest(content, metadata)}))
        file.flush()
        os.fsync(file.fileno())


def read(path: str | Path) -> tuple[dict[str, NDArray], dict[str, str]]:
    """Return arrays and metadata of a file of `write`; raise UserError if it is missing or damaged."""
    return _checked(open_file(path))


def read_metadata(path: str | Path) -> dict[str, str]:
    """Return the metadata of a file of `write` without reading its tensors; empty for a file of another program."""
    return {key: value for key, value in open_file(path).metadata().items() if key != _DIGEST}


def _checked(file: "TensorFile") -> tuple[dict[str, NDArray], dict[str, str]]:
    arrays, metadata = {name: file.values(name) for name in file.stored}, file.metadata()
    if metadata.pop(_DIGEST, None) != _digest(arrays, metadata):
        raise UserError(f"{file.path}: damaged (its checksum does not match); {WHEN_DAMAGED}")
    return arrays, metadata


class Stored(NamedTuple):
    """Shape of a tensor, its type as the format or library names it ("F32", "torch.float32"), and why it is not a weight.

    shape: lengths of the axes.
    dtype: name of the type.
    not_weight: a phrase of `not_weights`; "" for a weight.
    """

    shape: tuple[int, ...]
    dtype: str
    not_weight: str = ""


def exact(values: NDArray[Any]) -> NDArray[Any]:
    """Return an array, bfloat16 and float8 as float32, which holds them exactly."""
    return values.astype(np.float32) if _WIDENED.fullmatch(values.dtype.name) else values


class TensorFile:
    """Tensors of an open safetensors file, by name."""

    def __init__(self, handle: Any, path: str | Path) -> None:
        self._handle, self.path = handle, Path(path)

    @cached_property
    def stored(self) -> dict[str, Stored]:
        """Shape and type of all tensors, from the header."""
        slices = {name: self._handle.get_slice(name) for name in self._handle.keys()}  # noqa: SIM118
        return {name: Stored(tuple(one.get_shape()), str(one.get_dtype())) for name, one in slices.items()}

    @cached_property
    def _header(self) -> tuple[dict[str, Any], int]:
        """Return the header, parsed once for all tensors, and the offset of the data after it in bytes."""
        with self.path.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            return parse_json(stream.read(size)), 8 + size

    def is_readable(self, name: str) -> bool:
        """Return whether a tensor can be read into an array."""
        dtype = self.stored[name].dtype
        return dtype in _NOT_IN_NUMPY or not dtype.startswith(("F4", "F6_", "F8_"))

    def values(self, name: str) -> NDArray[Any]:
        """Return a tensor, bfloat16 and float8 as float32; raise UserError if its type is not supported."""
        kind = self.stored[name].dtype
        if not self.is_readable(name):
            raise UserError(f"{self.path}: {name} is of type {kind}, which is not supported")
        return exact(self._mapped(name, kind)) if kind in _NOT_IN_NUMPY else self._handle.get_tensor(name)

    def rows(self, name: str) -> Any:
        """Return an object whose slices `[start:stop]` are rows of a tensor, read lazily."""
        kind = self.stored[name].dtype
        return self._mapped(name, kind) if kind in _NOT_IN_NUMPY else self._handle.get_slice(name)

    def check(self) -> None:
        """Verify the checksum of a file of `write`; files of other programs have none and pass."""
        if self.metadata():
            _checked(self)

    def _mapped(self, name: str, kind: str) -> NDArray[Any]:
        """Return a tensor of a type that NumPy lacks, mapped into memory."""
        header, start = self._header
        shape, offset = tuple(header[name]["shape"]), start + header[name]["data_offsets"][0]
        return np.memmap(self.path, _NOT_IN_NUMPY[kind], "r", offset, shape)

    def metadata(self) -> dict[str, str]:
        """Return the metadata that `write` stored; empty for a file of another program."""
        with as_user_error(self.path, "its metadata are not readable", (ValueError, TypeError), remedy=WHEN_DAMAGED):
            return dict(parse_json((self._handle.metadata() or {}).get(_ENTRY, "{}")))


def has_header(path: Path) -> bool:
    """Return whether a file begins as one of safetensors does: with the length of a JSON object, and its brace."""
    with regular_file(path).open("rb") as stream:
        length, brace = int.from_bytes(stream.read(8), "little"), stream.read(1)
    return brace == b"{" and length <= path.stat().st_size


def open_file(path: str | Path) -> TensorFile:
    """Open a safetensors file; raise UserError if its length is not the one that its header states."""
    if not Path(path).exists():
        raise UserError(f"{path}: no such file")
    kinds = SafetensorError, OSError, ValueError
    with as_user_error(path, "not a complete safetensors file", kinds, remedy=WHEN_DAMAGED):
        return TensorFile(safe_open(str(regular_file(path)), framework="numpy"), path)


def _serialised(arrays: Mapping[str, NDArray], metadata: Mapping[str, str]) -> bytes:
    return save(dict(arrays), {_ENTRY: json.dumps(metadata, sort_keys=True)})


def _digest(arrays: Mapping[str, NDArray], metadata: Mapping[str, str]) -> str:
    return hashlib.sha256(_serialised(arrays, metadata)).hexdigest()
