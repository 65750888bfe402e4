"""Fingerprints of the code that a rule runs, so that changed library code reruns what it made.

Snakemake watches a rule's script, not the modules that the script imports. The fingerprint of a script covers every
module of the library that it can reach by imports. Comments, layout and docstrings do not enter it.
"""

import ast
import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from paths import ROOT

LIBRARY = ROOT / "src"
SCRIPTS = ROOT / "scripts"
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def fingerprint(script: str, *modules: str) -> str:
    """Return the hash of the modules that `scripts/{script}` imports, directly or through others, by their syntax trees.

    `modules` names those that it loads by name, where no import shows them.
    """
    reached: set[Path] = set()
    waiting = [SCRIPTS / script, *(path for module in modules for path in _files(module))]
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            waiting += _parsed(path)[1]
    # The script itself is left to Snakemake's own code trigger.
    hashes = sorted(_parsed(path)[0] for path in reached if path != SCRIPTS / script)
    return hashlib.sha256("".join(hashes).encode()).hexdigest()[:16]


def code_of(script: str, *modules: str) -> Callable[[Any], str]:
    """Return a params function: the fingerprint of a rule's code. Only the rules that are asked for are read."""
    return lambda wildcards: fingerprint(script, *modules)


@cache
def _parsed(path: Path) -> tuple[str, tuple[Path, ...]]:
    """Return the hash of a module's code, and the project's modules that it imports."""
    tree = ast.parse(path.read_bytes())
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, _DOCUMENTED) and len(node.body) > 1 and ast.get_docstring(node) is not None:
            del node.body[0]
    imports = {path for name in names for path in _files(name)}
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), tuple(sorted(imports))


@cache
def _files(module: str) -> list[Path]:
    """Return the files that `import module` runs, packages above it included; none where it is not the project's."""
    parts = module.split(".")
    stems = [base.joinpath(*parts[:depth]) for base in (LIBRARY, SCRIPTS) for depth in range(1, len(parts) + 1)]
    return [path for stem in stems for path in (stem.with_suffix(".py"), stem / "__init__.py") if path.is_file()]
