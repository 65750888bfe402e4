"""Checkpoints published on the Hugging Face Hub: list the steps of a repository, download and verify them.

They are kept in the cache of the client library, in its layout: refs/{revision} holds a commit, and snapshots/{commit}/
links to blobs/{digest}.
"""

import hashlib
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from huggingface_hub import constants, is_offline_mode

from toposcale.checkpoints.hub_client import HubUnreachableError, WrongLengthError, endpoint, get, get_json
from toposcale.checkpoints.step_names import find_step, steps_by_name
from toposcale.io.errors import DownloadError, SharedError, UserError, is_shared
from toposcale.io.files import locked, write_text
from toposcale.io.weight_files import choose_weight_files, weight_files

logger = logging.getLogger(__name__)

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
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REPO = re.compile(r"(?!.*\.\.)[\w\-][\w.\-]*(/[\w\-][\w.\-]*)?")
_REVISION = re.compile(r"(?!.*\.\.)(?!/)[\w.\-/]+")


class RemoteFile(NamedTuple):
    """File of one commit; `digest` is the SHA-256 of a file in large-file storage, otherwise the git object id."""

    name: str
    size: int
    digest: str


class Listing(NamedTuple):
    """Commit of a revision, its weight files in one format, and the other files that a model needs."""

    commit: str
    weights: tuple[RemoteFile, ...]
    others: tuple[RemoteFile, ...]


