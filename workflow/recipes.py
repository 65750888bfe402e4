"""Recipes of the files of a rule: script, settings and inputs, and the digest of these that the files carry."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

from fingerprint import fingerprint
from producers import ALL
from toposcale.io import tables
from toposcale.io.errors import UserError


class Job(NamedTuple):
    """Wildcards of a job, with the interface of those of Snakemake."""

    model: str = ""
    checkpoints: str = ALL
    table: str = ""

    def get(self, name: str, default: str) -> str:
        """Return a wildcard, like `get` of the wildcards of Snakemake."""
        return str(getattr(self, name, default))


class Part(str):
    """Path of a file that carries a digest, with the name of its recipe and the job that makes it."""

    recipe: str
    job: Job

    def __new__(cls, file: str, recipe: str, job: Job) -> Self:
        """Return the part of a file."""
        part = super().__new__(cls, file)
        part.recipe, part.job = recipe, job
        return part

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Pickle the path alone: a script knows no recipes."""
        return str, (str(self),)


Input = str | Sequence[str]
"""Files that a job reads under one name: one, or a list; those that carry a digest are parts."""


class Recipe(NamedTuple):
    """Recipe of the files of a rule: its script, its settings, and what it reads.

    settings, reads: by name; a value, or a function of the wildcards that returns it. title, outputs, models: of a rule
    that is its recipe and no more, its message, its files, and the models of which it makes them, if any. is_local: whether
    that takes seconds. modules: those of the library that the script loads by name. of_model: the files of every checkpoint
    carry the digest of the work on all of them.
    """

    script: str
    settings: Mapping[str, Any]
    reads: Mapping[str, Input | Callable[[Any], Input]]
    title: str = ""
    outputs: Mapping[str, str] | None = None
    models: Iterable[str] = ()
    is_local: bool = True
    modules: Sequence[str] = ()
    of_model: bool = False


class Recipes:
    """The recipes of a run by name: input and params functions of their rules, and the digests of their files."""

    def __init__(self, recipes: Mapping[str, Recipe], contents: Mapping[str, str] | None = None) -> None:
        self._recipes = recipes
        # Hashes of the user's files, by their path.
        self._contents = contents or {}
        self._digests: dict[tuple[str, ...], str] = {}

    @property
    def rules(self) -> dict[str, Recipe]:
        """The recipes of the rules that are generated from them, by name."""
        return {name: recipe for name, recipe in self._recipes.items() if recipe.outputs}

    def inputs(self, name: str) -> Mapping[str, Input | Callable[[Any], Input]]:
        """Return the input, by name, of the rule of a recipe: files, or functions of the wildcards."""
        return self._recipes[name].reads

    def params(self, name: str) -> dict[str, Callable[[Job], Any]]:
        """Return the params functions, by name, of the rule of a recipe.

        digest: what its outputs carry. inputs: the digests that its inputs must carry, by file.
        """
        recipe = self._recipes[name]
        return {
            **{key: partial(_of_job, setting) for key, setting in recipe.settings.items()},
            "digest": lambda job: self.digest(name, job),
            "inputs": lambda job: self.expected_digests(_parts_of_job(recipe, job)),
        }

    def digest(self, name: str, job: Job) -> str:
        """Return the digest that the outputs of a job carry: of its settings, its code and the digests of its inputs.

        It does not depend on how the work on those inputs is cut into jobs.
        """
        recipe = self._recipes[name]
        if recipe.of_model:
            job = Job(job.model)
        key = (name, job.get("model", ""), job.get("checkpoints", ALL), job.get("table", ""))
        if key not in self._digests:
            settings = {key: _of_job(setting, job) for key, setting in recipe.settings.items()}
            inputs = self._digests_of_models(_parts_of_job(recipe, job))
            inputs += [self._contents[file] for file in _files_of_job(recipe, job) if file in self._contents]
            content = [settings, fingerprint(recipe.script, *recipe.modules), *inputs]
            text = json.dumps(content, sort_keys=True, default=dict)
            self._digests[key] = hashlib.sha256(text.encode()).hexdigest()[:16]
        return self._digests[key]

    def _digests_of_models(self, parts: Iterable[Part]) -> list[str]:
        """Return the digest of each kind of parts of each model, as if one job had done all of its checkpoints.

        A log that is gathered from parts of a training counts as the training's own.
        """
        producer_of_log = {"training_log": "training"}
        keys = dict.fromkeys((producer_of_log.get(part.recipe, part.recipe), part.job.model) for part in parts)
        return [self.digest(name, Job(model)) for name, model in keys]

    def expected_digests(self, parts: Iterable[Part]) -> dict[str, str]:
        """Return the digest that each part must carry, by file."""
        return {str(part): self.digest(part.recipe, part.job) for part in parts}

    def stale_files(self, parts: Iterable[Part]) -> list[str]:
        """Return the existing files with another digest, and those that are not readable; an empty one was touched."""
        stale_files = []
        for file, digest in self.expected_digests(part for part in parts if os.path.exists(part)).items():
            try:
                is_stale = tables.read_metadata(file).get("digest") != digest
            except UserError:
                is_stale = os.path.getsize(file) > 0
            stale_files += [file] if is_stale else []
        return stale_files


def _files_of_job(recipe: Recipe, job: Job) -> list[str]:
    """Return the inputs of a job."""
    reads = (_of_job(read, job) for read in recipe.reads.values())
    return [file for read in reads for file in ([read] if isinstance(read, str) else read)]


def _parts_of_job(recipe: Recipe, job: Job) -> list[Part]:
    """Return the inputs of a job that carry a digest."""
    return [file for file in _files_of_job(recipe, job) if isinstance(file, Part)]


def _of_job(value: Any, job: Job) -> Any:
    """Return the value for a job of a setting or an input."""
    return value(job) if callable(value) else value
