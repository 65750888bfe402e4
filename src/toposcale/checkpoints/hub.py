"""Checkpoints published on the Hugging Face Hub: what revisions there are, and whole, verified files of one of them."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from huggingface_hub import constants, hf_hub_download

from toposcale.checkpoints.hub_client import HubUnreachableError, Limits, api, ask, endpoint
from toposcale.checkpoints.matrices import choose_weight_files, weight_files
from toposcale.io.errors import UserError
from toposcale.io.files import read_json
from toposcale.io.step_names import find_step, steps_by_name, wanted_steps

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


@dataclass(frozen=True)
class HubSource:
    """Checkpoints of one repository: the branches and tags whose names `pattern` matches (see `steps_by_name`).

    `wanted`: the steps that count, all where empty. `cache`: folder of the client's cache, its own default where None.
    `keep`: whether `release` leaves the weights in the cache.
    """

    repo: str
    pattern: str
    wanted: tuple[int, ...] = ()
    cache: str | None = None
    keep: bool = True
    limits: Limits = field(default_factory=Limits)

    @cached_property
    def names(self) -> list[str]:
        """Branches and tags of the repository; those in the cache where the Hub is out of reach."""
        try:
            return list_revisions(self.repo, limits=self.limits)
        except HubUnreachableError as error:
            names = _cached_revisions(self.repo, self.cache)
            if not names:
                where = _cache_path(self.cache)
                raise HubUnreachableError(
                    f"{error}; no revision of it is in the cache {where} either"
                ) from error
            _warn_unreachable(error)
            return names

    @cached_property
    def revisions(self) -> dict[int, str]:
        """Revision by step, for every step of the repository."""
        return steps_by_name(self.pattern, self.names)

    def steps(self) -> list[int]:
        """Steps with a checkpoint, ascending."""
        return wanted_steps(self.wanted, self.revisions, self._where)

    def fetch(self, step: int) -> Path:
        """The folder of a step's checkpoint in the cache, whole and verified."""
        revision = find_step(step, self.revisions, self._where)
        return fetch(self.repo, revision, cache=self.cache, limits=self.limits)

    def release(self, step: int) -> None:
        """Remove a step's weights from the cache, unless `keep`."""
        if not self.keep and step in self.revisions:
            remove_weights(self.repo, self.revisions[step], cache=self.cache)

    def duplicates(self) -> dict[int, str]:
        """Steps that serve another revision's weights, with that revision: compared before anything is downloaded.

        Of equal steps one is taken for the real one: where they equal `main`, the last step of the repository, whose
        weights those are; else the first.
        """
        steps = self.steps()
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
    """The source behind an entry of `models:` (repo, revisions, steps) and the keys of `hub:` (cache, keep, timeout)."""
    return HubSource(
        settings["repo"],
        settings["revisions"],
        tuple(settings.get("steps", ())),
        cache=client["cache"] or None,
        keep=client["keep"],
        limits=Limits(timeout=client["timeout"]),
    )


# Manifests: where a fetched checkpoint is, and how to get it again.


def write_manifest(path: str | Path, source: HubSource, step: int) -> None:
    """Fetch a step and note its folder, and all that fetching it again takes, as JSON."""
    folder = source.fetch(step)
    facts = {
        "repo": source.repo,
        "revisions": source.pattern,
        "steps": [step],
        "cache": source.cache or "",
        "timeout": source.limits.timeout,
        "folder": str(folder),
    }
    Path(path).write_text(json.dumps(facts) + "\n")


def read_manifest(path: str | Path) -> Path:
    """The folder of a checkpoint, every file checked; fetched again where one is damaged or no longer in the cache."""
    facts = read_json(path)
    folder = Path(facts["folder"])
    try:
        _check_digests(folder)
    except UserError:
        return _source_of_manifest(facts).fetch(facts["steps"][0])
    return folder


def release_manifest(path: str | Path) -> None:
    """Remove the weights that a manifest points to from the cache."""
    facts = read_json(path)
    _source_of_manifest(facts).release(facts["steps"][0])


def _source_of_manifest(facts: Mapping[str, Any]) -> HubSource:
    return source_of(facts, {**facts, "keep": False})


# What there is.


def list_revisions(repo: str, *, limits: Limits | None = None) -> list[str]:
    """Names of the branches and tags of a repository, sorted; `neox-ckpt-*` hold optimiser states and are left out."""
    limits = limits or Limits()
    references = ask(repo, None, limits, lambda: api().list_repo_refs(repo))
    names = {reference.name for reference in [*references.branches, *references.tags]}
    return sorted(name for name in names if not name.startswith("neox-ckpt-"))


def list_files(repo: str, revision: str, *, limits: Limits | None = None) -> Listing:
    """Commit, weight files and small files of a revision, with sizes and digests. UserError: it holds no weights."""
    limits = limits or Limits()
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
        raise UserError(f"{repo}, revision {revision}: no weights in safetensors or .bin format there")
    return listing


