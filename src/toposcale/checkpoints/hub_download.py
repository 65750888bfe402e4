"""Files of a revision on the Hugging Face Hub: listed, fetched whole and verified, kept in the client's cache, removed."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import constants, hf_hub_download, hf_hub_url

from toposcale.checkpoints.hub_client import (
    USUAL,
    HubUnreachableError,
    Limits,
    RevisionUnusableError,
    api,
    ask,
    download,
    endpoint,
)
from toposcale.checkpoints.matrices import choose_weight_files, weight_files
from toposcale.io.errors import UserError

logger = logging.getLogger(__name__)

# What a model needs beside its weights. Code (`*.py`) and pickles are never fetched.
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
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REVISION = re.compile(r"(?!.*\.\.)(?!/)[\w.\-/]+")


@dataclass(frozen=True)
class RemoteFile:
    """A file of one commit. `sha256` for files in large-file storage; the others have `blob_id`, their git object id."""

    name: str
    size: int
    blob_id: str
    sha256: str | None

    @property
    def digest(self) -> str:
        """What the content is checked against."""
        return self.sha256 or self.blob_id


@dataclass(frozen=True)
class Listing:
    """A revision: its commit and the files there that are of use, weights in one format."""

    repo: str
    revision: str
    commit: str
    weights: tuple[RemoteFile, ...]
    others: tuple[RemoteFile, ...]


# What there is.


def list_revisions(repo: str, *, limits: Limits = USUAL) -> list[str]:
    """Names of the branches and tags of a repository, sorted; `neox-ckpt-*` hold optimiser states and are left out."""
    references = ask(repo, None, limits, lambda: api().list_repo_refs(repo))
    names = {reference.name for reference in [*references.branches, *references.tags]}
    return sorted(name for name in names if not name.startswith("neox-ckpt-"))


def list_files(repo: str, revision: str, *, limits: Limits = USUAL) -> Listing:
    """Commit, weight files and small files of a revision, with sizes and digests. UserError: it holds no weights."""
    _check_revision(repo, revision)

    def describe() -> Listing:
        info = api().model_info(repo, revision=revision, files_metadata=True, timeout=limits.timeout)
        if info.sha is None or not _COMMIT.fullmatch(info.sha):
            raise ValueError(f"the commit is {info.sha!r}")
        files = {entry.rfilename: _remote_file(entry) for entry in info.siblings or []}
        weights = tuple(files[name] for name in choose_weight_files(files))
        others = tuple(files[name] for name in _SMALL_FILES if name in files)
        return Listing(repo, revision, info.sha, weights, others)

    listing = ask(repo, revision, limits, describe)
    if not listing.weights:
        raise RevisionUnusableError(
            f"{repo}, revision {revision}: no weights in safetensors or .bin format there"
        )
    return listing


def find_duplicates(repo: str, revisions: Iterable[str], *, limits: Limits = USUAL) -> list[tuple[str, ...]]:
    """Groups of two or more revisions whose weight files have the same digests; one small call a revision."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for revision in revisions:
        try:
            listing = list_files(repo, revision, limits=limits)
        except RevisionUnusableError:
            continue
        shards = sorted(file.digest for file in listing.weights if not file.name.endswith(".json"))
        groups.setdefault(tuple(shards), []).append(revision)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def _remote_file(entry: Any) -> RemoteFile:
    sha256 = entry.lfs.sha256 if entry.lfs else None
    if entry.size is None or entry.blob_id is None:
        raise UserError(
            f"{endpoint()} does not state the size and the checksum of {entry.rfilename} (blobs=true); "
            "use a mirror that does, or download the files yourself and use kind: folder"
        )
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise ValueError(f"the checksum of {entry.rfilename} is {sha256!r}")
    return RemoteFile(entry.rfilename, int(entry.size), str(entry.blob_id), sha256)


# Fetching and removing.


def fetch(repo: str, revision: str, *, cache: str | None = None, limits: Limits = USUAL) -> Path:
    """The folder of a revision in the client's cache, its files whole: size and digest of each are checked.

    What is there already is kept, what is damaged is fetched again. Where the Hub is out of reach, or offline mode is
    on, the cached files are checked and used. UserError: one line with repository, revision and cause.
    """
    try:
        listing = list_files(repo, revision, limits=limits)
    except HubUnreachableError as error:
        folder = _cached_folder(repo, revision, cache)
        if folder is None:
            raise HubUnreachableError(
                f"{error}; it is not in the cache {cache_path(cache)} either"
            ) from error
        logger.warning("%s; going on with what is in the cache", error)
        if not (folder / "config.json").is_file():
            raise UserError(
                f"{folder}: config.json is missing from the cache; run once with the network"
            ) from error
        check_digests(folder)
        return folder
    for file in (*listing.others, *listing.weights):
        _fetch_file(listing, file, cache, limits)
    folder = _repository_folder(repo, cache) / "snapshots" / listing.commit
    _remember(repo, revision, listing.commit, cache)
    try:
        weight_files(folder)
    except UserError as error:
        told = str(error).replace(f"{folder}/", "")
        raise RevisionUnusableError(f"{repo}, revision {revision}: {told}") from error
    return folder