@dataclass(frozen=True)
class HubSource:
    """Checkpoints of one repository: the branches and tags whose names match `pattern` (see `steps_by_name`).

    `cache` is the folder of the client's cache (None: its default), `timeout` the seconds without data after which an
    attempt ends. Errors are UserErrors of one line with repository, revision and cause.
    """

    repo: str
    pattern: str
    cache: str | None = None
    timeout: float = 20.0

    def __post_init__(self) -> None:
        if not _REPO.fullmatch(self.repo):
            raise SharedError(f"{self.repo}: not a valid name; a repository is written owner/name")

    def names(self) -> list[str]:
        """Return the sorted branches and tags, without `neox-ckpt-*`, which hold optimiser states."""

        def parse(references: Any) -> set[str]:
            return {str(entry["name"]) for kind in ("branches", "tags") for entry in references[kind]}

        try:
            names = get_json(self.repo, f"api/models/{self.repo}/refs", parse, timeout=self.timeout)
        except DownloadError as error:  # of the repository, not of one checkpoint
            raise SharedError(str(error)) from error
        return sorted(name for name in names if not name.startswith("neox-ckpt-"))

    def revisions(self) -> dict[int, str]:
        """Return the revisions by step; raise SharedError if the pattern gives two of them one step."""
        return self._by_step(self.names())

    def revision(self, step: int) -> str:
        """Return the revision of a step, from the names in the cache if the Hub is unreachable.

        Raise UserError if only other steps exist, and SharedError if none exists.
        """
        try:
            revisions = self.revisions()
        except HubUnreachableError as error:
            revisions = self._by_step(self._cached_names())
            if step not in revisions:
                raise HubUnreachableError(f"{error}; step {step} is not in the cache {self.folder} either") from error
        try:
            return find_step(step, revisions, f"{self.repo}: revisions {self.pattern}")
        except UserError as error:
            if revisions:
                raise
            raise SharedError(str(error)) from error

    def listing(self, revision: str, commit: str = "") -> Listing:
        """Return the files of a revision, or of an earlier `commit` of it; raise UserError if it has no weights."""
        if not _REVISION.fullmatch(revision):
            raise UserError(f"{self.repo}: {revision!r} is not a valid name of a revision")

        def parse(info: Any) -> Listing:
            if not _COMMIT.fullmatch(info["sha"]):
                raise ValueError(f"the commit is {info['sha']!r}")
            files = {entry["rfilename"]: entry for entry in info["siblings"]}
            revision_name = self.named(revision)
            weights = tuple(_remote_file(revision_name, files[name]) for name in choose_weight_files(files))
            others = tuple(_remote_file(revision_name, files[name]) for name in _SMALL_FILES if name in files)
            return Listing(info["sha"], weights, others)

        path = f"api/models/{self.repo}/revision/{quote(commit or revision, safe='')}?blobs=true"
        try:
            listing = get_json(self.named(revision), path, parse, timeout=self.timeout)
        except UserError as error:
            if not commit or is_shared(error):
                raise
            raise UserError(
                f"{self.named(revision)}: it was commit {commit} before, which the Hub no longer has"
            ) from error
        if not listing.weights:
            raise UserError(f"{self.named(revision)}: no weights in safetensors or .bin format there")
        return listing

    def duplicates(self, steps: Iterable[int]) -> dict[int, str]:
        """Return the steps that serve the weights of another revision, and that revision, compared before any download.

        Of equal steps one is the original: if they equal `main`, the last step of the repository, otherwise the first.
        In offline mode the revisions in the cache are compared. Raise HubUnreachableError if that is impossible.
        """
        names = self._cached_names() if is_offline_mode() else self.names()
        revisions = self._by_step(names)
        chosen = {revisions[step]: step for step in steps if step in revisions}
        final = revisions[max(revisions)] if revisions else ""
        groups: dict[tuple[str, ...], list[str]] = {}
        for name in dict.fromkeys([*chosen, *(["main"] if "main" in names else [])]):
            try:
                groups.setdefault(self._weight_digests(name), []).append(name)
            except UserError as error:
                if is_shared(error):
                    raise
        repeats: dict[int, str] = {}
        for group in groups.values():
            real = group[0] if "main" not in group else final if final in group else "main"
            repeats |= {chosen[name]: real for name in group if name in chosen and name != real}
        return dict(sorted(repeats.items()))

    def _weight_digests(self, revision: str) -> tuple[str, ...]:
        if is_offline_mode() and (folder := self._cached_folder(revision)):
            return tuple(sorted(path.resolve().name for path in weight_files(folder)))
        files = self.listing(revision).weights
        return tuple(sorted(file.digest for file in files if not file.name.endswith(".json")))

    def fetch(self, revision: str, commit: str = "") -> Path:
        """Return the folder of a revision in the cache, with size and digest of every file verified.

        Existing files are kept, and damaged ones fetched again. If the Hub is unreachable or offline mode is on, the cached
        files are verified and used. With a `commit` that one is fetched, even if the revision has moved on.
        """
        try:
            listing = self.listing(revision, commit)
        except HubUnreachableError as error:
            folder = self._cached_folder(revision, commit)
            try:
                if folder is None or not (folder / "config.json").is_file():
                    raise UserError(f"the cache {self.folder} does not hold all of it either")
                check_digests(folder)
            except UserError as damage:
                raise HubUnreachableError(f"{error}; {damage}") from error
            logger.warning("%s; going on with what is in the cache", error)
            return folder
        for file in (*listing.others, *listing.weights):
            self._fetch_file(revision, listing.commit, file)
        write_text(self.folder / "refs" / revision, listing.commit)
        return self.folder / "snapshots" / listing.commit

    def holds(self, revision: str) -> bool:
        """Return whether the cache has every file of a revision; if the Hub is unreachable, whether it has the revision."""
        try:
            commit, *files = self.listing(revision)
        except HubUnreachableError:
            return self._cached_folder(revision) is not None
        folder = self.folder / "snapshots" / str(commit)
        return all((folder / file.name).is_file() for part in files for file in part)

    def _fetch_file(self, revision: str, commit: str, file: RemoteFile) -> None:
        """Put one file of a commit into the cache and verify it; fetch it once more if it is damaged."""
        content = self.folder / "blobs" / file.digest
        link = self.folder / "snapshots" / commit / file.name
        link.parent.mkdir(parents=True, exist_ok=True)
        # Two jobs may fetch the same content, of two revisions.
        with locked(content.with_suffix(".lock")):
            for _ in range(2):
                if not link.exists():
                    if not content.exists():
                        path = f"{self.repo}/resolve/{commit}/{file.name}"
                        _download(self.named(revision), path, file.size, content, self.timeout)
                    _link(link, content)
                if link.stat().st_size == file.size and _digest(link, file.digest) == file.digest:
                    return
                logger.warning("%s: not what the Hub states, fetched again", link)
                link.resolve().unlink()
                link.unlink(missing_ok=True)
        raise DownloadError(
            f"{self.named(revision)}: {file.name} does not have the content that the Hub states "
            f"(sha256 or git id {file.digest}), even when fetched again"
        )

    @property
    def folder(self) -> Path:
        """Folder of this repository in the cache."""
        cache = Path(self.cache or constants.HF_HUB_CACHE).expanduser().resolve()
        return cache / f"models--{self.repo.replace('/', '--')}"

    def named(self, revision: str) -> str:
        """Return the name of a revision for messages."""
        return f"{self.repo}, revision {revision}"

    def _by_step(self, names: Iterable[str]) -> dict[int, str]:
        try:
            return steps_by_name(self.pattern, names)
        except UserError as error:
            raise SharedError(f"{self.repo}: revisions {error}") from error

    def _cached_names(self) -> list[str]:
        references = self.folder / "refs"
        return sorted(str(path.relative_to(references)) for path in references.rglob("*") if path.is_file())

    def _cached_folder(self, revision: str, commit: str = "") -> Path | None:
        with suppress(OSError, ValueError):
            commit = commit or (self.folder / "refs" / revision).read_text(encoding="ascii").strip()
            folder = self.folder / "snapshots" / commit
            return folder if folder.is_dir() else None
        return None


