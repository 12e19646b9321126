"""A server on this machine that speaks the Hugging Face hub's protocol, as far as models are looked up and fetched.

Repositories are dictionaries of files. A large file has a SHA-256 (`lfs`), a small one git's SHA-1. `resolve` redirects
large files to another path, as the hub does, and answers ranges.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

LARGE_FROM = 4096
COMMIT = "a" * 40
BLOCK = 1 << 14


@dataclass
class LocalHub:
    """The server's repositories and what goes wrong. `requests`: (method, path, range) of files that were asked for."""

    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    token: str = ""
    breaks: list[int] = field(default_factory=list)
    """Bytes after which each of the next transfers of large files breaks."""
    holds_after: int = 0
    """Bytes after which a transfer waits for `released`."""
    held: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    has_ranges: bool = True
    large_at: str = ""
    """The root of the server that large files are sent to, else this one."""
    left_out: tuple[str, ...] = ()
    """Fields of a repository, or of its files, that are not said."""
    authorizations: list[str | None] = field(default_factory=list)
    """Of all requests."""
    forged: dict[str, bytes] = field(default_factory=dict)
    """Contents that are sent instead of those that the repository describes, by path."""
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    url: str = ""

    @contextmanager
    def running(self) -> Iterator[LocalHub]:
        hub = self

        class Handler(_Handler):
            served = hub

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.released.set()
            server.shutdown()
            server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: LocalHub

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""

    def _answer(self) -> None:
        self.served.authorizations.append(self.headers.get("Authorization"))
        path = unquote(urlsplit(self.path).path)
        if found := re.fullmatch(r"/api/models/(.+?)(?:/revision/(.+))?", path):
            self._describe(found[1], found[2] or "main")
        elif found := re.fullmatch(r"/(.+?/.+?)/resolve/([^/]+)/(.+)", path):
            self._resolve(found[1], found[2], found[3])
        elif found := re.fullmatch(r"/large/(.+?/.+?)/(.+)", path):
            self._send_file(found[1], found[2])
        else:
            self._refuse(404, "", "nothing here")

    def _may(self, repository: str, revision: str) -> bool:
        hub = self.served
        has_token = self.headers.get("Authorization") == f"Bearer {hub.token}" and bool(hub.token)
        if repository not in hub.repositories:
            self._refuse(401, "RepoNotFound", "Repository not found")
        elif repository in hub.gated and not has_token:
            self._refuse(403, "GatedRepo", "Access to this model is restricted")
        elif revision not in ("main", COMMIT):
            self._refuse(404, "RevisionNotFound", "Invalid rev id")
        else:
            return True
        return False

    def _describe(self, repository: str, revision: str) -> None:
        if not self._may(repository, revision):
            return
        siblings = [_sibling(path, data) for path, data in self.served.repositories[repository].items()]
        info = {"id": repository, "modelId": repository, "sha": COMMIT, "private": False, "tags": [], "downloads": 0}
        for said in (info, *siblings):
            for name in self.served.left_out:
                said.pop(name, None)
        self._send_json(info | {"siblings": siblings, "cardData": {"license": "mit"}})

    def _resolve(self, repository: str, revision: str, path: str) -> None:
        if not self._may(repository, revision):
            return
        data = self.served.repositories[repository].get(path)
        if data is None:
            self._refuse(404, "EntryNotFound", "Entry not found")
        elif len(data) < LARGE_FROM:
            self._send_file(repository, path)
        else:
            self.send_response(302)
            self.send_header("Location", f"{self.served.large_at or self.served.url}/large/{repository}/{path}")
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("X-Linked-Size", str(len(data)))
            self.send_header("X-Linked-Etag", f'"{hashlib.sha256(data).hexdigest()}"')
            self.send_header("Content-Length", "0")
            self.end_headers()

    def _send_file(self, repository: str, path: str) -> None:
        hub = self.served
        described = hub.repositories[repository][path]
        data = hub.forged.get(path, described)
        asked = self.headers.get("Range", "") if hub.has_ranges else ""
        if self.command == "GET":
            hub.requests.append((self.command, path, asked))
        start = int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0
        self.send_response(206 if asked else 200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{_etag(described)}"')
        self.send_header("Content-Length", str(len(data) - start))
        self.send_header("Accept-Ranges", "bytes")
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        if self.command == "HEAD":
            return
        breaks_at = hub.breaks.pop(0) if hub.breaks and len(data) >= LARGE_FROM else len(data)
        for first in range(start, len(data), BLOCK):
            sent = first - start
            if sent >= breaks_at:
                self.close_connection = True
                self.connection.close()
                return
            if hub.holds_after and sent >= hub.holds_after:
                hub.held.set()
                hub.released.wait()
            try:
                self.wfile.write(data[first : first + BLOCK])
            except OSError:
                return

    def _refuse(self, status: int, code: str, message: str) -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send_json(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _etag(data: bytes) -> str:
    if len(data) >= LARGE_FROM:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _sibling(path: str, data: bytes) -> dict[str, object]:
    git = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    sibling: dict[str, object] = {"rfilename": path, "size": len(data), "blobId": git}
    if len(data) >= LARGE_FROM:
        sibling["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return sibling
