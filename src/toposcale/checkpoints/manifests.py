"""Manifests: JSON files that say where a published checkpoint is and how to get it again, or why it cannot be read."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from toposcale.checkpoints.hub import HubSource, check_digests
from toposcale.checkpoints.matrices import Sizes, count_parameters, stored_sizes
from toposcale.io.errors import DownloadError, LeftOutError, UserError, is_shared, reason_of
from toposcale.io.files import read_json

logger = logging.getLogger(__name__)


class Fetched(NamedTuple):
    """A checkpoint's sizes (None: not usable, or a duplicate), its commit, and whether its download was damaged."""

    sizes: Sizes | None
    commit: str = ""
    damaged: bool = False


def source_of(settings: Mapping[str, Any], client: Mapping[str, Any]) -> HubSource:
    """The source behind an entry of `models:` (repo, revisions) and the keys of `hub:` (cache, timeout)."""
    return HubSource(settings["repo"], settings["revisions"], client["cache"] or None, client["timeout"])


def write_manifest(
    path: str | Path, source: HubSource, step: int, *, duplicate_of: str | None = None, commit_before: str = ""
) -> Fetched:
    """Fetch a step and note its folder, and all that fetching it again takes, as JSON.

    What cannot be used is noted with the reason, and what only repeats the weights of the revision `duplicate_of` is not
    fetched. commit_before: the commit that it was when it was last fetched; another one is noted as such.
    """
    facts: dict[str, Any] = {"repo": source.repo, "revisions": source.pattern, "step": step}
    facts |= {"cache": source.cache or "", "timeout": source.timeout}
    fetched = Fetched(None, commit_before)
    try:
        if duplicate_of is None:
            revision = source.revision(step)
            folder = source.fetch(revision)
            fetched = Fetched(_sizes(folder, source.named(revision)), folder.name)
            facts |= {"revision": revision, "commit": folder.name, "folder": str(folder)}
            if commit_before not in ("", folder.name):
                facts["commit_before"] = commit_before
        else:
            facts["duplicate_of"] = duplicate_of
    except BaseException as error:
        if is_shared(error):
            raise
        logger.warning("%s", reason_of(error))
        facts["unusable"] = reason_of(error)
        fetched = Fetched(None, commit_before, isinstance(error, DownloadError))
    Path(path).write_text(json.dumps(facts) + "\n", encoding="utf-8")
    return fetched


def read_manifest(path: str | Path) -> Path:
    """The folder of a checkpoint, every file checked; fetched again where one is damaged or no longer in the cache.

    It is fetched again as the commit that it was: features of two commits do not belong to one checkpoint. UserError: it
    could not be used when it was fetched; LeftOutError: a duplicate; HubUnreachableError: damaged, and not fetched now.
    """
    facts = read_json(path)
    if "unusable" in facts:
        raise UserError(facts["unusable"])
    if "duplicate_of" in facts:
        original = facts["duplicate_of"]
        raise LeftOutError(f"{facts['repo']}: step {facts['step']} serves the weights of {original}", original)
    folder = Path(facts["folder"])
    try:
        check_digests(folder)
    except UserError as damage:
        logger.warning("%s", damage)
        return source_of(facts, facts).fetch(facts["revision"], facts["commit"])
    return folder


def release_manifest(path: str | Path) -> None:
    """Remove the weights that a manifest points to from the cache."""
    facts = read_json(path)
    if "folder" in facts:
        source_of(facts, facts).remove_weights(facts["revision"], facts["commit"])


def _sizes(folder: Path, name: str) -> Sizes:
    """How large a checkpoint is. UserError: its weights are damaged, or more than tensors."""
    try:
        return stored_sizes(folder)._replace(n_parameters=count_parameters(folder))
    except BaseException as error:
        if is_shared(error):
            raise
        reason = reason_of(error).replace(f"{folder}/", "").replace(str(folder), "")
        raise UserError(f"{name}: {reason}") from error
