"""Fingerprints of the code that a rule runs, so that changed library code reruns what it made.

Snakemake watches a rule's script, not the modules that the script imports. The fingerprint of a script covers every
module of the library that it can reach by imports. Comments, layout and docstrings, also those of attributes, do not
enter it, nor what a column means (`schemas.csv`): the code that fills a column does. It is the same for every Python that
parses the code into the same syntax tree.

A name that a package takes from one of its modules leads to that module alone: `homology.rips_diagrams` to
`homology/rips.py`. The `__init__.py` of a package counts where a name that it defines itself is used.
"""

import ast
import hashlib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from paths import LIBRARY, ROOT

SCRIPTS = ROOT / "scripts"


class _Module(NamedTuple):
    """Hash of a module's code, what each imported name stands for, the dotted names it uses, and the names it defines."""

    digest: str
    imported: dict[str, str]
    used: frozenset[str]
    defined: frozenset[str]


@cache
def fingerprint(script: str, *modules: str) -> str:
    """Return the hash of the modules that `scripts/{script}` imports, directly or through others, by their syntax trees.

    `modules` names those that it loads by name, where no import shows them.
    """
    # The script itself is left to Snakemake's own code trigger.
    hashes = sorted(_parsed(path).digest for path in reached(script, *modules) - {SCRIPTS / script})
    return hashlib.sha256("".join(hashes).encode()).hexdigest()[:16]


def reached(script: str, *modules: str) -> set[Path]:
    """Return the files of a script, if any, and of all modules of the project that it or one of `modules` depends on."""
    files: set[Path] = set()
    waiting = [path for module in modules for path in _files(module)] + ([SCRIPTS / script] if script else [])
    while waiting:
        path = waiting.pop()
        if path not in files:
            files.add(path)
            waiting += [file for name in _parsed(path).used for file in _files(name)]
    return files


def code_of(script: str, *modules: str) -> Callable[[Any], str]:
    """Return a params function: the fingerprint of a rule's code. Only the rules that are asked for are read."""
    return lambda wildcards: fingerprint(script, *modules)


@cache
def _parsed(path: Path) -> _Module:
    tree = ast.parse(path.read_bytes())
    imported: dict[str, str] = {}
    loaded: dict[str, set[str]] = {}
    for_types = [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in _chain(node.test)]
    not_run = set(chain.from_iterable(map(ast.walk, for_types)))
    for node in ast.walk(tree):
        if node in not_run:  # a type changes no number
            continue
        if isinstance(node, ast.Import):
            imported |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute | ast.Name):
            name, *attributes = _chain(node)
            loaded.setdefault(name, set()).add(".".join(attributes))
    used = set()
    for name, meaning in imported.items():
        attributes_of = loaded.get(name, set()) - {""}
        used |= {f"{meaning}.{attributes}" for attributes in attributes_of}
        # What a package imports and does not use, it hands on to those who ask for it.
        if not attributes_of and (name in loaded or path.name != "__init__.py"):
            used.add(meaning)
    defined = {name for node in tree.body for name in _names(node)}
    return _Module(hashlib.sha256(_code(tree).encode()).hexdigest(), imported, frozenset(used), frozenset(defined))


def _code(value: Any) -> str:
    """Return a syntax tree, or a part of one, as text without docstrings.

    Unlike that of `ast.dump` it is the same for every version of Python from 3.10 on: what is empty is left out.
    """
    if isinstance(value, ast.JoinedStr):  # in whose format Python 3.12 ends with an empty text
        value = [part for part in value.values if not (isinstance(part, ast.Constant) and part.value == "")]
    if isinstance(value, list):
        return f"[{','.join(_code(part) for part in value if not _is_text(part))}]"
    if not isinstance(value, ast.AST):
        return repr(value)
    fields = [(name, part) for name, part in ast.iter_fields(value) if part is not None and part != []]
    return f"{type(value).__name__}({','.join(f'{name}={_code(part)}' for name, part in fields if name != 'ctx')})"


def _is_text(part: Any) -> bool:
    """Return whether a statement is a text, and so does nothing, or `pass`, which takes its place."""
    is_text = isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str)
    return is_text or isinstance(part, ast.Pass)


def _chain(node: ast.expr) -> list[str]:
    """Return the names of an expression of names and dots; an empty one where it begins with something else."""
    if isinstance(node, ast.Attribute):
        return [*_chain(node.value), node.attr]
    return [node.id if isinstance(node, ast.Name) else ""]


def _names(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module binds, but those that it imports."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))


@cache
def _files(name: str) -> frozenset[Path]:
    """Return the files behind a dotted name; none where it is not the project's."""
    # Beside an installed library are packages of others.
    base = LIBRARY if name.partition(".")[0] == "toposcale" else SCRIPTS
    folder, parts = base, name.split(".")
    while parts and (folder / parts[0] / "__init__.py").is_file():
        folder /= parts.pop(0)
    if parts and (folder / f"{parts[0]}.py").is_file():
        return frozenset({folder / f"{parts[0]}.py"})
    return frozenset() if folder == base else _files_of_package(folder, parts)


def _files_of_package(folder: Path, parts: list[str]) -> frozenset[Path]:
    """Return the files behind a name in a package: of the module that it is from; all where the code does not say which."""
    module = _parsed(folder / "__init__.py")
    if parts and parts[0] in module.imported:
        return _files(module.imported[parts[0]])
    if parts and parts[0] in module.defined:
        return frozenset({folder / "__init__.py"})
    return frozenset(folder.rglob("*.py"))
