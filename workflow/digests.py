"""Digests of the files of a run: of the settings, the code and the inputs of the rule that makes each of them.

The settings of a rule are its params, and its inputs those that the rule states; both are read of the rule itself. So a
file tells by its digest whether it was made as this run would make it, whatever its time and the records of Snakemake say.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, Self

from fingerprint import fingerprint
from producers import ALL
from toposcale.io import tables
from toposcale.io.errors import UserError

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
    jobs: of each rule with wildcards whose files carry a digest.
    contents: hashes of the user's files.
    """

    def __init__(self, rules: Any, jobs: Mapping[str, Iterable[Job]], contents: Mapping[str, str]) -> None:
        self._rules, self._jobs, self._contents = rules, jobs, contents
        self._code: dict[str, tuple[str, ...]] = {}
        self._digests: dict[Job, str] = {}

    @cached_property
    def makers(self) -> dict[str, Job]:
        """The job that makes each file which carries a digest, by the outputs of its rule; asked for when all are known."""
        return {
            file.format(**job._asdict()): job
            for rule in self._code
            for job in self._jobs.get(rule, [Job(rule)])
            for file in getattr(self._rules, rule).output
            if file.endswith(WITH_DIGEST)
        }

    @property
    def kept(self) -> list[str]:
        """Files of the models, of which one that is missing is made again; nobody keeps the state of an optimiser."""
        return [file for file, job in self.makers.items() if job.model and "/optimisers/" not in file]

    def params(self, rule: str, script: str, *modules: str) -> dict[str, Callable[[Any], Any]]:
        """Return the params functions of a rule with a script, which loads `modules` by name.

        digest: what its outputs carry. inputs: the digests that its inputs must carry, by file.
        """
        self._code[rule] = (script, *modules)
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
