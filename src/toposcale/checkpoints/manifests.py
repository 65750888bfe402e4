"""Manifests: JSON files with the location and origin of a published checkpoint, or the reason why it is unusable."""

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
    """Result of a download: sizes (None if the checkpoint is unusable or a duplicate), commit, damage."""

    sizes: Sizes | None
    commit: str = ""
    damaged: bool = False


def source_of(settings: Mapping[str, Any], client: Mapping[str, Any]) -> HubSource:
    """Return the source of an entry of `models:` (repo, revisions), with the keys of `hub:` (cache, timeout)."""
    return HubSource(settings["repo"], settings["revisions"], client["cache"] or None, client["timeout"])


def write_manifest(
    path: str | Path, source: HubSource, step: int, *, duplicate_of: str | None = None, commit_before: str = ""
) -> Fetched:
    """Fetch a step and write its folder, and what is needed to fetch it again, as JSON.

    An unusable checkpoint is recorded with the reason; one that repeats the weights of the revision `duplicate_of` is not
    fetched. If the commit differs from `commit_before`, that of the last download, both are recorded.
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
    """Return the folder of a checkpoint with verified files, fetching it again if they are damaged or not in the cache.

    The same commit is fetched, since features of two commits do not belong to one checkpoint. Raise UserError if it was
    unusable when fetched, LeftOutError for a duplicate, and HubUnreachableError if it is damaged and cannot be fetched now.
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
    """Remove the weights of a manifest from the cache."""
    facts = read_json(path)
    if "folder" in facts:
        source_of(facts, facts).remove_weights(facts["revision"], facts["commit"])


def _sizes(folder: Path, name: str) -> Sizes:
    """Return the sizes of a checkpoint; raise UserError if its weights are damaged or not plain tensors."""
    try:
        return stored_sizes(folder)._replace(n_parameters=count_parameters(folder))
    except BaseException as error:
        if is_shared(error):
            raise
        reason = reason_of(error).replace(f"{folder}/", "").replace(str(folder), "")
        raise UserError(f"{name}: {reason}") from error