def check_digests(folder: Path) -> None:
    """Verify cached files by the digests that name their blobs; raise UserError if one is damaged."""
    small = [folder / name for name in _SMALL_FILES if (folder / name).is_file()]
    for path in [*small, *weight_files(folder)]:
        stated = path.resolve().name
        if _DIGEST.fullmatch(stated) and _digest(path, stated) != stated:
            raise UserError(f"{path}: damaged in the cache; run with network access to fetch it again")


def _download(name: str, path: str, size: int, content: Path, timeout: float) -> None:
    """Download a file, resuming what an earlier attempt or run has received."""
    part, file_name = content.with_suffix(".part"), path.rpartition("/")[2]
    part.touch()
    if part.stat().st_size > size:
        os.truncate(part, 0)

    def receive(status: int, blocks: Iterator[bytes]) -> None:
        with part.open("ab") as stream:
            n_left = size - stream.tell()
            if status != 206:  # the server sends everything again
                stream.truncate(0)
                n_left = size
            for block in blocks:  # written at once, so that an interruption loses nothing
                if len(block) > n_left:
                    stream.truncate(0)
                    raise WrongLengthError(f"{file_name} is longer than the {size} bytes that the Hub states")
                n_left -= stream.write(block)
                stream.flush()
        if n_left:
            raise WrongLengthError(f"{file_name} ends after {size - n_left} of the {size} bytes that the Hub states")

    if part.stat().st_size < size:
        get(name, path, receive, timeout=timeout, size=size, received=lambda: part.stat().st_size)
    part.replace(content)


def _remote_file(revision_name: str, entry: Mapping[str, Any]) -> RemoteFile:
    name, size, digest = entry["rfilename"], entry.get("size"), entry.get("blobId")
    if size is None or digest is None:
        raise SharedError(
            f"{endpoint()} does not state the size and the checksum of {name} (blobs=true); "
            "use a mirror that does, or download the files yourself and use kind: folder"
        )
    if large := entry.get("lfs"):
        digest = large.get("sha256") if isinstance(large, Mapping) else large
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise DownloadError(f"{revision_name}: the Hub states {digest!r} as the checksum of {name}")
    if not isinstance(size, int) or size < 0:
        raise DownloadError(f"{revision_name}: the Hub states {size!r} as the size of {name}")
    return RemoteFile(name, size, digest)


def _link(link: Path, content: Path) -> None:
    link.unlink(missing_ok=True)
    try:
        link.symlink_to(os.path.relpath(content, link.parent))
    except OSError:  # of a file system without links
        content.replace(link)


def _digest(path: Path, like: str) -> str:
    """Return the hex digest of a file, of the kind of `like`: SHA-256 (64 digits) or git object id (40 digits)."""
    kind = hashlib.sha256 if len(like) == 64 else lambda: hashlib.sha1(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, kind).hexdigest()
