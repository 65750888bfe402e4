"""A Hugging Face Hub on the loopback interface, as large as the client libraries need it, that can fail on demand."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors", ".bin")


@dataclass
class Repository:
    """Files by revision. `gated`: what is listed cannot be fetched. `past`: commits that are no revision's any more.

    `stated`: what is listed of files by name, other than it is.
    """

    branches: dict[str, dict[str, bytes]] = field(default_factory=dict)
    tags: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: bool = False
    past: dict[str, dict[str, bytes]] = field(default_factory=dict)
    stated: dict[str, dict[str, object]] = field(default_factory=dict)

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

    `kind`: a status (403, 404, 429 with `headers`, 500); elsewhere: a redirection to another name of this machine; stall:
    no answer; not-json, no-checksums: an answer of another kind. Of a content: cut (the first half), reset (the first
    half, then the connection is reset), halt (the first half, then silence), short (the first half, and the header says
    that this is all), long (seven bytes too many), wrong (the last byte), trickle (twenty pieces, `pause` seconds apart),
    drip (a byte every `pause` seconds). Without end: 103 (answers before the answer), endless (a body), endless 500 and
    endless 302 (a body of an error, of a redirection). gzip, gzip gzip, gzip 500: a body that inflates a thousandfold at
    each decoding.
    `times`: how many requests it hits, all of them where None.
    """

    kind: str
    path: str
    method: str = "GET"
    times: int | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: {"Retry-After": "3600"})
    pause: float = 0.1

    def hits(self, method: str, path: str) -> bool:
        """Whether this request fails; counts it."""
        if method != self.method or self.path not in path or self.times == 0:
            return False
        if self.times is not None:
            self.times -= 1
        return True


@cache
def bomb(times: int) -> bytes:
    """64 MB of a JSON list, compressed so many times."""
    content = b"[" + b" " * (1 << 26)
    for _ in range(times):
        content = gzip.compress(content)
    return content


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
        self.ranges: list[str] = []
        self.tokens: dict[str, str | None] = {}  # who asked, by path
        self.watch: Callable[[str], None] = lambda path: None  # called before a path is served
        self.closing = threading.Event()
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        # Stalled handlers are let go by `closing`, not waited for.
        self.server.block_on_close = False
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
        self.closing.set()
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
        if kind == "stall":
            self.hub.closing.wait()
            self.close_connection = True
        elif kind == "elsewhere" and not path.startswith("/cdn/"):
            port = self.server.server_address[1]
            self._answer(302, b"", {"Location": f"http://localhost:{port}/cdn{self.path}"})
        elif kind in ("403", "404", "500"):
            self._answer(int(kind), b"out of order", {})
        elif kind == "429":
            self._answer(429, b"slow down", fault.headers)
        elif kind == "not-json":
            self._answer(200, b"<html>Please log in to the network</html>", {})
        elif kind and kind.startswith("gzip"):
            codings = [word for word in kind.split() if word == "gzip"]
            with suppress(OSError):
                self._answer(
                    500 if "500" in kind else 200, bomb(len(codings)), {"Content-Encoding": ", ".join(codings)}
                )
            self.close_connection = True
        elif kind in ("103", "endless", "endless 500", "endless 302"):
            status = kind.removeprefix("endless").strip() or "200"
            head = f"HTTP/1.1 {status} Status\r\nLocation: {self.path}\r\nConnection: close\r\n\r\n"
            self.wfile.write(b"" if kind == "103" else head.encode())
            piece = b"HTTP/1.1 103 Early Hints\r\n\r\n" if kind == "103" else b"[" * (1 << 16)
            with suppress(OSError):
                while not self.hub.closing.wait(fault.pause):
                    self.wfile.write(piece)
            self.close_connection = True
        elif path.startswith("/api/models/"):
            self._serve_information(path.removeprefix("/api/models/"), plain=kind == "no-checksums")
        else:
            self._serve_file(path.removeprefix("/cdn").lstrip("/"), fault)

    def _serve_information(self, path: str, *, plain: bool = False) -> None:
        name, _, revision = path.removesuffix("/refs").partition("/revision/")
        repository = self.hub.repositories.get(name)
        if repository is None:
            self._refuse(404, "RepoNotFound")
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
                    "siblings": [
                        {"rfilename": key}
                        if plain
                        else _sibling(key, content) | repository.stated.get(f"{revision}/{key}", {})
                        for key, content in sorted(files.items())
                    ],
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
        if "Range" in self.headers:
            self.hub.ranges.append(self.headers["Range"])
            first = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
            content, status = content[first:], 206
        return self._answer(status, content, headers, fault)

    def _answer_json(self, data: object) -> None:
        self._answer(200, json.dumps(data).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, b"", {"X-Error-Code": code})

    def _answer(self, status: int, content: bytes, headers: Mapping[str, str], fault: Fault | None = None) -> None:
        kind = fault.kind if fault else None
        half = content[: len(content) // 2]
        sent = dict.fromkeys(("cut", "reset", "halt", "short"), half).get(kind, content)
        sent += b"7 bytes" if kind == "long" else b""
        sent = sent[:-1] + bytes([sent[-1] ^ 1]) if kind == "wrong" else sent
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(sent if kind in ("short", "long") else content)))
        self.end_headers()
        if self.command == "GET":
            pieces = {"trickle": 20, "drip": len(sent)}.get(kind, 1)
            size = -(-len(sent) // pieces) or 1
            for start in range(0, len(sent), size):
                self.wfile.write(sent[start : start + size])
                if kind in ("trickle", "drip") and self.hub.closing.wait(fault.pause):
                    break
        if kind == "halt":
            self.hub.closing.wait()
        if kind in ("cut", "reset", "halt"):
            self.close_connection = True
        if kind == "reset":
            self.hub.closing.wait(fault.pause)  # else what is on its way is lost, too
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())


def _sibling(name: str, content: bytes) -> dict[str, object]:
    entry: dict[str, object] = {
        "rfilename": name,
        "size": len(content),
        "blobId": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(),
    }
    if name.endswith(LARGE):
        entry["lfs"] = {"sha256": digest_of(name, content), "size": len(content), "pointerSize": 134}
    return entry
