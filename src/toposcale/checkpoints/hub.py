"""Checkpoints published on the Hugging Face Hub: the steps of a repository, and manifests that say where each one is."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from toposcale.checkpoints import hub_download
from toposcale.checkpoints.hub_client import USUAL, HubUnreachableError, Limits, RevisionUnusableError
from toposcale.checkpoints.hub_download import fetch, find_duplicates, list_revisions, remove_weights
from toposcale.checkpoints.matrices import Sizes, count_parameters, stored_sizes
from toposcale.io.errors import LeftOutError, UserError
from toposcale.io.files import read_json
from toposcale.io.step_names import find_step, steps_by_name, wanted_steps

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class HubSource:
    """Checkpoints of one repository: the branches and tags whose names `pattern` matches (see `steps_by_name`).

    `wanted`: the steps that count, all where empty. `cache`: folder of the client's cache, its own default where None.
    """

    repo: str
    pattern: str
    wanted: tuple[int, ...] = ()
    cache: str | None = None
    limits: Limits = USUAL

    @cached_property
    def names(self) -> list[str]:
        """Branches and tags of the repository; those in the cache where the Hub is out of reach."""
        try:
            return list_revisions(self.repo, limits=self.limits)
        except HubUnreachableError as error:
            names = hub_download.cached_revisions(self.repo, self.cache)
            if not names:
                where = hub_download.cache_path(self.cache)
                raise HubUnreachableError(
                    f"{error}; no revision of it is in the cache {where} either"
                ) from error
            logger.warning("%s; going on with what is in the cache", error)
            return names

    @cached_property
    def revisions(self) -> dict[int, str]:
        """Revision by step, for every step of the repository."""
        return steps_by_name(self.pattern, self.names)

    def steps(self) -> list[int]:
        """Steps with a checkpoint, ascending."""
        return wanted_steps(self.wanted, self.revisions, self._where)

    def revision(self, step: int) -> str:
        """The revision of a step. RevisionUnusableError: there is none, though others are there."""
        revisions = self.revisions
        try:
            return find_step(step, revisions, self._where)
        except UserError as error:
            if not revisions:
                raise
            raise RevisionUnusableError(str(error)) from error

    def fetch(self, step: int) -> Path:
        """The folder of a step's checkpoint in the cache, whole and verified."""
        return fetch(self.repo, self.revision(step), cache=self.cache, limits=self.limits)

    def duplicates(self) -> dict[int, str]:
        """Steps that serve another revision's weights, with that revision: compared before anything is downloaded.

        Of equal steps one is taken for the real one: where they equal `main`, the last step of the repository, whose
        weights those are; else the first.
        """
        steps = [step for step in self.wanted if step in self.revisions] or self.steps()
        revisions = {self.revisions[step]: step for step in steps}
        final = self.revisions[max(self.revisions)]
        compared = dict.fromkeys([*revisions, *(["main"] if "main" in self.names else [])])
        found: dict[int, str] = {}
        for group in find_duplicates(self.repo, compared, limits=self.limits):
            real = group[0] if "main" not in group else final if final in group else "main"
            found |= {revisions[name]: real for name in group if name in revisions and name != real}
        return dict(sorted(found.items()))

    @property
    def _where(self) -> str:
        return f"{self.repo}: revisions {self.pattern}"


def source_of(settings: Mapping[str, Any], client: Mapping[str, Any]) -> HubSource:
    """The source behind an entry of `models:` (repo, revisions, steps) and the keys of `hub:` (cache, timeout)."""
    return HubSource(
        settings["repo"],
        settings["revisions"],
        tuple(settings.get("steps", ())),
        cache=client["cache"] or None,
        limits=Limits(timeout=client["timeout"]),
    )


# Manifests: where a fetched checkpoint is and how to get it again, or why there is nothing to read.


def write_manifest(
    path: str | Path, source: HubSource, step: int, *, duplicate_of: str | None = None
) -> Sizes | None:
    """Fetch a step and note its folder, and all that fetching it again takes, as JSON; how large it is.

    What cannot be used is noted with the reason, and what only repeats the weights of the revision `duplicate_of` is not
    fetched: then the size is None.
    """
    facts: dict[str, Any] = {
        "repo": source.repo,
        "revisions": source.pattern,
        "steps": [step],
        "cache": source.cache or "",
        "timeout": source.limits.timeout,
    }
    size = None
    try:
        if duplicate_of is None:
            folder = source.fetch(step)
            facts |= {"revision": source.revision(step), "folder": str(folder)}
            size = stored_sizes(folder)._replace(n_parameters=count_parameters(folder))
        else:
            facts["duplicate_of"] = duplicate_of
    except RevisionUnusableError as error:
        logger.warning("%s", error)
        facts["unusable"] = str(error)
    Path(path).write_text(json.dumps(facts) + "\n")
    return size


def read_manifest(path: str | Path) -> Path:
    """The folder of a checkpoint, every file checked; fetched again where one is damaged or no longer in the cache.

    UserError: it could not be used when it was fetched; LeftOutError: it was left out as a duplicate.
    """
    facts = read_json(path)
    if "unusable" in facts:
        raise UserError(facts["unusable"])
    if "duplicate_of" in facts:
        original = facts["duplicate_of"]
        raise LeftOutError(
            f"{facts['repo']}: step {facts['steps'][0]} serves the weights of {original}", original
        )
    folder = Path(facts["folder"])
    try:
        hub_download.check_digests(folder)
    except UserError:
        return source_of(facts, facts).fetch(facts["steps"][0])
    return folder


def readable(message: str, path: str | Path) -> str:
    """A message about a fetched checkpoint with its repository and revision in place of the folder in the cache."""
    facts = read_json(path)
    if "folder" not in facts:
        return message
    name = f"{facts['repo']}, revision {facts['revision']}"
    return message.replace(f"{facts['folder']}/", f"{name}: ").replace(facts["folder"], name)


def release_manifest(path: str | Path) -> None:
    """Remove the weights that a manifest points to from the cache."""
    facts = read_json(path)
    if "folder" in facts:
        remove_weights(facts["repo"], facts["revision"], cache=facts["cache"] or None)
