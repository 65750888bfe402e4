"""Manifests: JSON files that say where a published checkpoint is and how to get it again, or why it cannot be read."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toposcale.checkpoints.hub import HubSource, check_digests
from toposcale.checkpoints.hub_client import RevisionUnusableError
from toposcale.checkpoints.matrices import Sizes, count_parameters, stored_sizes
from toposcale.io.errors import LeftOutError, UserError
from toposcale.io.files import read_json

logger = logging.getLogger(__name__)


def source_of(settings: Mapping[str, Any], client: Mapping[str, Any]) -> HubSource:
    """The source behind an entry of `models:` (repo, revisions) and the keys of `hub:` (cache, timeout)."""
    return HubSource(settings["repo"], settings["revisions"], client["cache"] or None, client["timeout"])


def write_manifest(
    path: str | Path, source: HubSource, step: int, *, duplicate_of: str | None = None
) -> Sizes | None:
    """Fetch a step and note its folder, and all that fetching it again takes, as JSON; how large it is.

    What cannot be used is noted with the reason, and what only repeats the weights of the revision `duplicate_of` is not
    fetched: then the size is None.
    """
    facts: dict[str, Any] = {"repo": source.repo, "revisions": source.pattern, "step": step}
    facts |= {"cache": source.cache or "", "timeout": source.timeout}
    sizes = None
    try:
        if duplicate_of is None:
            revision = source.revision(step)
            folder = source.fetch(revision)
            sizes = _sizes(folder, source.named(revision))
            facts |= {"revision": revision, "commit": folder.name, "folder": str(folder)}
        else:
            facts["duplicate_of"] = duplicate_of
    except RevisionUnusableError as error:
        logger.warning("%s", error)
        facts["unusable"] = str(error)
    Path(path).write_text(json.dumps(facts) + "\n", encoding="utf-8")
    return sizes


def read_manifest(path: str | Path) -> Path:
    """The folder of a checkpoint, every file checked; fetched again where one is damaged or no longer in the cache.

    It is fetched again as the commit that it was: features of two commits do not belong to one checkpoint.
    UserError: it could not be used when it was fetched; LeftOutError: it was left out as a duplicate;
    HubUnreachableError: it is damaged, and cannot be fetched now.
    """
    facts = read_json(path)
    if "unusable" in facts:
        raise UserError(facts["unusable"])
    if "duplicate_of" in facts:
        original = facts["duplicate_of"]
        raise LeftOutError(
            f"{facts['repo']}: step {facts['step']} serves the weights of {original}", original
        )
    folder = Path(facts["folder"])
    try:
        check_digests(folder)
    except UserError as damage:
        logger.warning("%s", damage)
        return source_of(facts, facts).fetch(facts["revision"], facts["commit"])
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
        source_of(facts, facts).remove_weights(facts["revision"], facts["commit"])


def _sizes(folder: Path, name: str) -> Sizes:
    """How large a checkpoint is. RevisionUnusableError: its weights are damaged, or more than tensors."""
    try:
        return stored_sizes(folder)._replace(n_parameters=count_parameters(folder))
    except UserError as error:
        told = str(error).replace(f"{folder}/", "").replace(str(folder), "")
        raise RevisionUnusableError(f"{name}: {told}") from error
