"""Checkpoints published on the Hugging Face Hub: what a repository has at which step, and a download of it.

huggingface_hub sends the requests, with its token only to the configured endpoint (HF_ENDPOINT), and its own retries.
"""

import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx2
from huggingface_hub import HfApi, errors

from toposcale.checkpoints.step_names import find_step, steps_by_name
from toposcale.io.errors import NO_ROOM, SharedError, UserError, is_shared, one_line
from toposcale.io.weight_files import choose_weight_files

# Files that a model needs besides its weights. Code (`*.py`) and pickles are never fetched.
_SMALL_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
)
_REPO = re.compile(r"(?!.*\.\.)[\w\-][\w.\-]*(/[\w\-][\w.\-]*)?")
_NOT_WRITABLE = (*NO_ROOM, errno.EACCES, errno.EROFS)
# What an error of the client, or of one that led to it, says; only a revision is a matter of one checkpoint.
_REASONS: dict[type[Exception], tuple[type[UserError], str]] = {
    errors.OfflineModeIsEnabled: (SharedError, "offline mode is on (HF_HUB_OFFLINE)"),
    errors.GatedRepoError: (SharedError, "gated; accept its terms on the Hub and log in (hf auth login)"),
    errors.RepositoryNotFoundError: (SharedError, "no such repository, or a private one (then: hf auth login)"),
    errors.RevisionNotFoundError: (UserError, "no such revision, or no longer"),
}


@dataclass(frozen=True)
class HubSource:
    """Checkpoints of one repository: the branches and tags whose names match `pattern` (see `steps_by_name`).

    Errors are UserErrors of one line with repository, revision and cause.
    """

    repo: str
    pattern: str

    def __post_init__(self) -> None:
        if not _REPO.fullmatch(self.repo):
            raise SharedError(f"{self.repo}: not a valid name; a repository is written owner/name")

    def names(self) -> list[str]:
        """Return the sorted branches and tags, without `neox-ckpt-*`, which hold optimiser states."""
        with self._errors(self.repo):
            references = self._api.list_repo_refs(self.repo)
        names = {reference.name for reference in (*references.branches, *references.tags)}
        return sorted(name for name in names if not name.startswith("neox-ckpt-"))

    def listing(self, steps: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Return what the repository has of each step, before any of it is downloaded.

        That is `revision`, `commit`, `files` (their sizes in bytes, of one format of weights), and in `repeats` the
        revision whose weights it serves, or None; of an unusable step, the reason in `unusable`. Of equal steps one is the
        original: if they equal `main`, the last step of the repository, otherwise the first.
        """
        names = self.names()
        try:
            revisions = steps_by_name(self.pattern, names)
        except UserError as error:
            raise SharedError(f"{self.repo}: revisions {error}") from error
        where = f"{self.repo}: revisions {self.pattern}"
        if not revisions:
            raise SharedError(f"{where}: no name matches this pattern; the names are {', '.join(names[:5])}")
        listed, by_weights = {}, dict[tuple[str, ...], list[str]]()
        for step in sorted(steps):
            try:
                revision = find_step(step, revisions, where)
                listed[step], digests = self._facts(revision)
                by_weights.setdefault(digests, []).append(revision)
            except UserError as error:
                if is_shared(error):
                    raise
                listed[step] = {"unusable": str(error)}
        last, main = revisions[max(revisions)], self._weights_of_main(names)
        for digests, equal in by_weights.items():
            original = equal[0] if digests != main else last if last in equal else "main"
            for facts in listed.values():
                if facts.get("revision") in equal and facts["revision"] != original:
                    facts["repeats"] = original
        return listed

    def fetch(self, facts: Mapping[str, Any], folder: Path, *, cache: str = "", keep: bool = False) -> None:
        """Put the files of a step of `listing` into an empty folder.

        What the cache (the client's own if empty) has is not downloaded. With `keep` the files stay there, and the folder
        has links to them.
        """
        needed = sum(facts["files"].values())
        with self._errors(f"{self.repo}, revision {facts['revision']}"):
            folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(folder).free
            if not keep and needed > free:
                raise OSError(errno.ENOSPC, f"{needed / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free")
            snapshot = self._api.snapshot_download(
                self.repo,
                revision=facts["commit"],
                allow_patterns=[*facts["files"]],
                cache_dir=cache or None,
                local_dir=None if keep else folder,
            )
            for name in facts["files"] if keep else ():
                (folder / name).symlink_to(Path(snapshot, name).absolute())

    def _facts(self, revision: str) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return what is listed of a revision, and the digests of its weights."""
        where = f"{self.repo}, revision {revision}"
        with self._errors(where):
            info = self._api.model_info(self.repo, revision=revision, files_metadata=True)
        siblings = {file.rfilename: file for file in info.siblings or ()}
        weights = choose_weight_files(siblings)
        if not weights:
            raise UserError(f"{where}: no weights in safetensors or .bin format there")
        names = [*weights, *(name for name in _SMALL_FILES if name in siblings)]
        sizes = {name: siblings[name].size or 0 for name in names}
        blobs = (siblings[name] for name in weights if not name.endswith(".json"))
        digests = (blob.lfs.sha256 if blob.lfs else blob.blob_id for blob in blobs)
        facts = {"revision": revision, "commit": info.sha, "files": sizes, "repeats": None}
        return facts, tuple(sorted(str(digest) for digest in digests))

    def _weights_of_main(self, names: Iterable[str]) -> tuple[str, ...]:
        try:
            return self._facts("main")[1] if "main" in names else ()
        except UserError as error:
            if is_shared(error):
                raise
            return ()

    @cached_property
    def _api(self) -> HfApi:
        return HfApi(endpoint=os.environ.get("HF_ENDPOINT"), library_name="toposcale")

    @contextmanager
    def _errors(self, subject: str) -> Iterator[None]:
        """Turn the errors of the client into one line about `subject`."""
        try:
            yield
        except (errors.HfHubHTTPError, httpx2.HTTPError, OSError, ValueError, KeyError, TypeError) as error:
            raise self._in_a_line(subject, error) from error

    def _in_a_line(self, subject: str, error: Exception) -> UserError:
        causes: list[BaseException] = [error]
        while cause := causes[-1].__cause__ or causes[-1].__context__:
            causes.append(cause)
        for kind, (line, reason) in _REASONS.items():
            if any(isinstance(cause, kind) for cause in causes):
                return line(f"{subject}: {reason}")
        for cause in causes:
            if isinstance(cause, OSError) and cause.errno in _NOT_WRITABLE:
                return SharedError(f"{subject}: cannot be written ({cause.strerror}); make room and run again")
            if isinstance(cause, errors.HfHubHTTPError):
                status = cause.response.status_code
                # A file that is refused is a matter of one checkpoint, a server that is down is not.
                kind_of_line = UserError if status in (401, 403, 404) and "revision" in subject else SharedError
                return kind_of_line(f"{subject}: the server answered {status} at {self._api.endpoint}")
        reason = one_line(causes[-1]) or type(causes[-1]).__name__
        return SharedError(f"{subject}: the download failed ({reason}) at {self._api.endpoint}")
