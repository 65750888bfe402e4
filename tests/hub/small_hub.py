"""A Hugging Face Hub on the loopback interface, as large as the client libraries need it, that can fail on demand."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors", ".bin")


@dataclass
class Repository:
    """Files by revision. `gated`: what is listed cannot be fetched. `past`: commits that are no revision's any more."""

    branches: dict[str, dict[str, bytes]] = field(default_factory=dict)
    tags: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: bool = False
    past: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def move(self, branch: str, files: dict[str, bytes], *, forget: bool = False) -> None:
        """A new commit of a branch; the one before stays, unless the history is rewritten (`forget`)."""
        before = self.branches[branch]
        if not forget:
            self.past[commit_of(branch, before)] = before
        self.branches[branch] = files

    def revisions(self) -> dict[str, dict[str, bytes]]:
        """Every branch and tag."""
        return {**self.branches, **self.tags}

    def find(self, name: str) -> tuple[str, dict[str, bytes]] | None:
        """Commit and files of a branch, a tag or a commit."""
        for revision, files in self.revisions().items():
            if name in (revision, commit_of(revision, files)):
                return commit_of(revision, files), files
        return (name, self.past[name]) if name in self.past else None


@dataclass
class Fault:
    """What goes wrong with requests whose method and path match.

    `kind`: a status (403, 404, 500); elsewhere: a redirection to another name of this machine; not-json: an answer of
    another kind; cut: the first half of a content. `times`: how many requests it hits, all of them where None.
    """

    kind: str
    path: str
    method: str = "GET"
    times: int | None = None

    def hits(self, method: str, path: str) -> bool:
        """Whether this request fails; counts it."""
        if method != self.method or self.path not in path or self.times == 0:
            return False
        if self.times is not None:
            self.times -= 1
        return True


@cache
def _sha256(content: bytes) -> str:
    """Asked for at every request; weights of true size take seconds."""
    return hashlib.sha256(content).hexdigest()


def commit_of(revision: str, files: Mapping[str, bytes]) -> str:
    """A commit of 40 digits that changes with the files."""
    state = hashlib.sha1(revision.encode())
    for name in sorted(files):
        state.update(name.encode() + bytes.fromhex(_sha256(files[name])))
    return state.hexdigest()


def digest_of(name: str, content: bytes) -> str:
    """sha256 of a large file, git object id of a small one: what a Hub gives as the ETag."""
    if name.endswith(LARGE):
        return _sha256(content)
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class SmallHub:
    """The server, with the repositories and faults that a test puts into it; `with SmallHub() as hub: hub.url`."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.tokens: dict[str, str | None] = {}  # who asked, by path
        self.watch: Callable[[str], None] = lambda path: None  # called before a path is served
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        """Address for HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def fetched(self, name: str) -> int:
        """How often the content of a file was asked for."""
        return sum(method == "GET" and path.endswith(f"/{name}") for method, path in self.requests)

    def __enter__(self) -> SmallHub:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: SmallHub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: the requests are recorded instead."""

    def _serve(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path))
        self.hub.tokens[path] = self.headers.get("Authorization")
        self.hub.watch(path)
        fault = next((fault for fault in self.hub.faults if fault.hits(self.command, path)), None)
        kind = fault.kind if fault else None
        if kind in ("403", "404", "500"):
            self._answer(int(kind), b"out of order", {})
        elif kind == "not-json":
            self._answer(200, b"<html>Please log in to the network</html>", {})
        elif path.startswith("/api/models/"):
            self._serve_information(path.removeprefix("/api/models/"))
        else:
            here = None if path.startswith("/cdn/") and kind == "elsewhere" else fault
            self._serve_file(path.removeprefix("/cdn").lstrip("/"), here)

    def _serve_information(self, path: str) -> None:
        name, _, revision = path.removesuffix("/refs").partition("/revision/")
        name, _, tree = name.partition("/tree/")
        repository = self.hub.repositories.get(name)
        if repository is None:
            self._refuse(404, "RepoNotFound")
        elif tree:
            if (found := repository.find(tree)) is None:
                return self._refuse(404, "RevisionNotFound")
            self._answer_json([_entry(key, content) for key, content in sorted(found[1].items())])
        elif path.endswith("/refs"):
            self._answer_json(
                {
                    kind: [
                        {"name": key, "ref": f"refs/{folder}/{key}", "targetCommit": commit_of(key, files)}
                        for key, files in revisions.items()
                    ]
                    for kind, folder, revisions in (
                        ("branches", "heads", repository.branches),
                        ("tags", "tags", repository.tags),
                        ("converts", "converts", {}),
                    )
                }
            )
        elif (found := repository.find(revision or "main")) is None:
            self._refuse(404, "RevisionNotFound")
        else:
            commit, files = found
            self._answer_json(
                {
                    "id": name,
                    "sha": commit,
                    "tags": [],
                    "siblings": [_sibling(key, content) for key, content in sorted(files.items())],
                }
            )

    def _serve_file(self, path: str, fault: Fault | None) -> None:
        name, _, rest = path.partition("/resolve/")
        repository = self.hub.repositories.get(name)
        revision, _, file = rest.partition("/")
        if repository is None:
            return self._refuse(404, "RepoNotFound")
        if repository.gated:
            return self._refuse(403, "GatedRepo")
        if (found := repository.find(revision)) is None:
            return self._refuse(404, "RevisionNotFound")
        commit, files = found
        if file not in files:
            return self._refuse(404, "EntryNotFound")
        content, status = files[file], 200
        headers = {
            "X-Repo-Commit": commit,
            "ETag": f'"{digest_of(file, content)}"',
            "X-Linked-Etag": f'"{digest_of(file, content)}"',
            "X-Linked-Size": str(len(content)),
        }
        if fault and fault.kind == "elsewhere":
            port = self.server.server_address[1]
            return self._answer(302, b"", headers | {"Location": f"http://localhost:{port}/cdn{self.path}"})
        if "Range" in self.headers:
            first = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
            content, status = content[first:], 206
        return self._answer(status, content, headers, fault)

    def _answer_json(self, data: object) -> None:
        self._answer(200, json.dumps(data).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, b"", {"X-Error-Code": code})

    def _answer(self, status: int, content: bytes, headers: Mapping[str, str], fault: Fault | None = None) -> None:
        is_cut = fault is not None and fault.kind == "cut"
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[: len(content) // 2] if is_cut else content)
        self.close_connection = self.close_connection or is_cut


def _sibling(name: str, content: bytes) -> dict[str, object]:
    entry: dict[str, object] = {
        "rfilename": name,
        "size": len(content),
        "blobId": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(),
    }
    if name.endswith(LARGE):
        entry["lfs"] = {"sha256": digest_of(name, content), "size": len(content), "pointerSize": 134}
    return entry


def _entry(name: str, content: bytes) -> dict[str, object]:
    """What a list of files says of one."""
    stated = _sibling(name, content)
    entry = {"type": "file", "path": name, "size": stated["size"], "oid": stated["blobId"]}
    return entry | ({"lfs": {**stated["lfs"], "oid": stated["lfs"]["sha256"]}} if "lfs" in stated else {})