def remove_weights(repo: str, revision: str, *, cache: str | None = None) -> None:
    """Remove the weights of a revision from the cache, but for files that another revision shares.

    Configuration and tokenizer stay: they are small and shared by the revisions.
    """
    folder = _cached_folder(repo, revision, cache)
    if folder is None:
        return
    for name in choose_weight_files(entry.name for entry in folder.iterdir()):
        link = folder / name
        content = link.resolve()
        link.unlink()
        if not content.is_file():
            continue
        others = folder.parent.glob(f"*/{name}")
        if content != link and not any(other.resolve() == content for other in others):
            content.unlink()


def _fetch_file(listing: Listing, file: RemoteFile, cache: str | None, limits: Limits) -> Path:
    """One file of a commit, from the cache or the Hub, its content checked; fetched once more where it is damaged."""
    for _ in range(2):
        if file.sha256:
            _fetch_content(listing, file, cache, limits)
        path = Path(
            ask(
                listing.repo,
                listing.revision,
                limits,
                lambda: hf_hub_download(
                    listing.repo,
                    file.name,
                    revision=listing.commit,
                    cache_dir=cache_path(cache),
                    endpoint=endpoint(),
                    etag_timeout=limits.timeout,
                ),
            )
        )
        if path.stat().st_size == file.size and _digest(path, file.digest) == file.digest:
            return path
        logger.warning("%s: damaged in the cache, fetched again", path)
        path.resolve().unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    raise RevisionUnusableError(
        f"{listing.repo}, revision {listing.revision}: {file.name} does not have the content that the Hub states "
        f"(sha256 or git id {file.digest}), even when fetched again"
    )


def _fetch_content(listing: Listing, file: RemoteFile, cache: str | None, limits: Limits) -> None:
    """A large file to where the client library keeps contents and finds them, going on from what an earlier run got."""
    content = _repository_folder(listing.repo, cache) / "blobs" / file.digest
    if content.exists():
        return
    content.parent.mkdir(parents=True, exist_ok=True)
    part = content.with_name(f"{content.name}.part")
    url = hf_hub_url(listing.repo, file.name, revision=listing.commit, endpoint=endpoint())

    def size() -> int:
        return part.stat().st_size if part.exists() else 0

    def go_on() -> None:
        if size() != file.size:
            download(url, part)
        if size() < file.size:
            raise OSError(f"{file.name} ended early")

    # Two revisions may have the same content, and two jobs fetch it.
    with part.with_suffix(".lock").open("w") as lock:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not content.exists():
            if size() > file.size:
                part.unlink()
            ask(listing.repo, listing.revision, limits, go_on, progress=size)
            part.replace(content)


def _digest(path: Path, like: str) -> str:
    """Hex digest of a file, of the kind of `like`: sha256 (64 digits) or git object id (40 digits)."""
    state = hashlib.sha256() if len(like) == 64 else hashlib.sha1(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            state.update(block)
    return state.hexdigest()


# The cache, in the layout of the client library: refs/{revision} holds a commit, snapshots/{commit}/ links to blobs/.


def cache_path(cache: str | None) -> Path:
    """The folder of the client's cache."""
    return Path(cache or constants.HF_HUB_CACHE).expanduser().resolve()


def _repository_folder(repo: str, cache: str | None) -> Path:
    return cache_path(cache) / f"models--{repo.replace('/', '--')}"


def cached_revisions(repo: str, cache: str | None) -> list[str]:
    """Names of the revisions of a repository that are in the cache, sorted."""
    references = _repository_folder(repo, cache) / "refs"
    return sorted(str(path.relative_to(references)) for path in references.rglob("*") if path.is_file())


def _cached_folder(repo: str, revision: str, cache: str | None) -> Path | None:
    _check_revision(repo, revision)
    base = _repository_folder(repo, cache)
    try:
        folder = base / "snapshots" / (base / "refs" / revision).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return folder if folder.is_dir() else None


def _remember(repo: str, revision: str, commit: str, cache: str | None) -> None:
    """Note which commit a revision is, so that it is found without the network."""
    reference = _repository_folder(repo, cache) / "refs" / revision
    reference.parent.mkdir(parents=True, exist_ok=True)
    temporary = reference.with_name(f".{reference.name}.{os.getpid()}.tmp")
    temporary.write_text(commit, encoding="ascii")
    temporary.replace(reference)


def check_digests(folder: Path) -> None:
    """Check cached files against the digests that are the names of what they link to."""
    small = [folder / name for name in _SMALL_FILES if (folder / name).is_file()]
    for path in [*small, *weight_files(folder)]:
        stated = path.resolve().name
        if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", stated) and _digest(path, stated) != stated:
            raise UserError(f"{path}: damaged in the cache; delete it and run with the network")


def _check_revision(repo: str, revision: str) -> None:
    if not _REVISION.fullmatch(revision):
        raise UserError(f"{repo}: {revision!r} is not the name of a revision")
