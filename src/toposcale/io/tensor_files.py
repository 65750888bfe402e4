"""Safetensors files that are the same bytes for the same content, read and written as NumPy arrays.

The safetensors package stores metadata in the order of a randomised hash map, so two saves of one model
differ. The format is a length, a JSON header and the numbers; here the header is sorted, and its metadata
holds the SHA-256 of all the rest, so that a damaged file is found. Any safetensors reader opens the files.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from toposcale.io.errors import UserError
from toposcale.io.files import atomic_write

_TYPE_NAMES = {
    "uint8": "U8",
    "uint16": "U16",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
}

_DIGEST = "sha256"
"""Key of the metadata under which a file states the digest of its content."""


def write(path: str | Path, arrays: Mapping[str, NDArray], metadata: Mapping[str, str]) -> None:
    """Write arrays and metadata to a temporary name, then rename: a file that is there is whole.

    Raises ValueError for an array of a type that is not stored, or metadata that is not text.
    """
    content = _serialise(arrays, metadata)
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read(path: str | Path) -> tuple[dict[str, NDArray], dict[str, str]]:
    """Arrays and metadata of a safetensors file; a `UserError` names a file that is missing or damaged."""
    try:
        with safe_open(str(path), framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = dict(file.metadata() or {})
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except (SafetensorError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{path}: not a whole safetensors file ({reason}); delete it and run again"
        ) from error
    check_content(path)
    metadata.pop(_DIGEST, None)
    return arrays, metadata


def check_content(path: str | Path) -> None:
    """Hold a file that was written here against its digest; a `UserError` names one that is damaged.

    The file is one that opens. Files of other programs state no digest and pass.
    """
    with Path(path).open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        stated = header.get("__metadata__", {}).pop(_DIGEST, None)
        if stated is not None and _digest(header, file.read()) != stated:
            raise UserError(f"{path}: damaged (it does not fit its checksum); delete it and run again")


def _digest(header: Mapping[str, object], content: bytes) -> str:
    return hashlib.sha256(_header_text(header) + content).hexdigest()


def _header_text(header: Mapping[str, object]) -> bytes:
    return json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()


def _serialise(arrays: Mapping[str, NDArray], metadata: Mapping[str, str]) -> bytes:
    for key, value in metadata.items():
        if not isinstance(value, str):
            raise ValueError(f"metadata: {key} is {value!r}, but safetensors metadata is text")
    header: dict[str, object] = {}
    # Widest numbers first, as the format's own writer does, so that every array starts aligned.
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    chunks, position = [], 0
    for name in names:
        array = np.ascontiguousarray(arrays[name])
        if array.dtype.name not in _TYPE_NAMES:
            raise ValueError(f"arrays: {name} is {array.dtype}, but only {', '.join(_TYPE_NAMES)} are stored")
        chunks.append(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
        header[name] = {
            "dtype": _TYPE_NAMES[array.dtype.name],
            "shape": list(np.shape(arrays[name])),
            "data_offsets": [position, position + array.nbytes],
        }
        position += array.nbytes
    content = b"".join(chunks)
    header = {"__metadata__": dict(sorted(metadata.items())), **header}
    digest = _digest(header, content)
    header["__metadata__"] = dict(sorted({**metadata, _DIGEST: digest}.items()))
    text = _header_text(header)
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, content])
