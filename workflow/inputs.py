"""What jobs read, are set by and ask for: input, params and resource functions of the wildcards of a job.

A rule that takes seconds or needs the network is a `localrule`: it runs where Snakemake runs, not on a node of a cluster.
"""

import errno
import json
from collections.abc import Callable, Iterable
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any, Protocol

from paths import each
from plan import ALL, Plan, span_of, step_of
from toposcale import checkpoints
from toposcale.checkpoints import Sizes
from toposcale.io import lm_eval, model_kinds
from toposcale.io.errors import UserError
from toposcale.monitor.folder import Folder


class Wildcards(Protocol):
    """The wildcards of a job: those that its rule has of these."""

    model: str
    span: str
    source: str

    def get(self, name: str, default: str) -> str:
        """Return a wildcard, or a default where the rule does not have it."""


class Inputs:
    """The functions of the rules of a run, and the files that its rules read from elsewhere.

    Raises `UserError` for a text or results of lm-evaluation-harness that are configured and not there.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.paths = plan.paths
        self.corpus = {key: _corpus_files(key, plan.config["corpus"][key]) for key in ("train", "validation")}
        self.harness = _harness_files(plan.config["metrics"]["harness"])
        # Of one model of the run a few diagrams are compared with those of ripser: of one that is trained here where there
        # is one, else of one in a folder, else of a published one.
        checked = [
            self.paths.ripser_check.format(model=name, span=span_of(plan.models[name].steps[-1]))
            for kind in (model_kinds.GPT, model_kinds.FOLDER, model_kinds.HUB)
            for name in plan.named(kind)
        ]
        self.ripser_checks = checked[:1] if "topology" in plan.config["weights"]["features"] else []

    def weights(self, model: str, step: int) -> str:
        """Return what holds the weights of a checkpoint: our file, the user's file or folder, or a download's manifest."""
        if self.plan.models[model].kind == model_kinds.FOLDER:
            return self.plan.models[model].settings["checkpoints"][step]
        pattern = self.paths.manifest if model in self.plan.published else self.paths.checkpoint
        return pattern.format(model=model, span=span_of(step))

    def steps(self, source: str = "") -> Callable[[Wildcards], list[int]]:
        """Return a params function: the checkpoints that a job on a source, or on that of the wildcard, does."""
        return lambda wildcards: self.plan.work[source or wildcards.source].steps_of(
            wildcards.model, wildcards.get("span", ALL)
        )

    def checkpoints(self, source: str) -> Callable[[Wildcards], list[str]]:
        """Return an input function: the weights of the checkpoints that a job on a source does."""
        steps = self.steps(source)
        return lambda wildcards: [self.weights(wildcards.model, step) for step in steps(wildcards)]

    def previous(self, pattern: str) -> Callable[[Wildcards], str | list[str]]:
        """Return an input function: the file of the checkpoint before; nothing for a model's first one."""

        # One file is a path for its script, and a list of one is a list.
        def files(wildcards: Wildcards) -> str | list[str]:
            step = self.plan.models[wildcards.model].previous_step(step_of(wildcards.span))
            return [] if step is None else pattern.format(model=wildcards.model, span=span_of(step))

        return files

    def settings(self, *keys: str) -> Callable[[Wildcards], dict[str, Any]]:
        """Return a params function: those of some keys that the entry of `models:` behind a model has."""

        def present(wildcards: Wildcards) -> dict[str, Any]:
            entry = self.plan.models[wildcards.model].settings
            return {key: entry[key] for key in keys if key in entry}

        return present

    def tokenizer(self, wildcards: Wildcards) -> list[str]:
        """Return the user's folder with the tokenizer, in a list, since Snakemake looks for wildcards in a text."""
        folder = self.plan.models[wildcards.model].settings.get("tokenizer")
        return [folder] if folder else []

    def from_elsewhere(self, wildcards: Wildcards) -> bool:
        """Return whether the checkpoints of a model come from elsewhere: a damaged one cannot be made again."""
        return wildcards.model not in self.plan.trained

    def state_of_files(self, source: str) -> Callable[[Wildcards], str]:
        """Return a params function: the state of the files of a user's own checkpoints.

        The time of a folder stays when a file in it is replaced, and Snakemake does not compare params made of `input`.
        """
        files = self.checkpoints(source)

        def state(wildcards: Wildcards) -> str:
            is_folder = self.plan.models[wildcards.model].kind == model_kinds.FOLDER
            return checkpoints.state_of_files(files(wildcards)) if is_folder else ""

        return state

    def consumers(self, wildcards: Wildcards) -> list[str]:
        """Return everything that reads the weights of a checkpoint."""
        job = {"model": wildcards.model, "span": wildcards.span}
        step = step_of(wildcards.span)
        sources = [source for source in self.plan.sources if step in self.plan.work[source].steps.get(job["model"], ())]
        checks = [check for check in self.ripser_checks if check == self.paths.ripser_check.format(**job)]
        return [self.paths.features.format(source=source, **job) for source in sources] + checks

    def monitored(self, kind: str, models: Iterable[str]) -> list[str]:
        """Return the files of one kind that live monitors have written so far."""
        folders = [Folder(Path(self.plan.models[model].settings["path"]), model) for model in models]
        return [str(path) for folder in folders for path in folder.files(kind).values()]

    def so_far(self, model: str) -> dict[str, list[str]]:
        """Return what tells how far a model has come, by kind: files that are there, or will be."""
        published = [model] if model in self.plan.published else []

        def of(source: str, pattern: str) -> list[str]:
            work = self.plan.work[source]
            return work.files(pattern, [model] if model in work.steps else [], source=source)

        monitored = [model] if model in self.plan.monitored else []
        whole_log = each(self.paths.model_log, self.plan.work["training"].whole & {model})
        metrics = of("training", self.paths.training_metrics) + of("embeddings", self.paths.embedding_metrics)
        steps = () if published else self.plan.models[model].steps
        return {
            "training": whole_log + of("training", self.paths.training_log) + self.monitored("training", monitored),
            "metrics": metrics + self.monitored("metrics/monitor", monitored),
            # The weights of a published model may be gone again; its size was noted when they were fetched.
            "weights": [self.weights(model, step) for step in steps],
            "sizes": of("weights", self.paths.size) if published else [],
        }

    def noted(self, model: str, span: str) -> dict[str, Any]:
        """Return what the last attempt to fetch a checkpoint noted: sizes, commit, and the number of damaged downloads."""
        try:
            return json.loads(Path(self.paths.size.format(model=model, span=span)).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # `--touch` leaves an empty file
            return {}

    def sizes(self, wildcards: Wildcards) -> Sizes:
        """Return the sizes of a checkpoint from elsewhere; zeros where they are tiny or not usable.

        Raises FileNotFoundError where it was not fetched yet: Snakemake asks again when it was.
        """
        model, span = wildcards.model, wildcards.span
        if self.plan.models[model].kind == model_kinds.FOLDER:
            return _stored_sizes(self.weights(model, self.plan.models[model].steps[-1]))
        if model not in self.plan.published:
            return Sizes(0, 0, 0)
        if not Path(self.paths.size.format(model=model, span=span)).exists():
            manifest = self.paths.manifest.format(model=model, span=span)
            raise FileNotFoundError(errno.ENOENT, "not fetched yet", manifest)
        facts = self.noted(model, span)
        return Sizes(*(facts.get(name) or 0 for name in Sizes._fields))

    def by_size(
        self, base: int, per_weight: float = 0.0, per_matrix: float = 0.0
    ) -> Callable[[Wildcards, Any, int], int]:
        """Return a resource: `base` for a tiny checkpoint, more for each million weights or largest matrix's entries."""

        def resource(wildcards: Wildcards, input: Any, attempt: int) -> int:
            sizes = self.sizes(wildcards)
            more = per_weight * sizes.n_parameters + per_matrix * sizes.largest_matrix
            return int(base + more / 1e6) * attempt

        return resource


def on_attempt(amount: int) -> Callable[[Wildcards, int], int]:
    """Return a resource: an amount at the first attempt, as much again at every further one (`retries` of a profile)."""
    return lambda wildcards, attempt: amount * attempt


_stored_sizes = cache(checkpoints.stored_sizes)
"""The checkpoints of a folder are of one shape, so that the last one tells the sizes of all."""


def _corpus_files(key: str, patterns: Iterable[str]) -> list[str]:
    """Return the user's files behind corpus.train or corpus.validation, in the order of the list, each glob sorted."""
    files = []
    for pattern in patterns:
        matched = sorted(path for path in glob(pattern, recursive=True) if Path(path).is_file())
        if not matched and Path(pattern).is_file():
            matched = [pattern]  # a name with brackets or stars in it
        if not matched:
            raise UserError(f"config key corpus.{key}: no file matches {pattern!r}")
        files += matched
    if braced := [path for path in files if set(path) & set("{}")]:
        raise UserError(
            f"config key corpus.{key}: {braced[0]!r} has a brace in its name, which Snakemake takes for a wildcard"
        )
    return files


def _harness_files(where: str) -> list[str]:
    """Return the results of lm-evaluation-harness that are there now: with new ones the metrics are gathered again."""
    files = [str(path) for path in lm_eval.result_files(where)] if where else []
    if where and not files:
        raise UserError(f"config key metrics.harness: {where}: no JSON file of lm-evaluation-harness is there")
    return files
