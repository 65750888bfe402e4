"""Read an archive of PyTorch with any objects in it, of which only tensors and arrays are made; the others are stubs.

Nothing is imported, and nothing is called but what is defined here: a pickle names its classes and functions, and each
name but those of a few builders stands for a stub, which holds what the file says of the object and does nothing.
"""

import io
import pickle
import re
import zipfile
from collections import OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from toposcale.io.errors import NOT_TENSORS, UserError, as_user_error, is_shared, listed


class Stub:
    """Object of a class that is not imported: its state and its entries, as the file says."""

    def __new__(cls, *_: Any, **__: Any) -> "Stub":
        stub = super().__new__(cls)
        stub.state, stub.entries = None, {}
        return stub

    state: Any
    entries: dict[Any, Any]

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __call__(self, *_: Any, **__: Any) -> "Stub":
        """Return a stub, as a call of any function does."""
        return Stub()

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.entries[key] = value

    def append(self, _: Any) -> None:
        """Take an item of a list, or of a set."""

    add = append
    extend = append


_NUMBERS = r"[<>|=]?([fiubc]\d{1,2}|\?)"


class _Dtype:
    """Type of an array, read from its code such as "f8"; the state of a real one could be malformed."""

    def __init__(self, code: Any) -> None:
        self.code, self.order = str(code), "="

    def __setstate__(self, state: Any) -> None:
        self.order = state[1]

    def dtype(self) -> np.dtype[Any]:
        """Return the type; ValueError for one that is not of numbers."""
        if not re.fullmatch(_NUMBERS, self.code) or self.order not in ("<", ">", "=", "|"):
            raise ValueError(f"an array of type {self.code!r}")
        return np.dtype(self.code).newbyteorder(self.order)  # type: ignore[arg-type]


class _Array(np.ndarray):
    """Array whose state is checked before it is set."""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, is_fortran, content = state
        values = _values(content, kind, shape, "F" if is_fortran else "C")
        state = 1, values.shape, values.dtype, bool(is_fortran), values.tobytes("A")
        super().__setstate__(state)


def _values(content: Any, kind: Any, shape: Any, order: str) -> np.ndarray:
    """Return the array of some bytes, empty unless it is of numbers; ValueError if they are not those of the shape."""
    if not isinstance(kind, _Dtype) or not re.fullmatch(_NUMBERS, kind.code):
        return np.empty(0)
    return np.frombuffer(bytes(content), kind.dtype()).reshape(shape, order=order)  # type: ignore[call-overload]


