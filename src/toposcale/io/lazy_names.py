"""Names of a package that are imported from its modules when they are asked for (PEP 562)."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, module_of: Mapping[str, str], extras: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package, of whose names these are each from a module within it.

    extras: by the name of a package that it needs, the extra of toposcale that installs it.
    """

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(f"{package}.{module_of[name]}"), name)
        except ModuleNotFoundError as error:
            if extra := (extras or {}).get(error.name or ""):
                error.msg = f"{name} needs {error.name}: pip install 'toposcale[{extra}]'"
            raise

    return load, lambda: list(sys.modules[package].__all__)
