"""Manifests: JSON files with the location and origin of a published checkpoint, or the reason why it is unusable."""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from toposcale.checkpoints.hub import HubSource, check_digests
from toposcale.checkpoints.hub_client import HubUnreachableError
from toposcale.checkpoints.matrices import Sizes, stored_sizes
from toposcale.io.errors import DownloadError, LeftOutError, UserError, is_shared, reason_of
from toposcale.io.files import locked, read_json, read_noted, write_text
from toposcale.io.weight_files import count_parameters

logger = logging.getLogger(__name__)


def source_of(settings: Mapping[str, Any], client: Mapping[str, Any]) -> HubSource:
    """Return the source of an entry of `models:` (repo, revisions), with the keys of `hub:` (cache, timeout)."""
    return HubSource(settings["repo"], settings["revisions"], client["cache"] or None, client["timeout"])


def duplicates(path: str | Path, source: HubSource, steps: Sequence[int], since: float) -> dict[int, str]:
    """Return the steps that repeat another revision, by step, and note them in `path` for all jobs of a run.

    They are compared once per run, which began at the time `since`: a revision may have been fixed, or may repeat another
    one by now. If the Hub is unreachable, the last comparison counts; without one HubUnreachableError is raised.
    """
    with locked(f"{path}.lock"):
        request = {"repo": source.repo, "revisions": source.pattern, "steps": sorted(steps)}
        record = read_noted(path)
        compared_before = {key: record.get(key) for key in request} == request
        if not compared_before or record["compared"] < since:
            try:
                repeats = source.duplicates(steps)
            except HubUnreachableError as error:
                if not compared_before:
                    raise
                logger.warning("%s; the last comparison counts", error)
            else:
                record = request | {"compared": time.time(), "duplicates": {str(key): repeats[key] for key in repeats}}
                write_text(path, json.dumps(record) + "\n")
    return {int(step): revision for step, revision in record["duplicates"].items()}


def write_manifest(
    path: str | Path,
    source: HubSource,
    step: int,
    *,
    repeats: str | None = None,
    leave_out: bool = True,
    own_cache: str | Path = "",
    before: Mapping[str, Any] | None = None,
    attempt: int = 0,
) -> dict[str, Any]:
    """Fetch a step, and write and return its folder, its sizes, and what is needed to fetch it again.

    An unusable checkpoint is recorded with the reason; one that repeats the weights of the revision `repeats` is not
    fetched if `leave_out`. `own_cache`: cache for what the cache of the source does not have. `before`: manifest of the
    last attempt; if the commit differs, both are recorded. `attempt`: its number, incremented in the manifest after a
    damaged download.
    """
    commit_before = (before or {}).get("commit", "")
    facts: dict[str, Any] = {"repo": source.repo, "revisions": source.pattern, "step": step, "repeats": repeats}
    facts |= {"timeout": source.timeout, "commit": commit_before, "attempt": attempt}
    facts |= dict.fromkeys(Sizes._fields)
    try:
        if repeats is not None and leave_out:
            facts["duplicate_of"] = repeats
        else:
            revision = source.revision(step)
            if own_cache and not source.holds(revision):
                source = replace(source, cache=str(own_cache))
            folder = source.fetch(revision)
            facts |= {"cache": source.cache or ""} | _sizes(folder, source.named(revision))._asdict()
            facts |= {"revision": revision, "commit": folder.name, "folder": str(folder)}
            if commit_before not in ("", folder.name):
                facts["commit_before"] = commit_before
    except BaseException as error:
        if is_shared(error):
            raise
        logger.warning("%s", reason_of(error))
        facts["unusable"] = reason_of(error)
        facts["attempt"] += isinstance(error, DownloadError)
    write_text(path, json.dumps(facts) + "\n")
    return facts


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


def _sizes(folder: Path, name: str) -> Sizes:
    """Return the sizes of a checkpoint; raise UserError if its weights are damaged or not plain tensors."""
    try:
        return stored_sizes(folder)._replace(n_parameters=count_parameters(folder))
    except BaseException as error:
        if is_shared(error):
            raise
        reason = reason_of(error).replace(f"{folder}/", "").replace(str(folder), "")
        raise UserError(f"{name}: {reason}") from error
