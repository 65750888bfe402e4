"""Digests of the files of a run: of the settings, the code and the inputs of the rule that makes each of them.

The settings of a rule are its params, and its inputs those that the rule states; both are read of the rule itself. So a
file tells by its digest whether it was made as this run would make it, whatever its time and the records of Snakemake say.

The code is the fingerprint of a script: Snakemake watches the script, not the modules that it imports. It covers every
module of the library that the script can reach by imports. Comments, layout and docstrings, also those of attributes, do
not enter it, nor what a column means (`schemas.csv`): the code that fills a column does. It is the same for every Python
that parses the code into the same syntax tree. A name that a package takes from one of its modules leads only to that
module: `homology.rips_diagrams` to `homology/rips.py`. The `__init__.py` of a package counts where a name that it defines
itself is used.
"""

import ast
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Self

from paths import ALL, LIBRARY, ROOT
from toposcale.io import tables
from toposcale.io.errors import UserError

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


WITH_DIGEST = (".parquet", ".safetensors")
"""Suffixes of the files that carry a digest in their metadata."""


class Job(NamedTuple):
    """A job: its rule and its wildcards, for the functions of a rule that take these."""

    rule: str
    model: str = ""
    checkpoints: str = ALL
    table: str = ""

    @classmethod
    def of(cls, rule: str, wildcards: Any) -> Self:
        """Return the job of a rule with the wildcards of Snakemake."""
        return cls(rule, **{name: wildcards.get(name, default) for name, default in cls._field_defaults.items()})

    def get(self, name: str, default: str) -> str:
        """Return a wildcard, like `get` of the wildcards of Snakemake."""
        return str(getattr(self, name, default))

    @property
    def of_model(self) -> Self:
        """The job on all checkpoints of the model, of whose training the gathered log is a part."""
        return self._replace(rule="train" if self.rule == "training_log" else self.rule, checkpoints=ALL)


class Digests:
    """The digests of the files of a run.

    rules: the rules of Snakemake, by name.
    contents: hashes of the user's files.
    """

    def __init__(self, rules: Any, contents: Mapping[str, str]) -> None:
        self._rules, self._contents = rules, contents
        self._code: dict[str, tuple[str, ...]] = {}
        self._jobs: dict[str, list[Job]] = {}
        self._digests: dict[Job, str] = {}

    @cached_property
    def makers(self) -> dict[str, Job]:
        """The job that makes each file which carries a digest, by the outputs of its rule; asked for when all are known."""
        return {
            file.format(**job._asdict()): job
            for rule, jobs in self._jobs.items()
            for job in jobs
            for file in getattr(self._rules, rule).output
            if file.endswith(WITH_DIGEST)
        }

    @property
    def kept(self) -> list[str]:
        """Files of the models, of which one that is missing is made again; nobody keeps the state of an optimiser."""
        return [file for file, job in self.makers.items() if job.model and "/optimisers/" not in file]

    def params(
        self, rule: str, script: str, *modules: str, jobs: Iterable[tuple[str, str]] | None = None
    ) -> dict[str, Callable[[Any], Any]]:
        """Return the params functions of a rule with a script, which loads `modules` by name.

        jobs: model and checkpoints of each, of a rule with these wildcards whose files carry a digest.
        digest: what its outputs carry. inputs: the digests that its inputs must carry, by file.
        """
        self._code[rule] = (script, *modules)
        self._jobs[rule] = [Job(rule)] if jobs is None else [Job(rule, *job) for job in jobs]
        return {
            "digest": lambda wildcards: self.digest(Job.of(rule, wildcards)),
            "inputs": lambda wildcards: self.expected(self._files(Job.of(rule, wildcards))),
        }

    def digest(self, job: Job) -> str:
        """Return the digest of what a job makes; it does not depend on how the work on its inputs is cut into jobs."""
        if self._code[job.rule][0] == "train.py":  # the files of every checkpoint carry that of the whole training
            job = job._replace(checkpoints=ALL)
        if job not in self._digests:
            settings = {
                name: setting(job) if callable(setting) else setting
                for name, setting in getattr(self._rules, job.rule).params.items()
                if name not in ("digest", "inputs")
            }
            files = self._files(job)
            makers = dict.fromkeys(self.makers[file].of_model for file in files if file in self.makers)
            inputs = [self.digest(maker) for maker in makers]
            inputs += [self._contents[file] for file in files if file in self._contents]
            text = json.dumps([settings, fingerprint(*self._code[job.rule]), *inputs], sort_keys=True, default=dict)
            self._digests[job] = hashlib.sha256(text.encode()).hexdigest()[:16]
        return self._digests[job]

    def expected(self, files: Iterable[str]) -> dict[str, str]:
        """Return the digest that each file must carry, of those that carry one."""
        return {str(file): self.digest(self.makers[file]) for file in files if file in self.makers}

    def stale_files(self, files: Iterable[str]) -> list[str]:
        """Return the existing tables with another digest, and those that are not readable; an empty one was touched."""
        stale_files = []
        for file, digest in self.expected(filter(os.path.exists, files)).items():
            try:
                is_stale = tables.read_metadata(file).get("digest") != digest
            except UserError:
                is_stale = os.path.getsize(file) > 0
            stale_files += [file] if is_stale else []
        return stale_files

    def _files(self, job: Job) -> list[str]:
        """Return the inputs of a job, in the order in which its rule states them."""
        read = [file(job) if callable(file) else file for file in getattr(self._rules, job.rule).input]
        return list(chain.from_iterable([file] if isinstance(file, str) else file for file in read))