class _Builders:
    """Functions that a pickle may call. Bound methods, since a pickle could set attributes of a function."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def tensor(self, storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> Any:
        """Return a tensor on a storage of the archive, whose bounds PyTorch checks."""
        return self._torch._utils._rebuild_tensor(storage, offset, size, stride)

    def parameter(self, values: Any, *_: Any) -> Any:
        """Return the values of a parameter."""
        return values

    def of_type(self, build: Any, _: Any, arguments: Any, *__: Any) -> Any:
        """Return the tensor that an object of a subclass of tensors holds."""
        return build(*arguments) if build in (self.tensor, self.parameter) else Stub()

    def array(self, *_: Any) -> _Array:
        """Return an empty array, whose state follows."""
        return np.ndarray.__new__(_Array, (0,), "u1")

    def dtype(self, code: Any, *_: Any) -> _Dtype:
        """Return the type of an array."""
        return _Dtype(code)

    def scalar(self, kind: Any, content: Any = b"") -> Any:
        """Return a number of NumPy."""
        return _values(content, kind, (), "C")[()]

    def buffer(self, content: Any, kind: Any, shape: Any, order: Any) -> np.ndarray:
        """Return an array of some bytes."""
        return _values(content, kind, shape, "F" if order == "F" else "C")

    def encoded(self, text: Any, encoding: Any) -> bytes:
        """Return the bytes that old protocols write as text."""
        if encoding != "latin1" or not isinstance(text, str):
            raise ValueError(f"bytes as text in {encoding!r}")
        return text.encode("latin1")

    def dictionary(self, *_: Any) -> dict[Any, Any]:
        """Return a dictionary, whose entries follow, without its default."""
        return {}


_BUILDERS = {
    ("torch._utils", "_rebuild_tensor"): "tensor",
    ("torch._utils", "_rebuild_tensor_v2"): "tensor",
    ("torch._utils", "_rebuild_parameter"): "parameter",
    ("torch._utils", "_rebuild_parameter_with_state"): "parameter",
    ("torch._tensor", "_rebuild_from_type_v2"): "of_type",
    ("numpy", "dtype"): "dtype",
    **{(f"numpy.{core}.multiarray", "_reconstruct"): "array" for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): "scalar" for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): "buffer" for core in ("core", "_core")},
    ("_codecs", "encode"): "encoded",
    ("collections", "defaultdict"): "dictionary",
}
_BUILTINS = ("builtins", "__builtin__")
_CLASSES: dict[tuple[str, str], type] = {
    ("collections", "OrderedDict"): OrderedDict,
    **{(module, kind.__name__): kind for module in _BUILTINS for kind in (set, frozenset, complex)},
}
# What no checkpoint needs, and what a file that was made to do harm names.
_HARMFUL_MODULES = {"os", "posix", "nt", "subprocess", "sys", "shutil", "pty", "runpy", "importlib", "socket", "ctypes"}
_HARMFUL = {"eval", "exec", "compile", "open", "print", "input", "breakpoint", "setattr", "delattr", "__import__"}


def not_loaded(file: Path, names: list[str]) -> UserError:
    """Return the error for a file whose objects, of these names, are not loaded, with two lines that convert it."""
    named = f" ({listed(names, 3)})" if names else ""
    return UserError(
        f"{file}: contains {NOT_TENSORS}{named}; convert it in the program that made it: "
        "checkpoint = ... (as your training loads it); torch.save(checkpoint['model'].state_dict(), 'weights.pt')"
    )


def reader_with_stubs(file: Path, torch: Any = None) -> tuple[type[pickle.Unpickler], dict[str, type[Stub]]]:
    """Return an unpickler for an archive, and the classes of its stubs by name, which fill as it reads.

    Without `torch` it makes no tensors.
    """
    stubs: dict[str, type[Stub]] = {}
    builders = _Builders(torch)

    class Unpickler(pickle.Unpickler):
        """Unpickler that finds builders and stubs."""

        def find_class(self, module: str, name: str, /) -> Any:
            """Return what a name stands for, without an import."""
            if builder := _BUILDERS.get((module, name)):
                return getattr(builders, builder)
            if known_class := _CLASSES.get((module, name)):
                return known_class
            root = module.partition(".")[0]
            if root in _HARMFUL_MODULES or (root in _BUILTINS and name in _HARMFUL):
                raise not_loaded(file, [f"{module}.{name}"])
            return stubs.setdefault(f"{module}.{name}", type("Stub", (Stub,), {}))

    return Unpickler, stubs


def load_with_stubs(file: Path) -> tuple[Any, list[str]]:
    """Return the content of an archive, and the names of the classes of its stubs; raise UserError if that cannot be."""
    import torch

    unpickler, stubs = reader_with_stubs(file, torch)
    reader = ModuleType("toposcale_stubs")
    reader.Unpickler = unpickler  # type: ignore[attr-defined]
    try:
        with zipfile.ZipFile(file) as archive:  # the form from before torch 1.6 is none
            if any(name.endswith("/constants.pkl") for name in archive.namelist()):
                raise not_loaded(file, ["a program of TorchScript"])
        content = torch.load(file, map_location="cpu", weights_only=False, mmap=True, pickle_module=reader)
    except Exception as error:
        if isinstance(error, UserError) or is_shared(error):
            raise
        raise not_loaded(file, sorted(stubs)) from error
    return content, sorted(stubs.keys() - {"numpy.ndarray"})


def load_without_torch(file: Path) -> Any:
    """Return the content of an archive without tensors, such as the state of a schedule; raise UserError for any other."""
    with as_user_error(file, "not read", Exception), zipfile.ZipFile(file) as archive:  # a pickle may fail anywhere
        [name] = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        unpickler, _ = reader_with_stubs(file)
        return unpickler(io.BytesIO(archive.read(name))).load()