def find_duplicates(
    repo: str, revisions: Iterable[str], *, limits: Limits | None = None
) -> list[tuple[str, ...]]:
    """Groups of two or more revisions whose weight files have the same digests; one small call a revision."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for revision in revisions:
        listing = list_files(repo, revision, limits=limits)
        shards = sorted(file.digest for file in listing.weights if not file.name.endswith(".json"))
        groups.setdefault(tuple(shards), []).append(revision)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def _remote_file(entry: Any) -> RemoteFile:
    sha256 = entry.lfs.sha256 if entry.lfs else None
    return RemoteFile(entry.rfilename, int(entry.size), str(entry.blob_id), sha256)


# Fetching and removing.


def fetch(repo: str, revision: str, *, cache: str | None = None, limits: Limits | None = None) -> Path:
    """The folder of a revision in the client's cache, its files whole: size and digest of each are checked.

    What is there already is kept, what is damaged is fetched again. Where the Hub is out of reach, or offline mode is
    on, the cached files are checked and used. UserError: one line with repository, revision and cause.
    """
    limits = limits or Limits()
    try:
        listing = list_files(repo, revision, limits=limits)
    except HubUnreachableError as error:
        folder = _cached_folder(repo, revision, cache)
        if folder is None:
            raise HubUnreachableError(
                f"{error}; it is not in the cache {_cache_path(cache)} either"
            ) from error
        _warn_unreachable(error)
        _check_cached_files(folder)
        return folder
    for file in (*listing.others, *listing.weights):
        _fetch_file(listing, file, cache, limits)
    folder = _repository_folder(repo, cache) / "snapshots" / listing.commit
    _remember(repo, revision, listing.commit, cache)
    weight_files(folder)
    return folder


def remove_weights(repo: str, revision: str, *, cache: str | None = None) -> int:
    """Remove the weights of a revision from the cache, but for files that another revision shares: bytes freed.

    Configuration and tokenizer stay: they are small and shared by the revisions.
    """
    folder = _cached_folder(repo, revision, cache)
    if folder is None:
        return 0
    freed = 0
    for name in choose_weight_files(entry.name for entry in folder.iterdir()):
        link = folder / name
        content = link.resolve()
        link.unlink()
        if not content.is_file():
            continue
        others = folder.parent.glob(f"*/{name}")
        if content != link and not any(other.resolve() == content for other in others):
            freed += content.stat().st_size
            content.unlink()
    return freed


def _fetch_file(listing: Listing, file: RemoteFile, cache: str | None, limits: Limits) -> Path:
    """One file of a commit, from the cache or the Hub, its content checked; fetched once more where it is damaged."""
    for _ in range(2):
        path = Path(
            ask(
                listing.repo,
                listing.revision,
                limits,
                lambda: hf_hub_download(
                    listing.repo,
                    file.name,
                    revision=listing.commit,
                    cache_dir=_cache_path(cache),
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
    raise UserError(
        f"{listing.repo}, revision {listing.revision}: {file.name} does not have the content that the Hub states "
        f"(sha256 or git id {file.digest}), even when fetched again"
    )


def _digest(path: Path, like: str) -> str:
    """Hex digest of a file, of the kind of `like`: sha256 (64 digits) or git object id (40 digits)."""
    state = hashlib.sha256() if len(like) == 64 else hashlib.sha1(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            state.update(block)
    return state.hexdigest()


# The cache, in the layout of the client library: refs/{revision} holds a commit, snapshots/{commit}/ links to blobs/.


def _cache_path(cache: str | None) -> Path:
    return Path(cache or constants.HF_HUB_CACHE).expanduser().resolve()


def _repository_folder(repo: str, cache: str | None) -> Path:
    return _cache_path(cache) / f"models--{repo.replace('/', '--')}"


def _cached_revisions(repo: str, cache: str | None) -> list[str]:
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


def _check_cached_files(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: config.json is missing from the cache; run once with the network")
    _check_digests(folder)


def _check_digests(folder: Path) -> None:
    """Check cached files against the digests that are the names of what they link to."""
    small = [folder / name for name in _SMALL_FILES if (folder / name).is_file()]
    for path in [*small, *weight_files(folder)]:
        stated = path.resolve().name
        if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", stated) and _digest(path, stated) != stated:
            raise UserError(f"{path}: damaged in the cache; delete it and run with the network")


def _check_revision(repo: str, revision: str) -> None:
    if not _REVISION.fullmatch(revision):
        raise UserError(f"{repo}: {revision!r} is not the name of a revision")


def _warn_unreachable(error: Exception) -> None:
    logger.warning("%s; going on with what is in the cache", error)
