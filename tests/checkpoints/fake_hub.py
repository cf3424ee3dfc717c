"""A server that speaks as much of the hub's HTTP as loading and uploading of small files need."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar

Files = dict[str, bytes]


class Hub(ThreadingHTTPServer):
    """Repositories in memory: files by repository, "org/name" or "org/name@revision"."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.repositories: dict[str, Files] = {}
        self.asked: list[str] = []  # the files that were fetched
        self.tokens: set[str | None] = set()
        Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"
    routes: ClassVar[dict[str, str]] = {
        r"/api/models/([^/]+/[^/]+?)(?:/revision/([^/?]+))?": "about",
        r"/api/models/([^/]+/[^/]+)/tree/([^/?]+)": "tree",
        r"/([^/]+/[^/]+)/resolve/([^/]+)/([^?]+)": "file",
        r"/api/repos/create": "create",
        r"/api/models/([^/]+/[^/]+)/preupload/([^/?]+)": "preupload",
        r"/api/models/([^/]+/[^/]+)/commit/([^/?]+)": "commit",
        r"/api/validate-yaml": "validate",
    }

    def do_GET(self) -> None:
        self.server.tokens.add(self.headers.get("Authorization"))
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        path = self.path.partition("?")[0]
        for pattern, name in self.routes.items():
            if match := re.fullmatch(pattern, path):
                getattr(self, name)(body, *match.groups())
                return
        self.answer({"error": f"no {path}"}, 404)

    do_HEAD = do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None: ...

    def answer(self, content: Any, status: int = 200, **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for key, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def files(self, repository: str, revision: str | None) -> Files | None:
        """The files of a repository; a commit is named by the digest of both."""
        for name, files in self.server.repositories.items():
            if name.partition("@")[0] == repository and revision in (
                sha(name),
                name.partition("@")[2] or "main",
            ):
                return files
        self.answer({"error": "not found"}, 404, X_Error_Code="RepoNotFound")
        return None

    def about(self, body: bytes, repository: str, revision: str | None) -> None:
        if (files := self.files(repository, revision or "main")) is not None:
            name = f"{repository}@{revision}" if revision not in (None, "main") else repository
            siblings = [{"rfilename": path} for path in files]
            self.answer(
                {"id": repository, "sha": sha(name), "siblings": siblings, "tags": [], "private": False}
            )

    def tree(self, body: bytes, repository: str, revision: str) -> None:
        if (files := self.files(repository, revision)) is not None:
            entries = [
                {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for path, data in files.items()
            ]
            self.answer(entries)

    def file(self, body: bytes, repository: str, revision: str, path: str) -> None:
        if (files := self.files(repository, revision)) is not None:
            if self.command == "GET":
                self.server.asked.append(path)
            etag = hashlib.sha1(files[path]).hexdigest()
            self.answer(files[path], ETag=f'"{etag}"', X_Repo_Commit=revision)

    def create(self, body: bytes) -> None:
        wanted = json.loads(body)
        name = f"{wanted['organization']}/{wanted['name']}" if wanted.get("organization") else wanted["name"]
        if name.startswith("others/"):
            self.answer({"error": "forbidden"}, 403)
            return
        self.server.repositories.setdefault(name, {})
        self.answer({"url": f"{self.server.address}/{name}", "id": name, "name": name})

    def validate(self, body: bytes) -> None:
        self.answer({"errors": [], "warnings": []})

    def preupload(self, body: bytes, repository: str, revision: str) -> None:
        paths = [each["path"] for each in json.loads(body)["files"]]
        self.answer(
            {"files": [{"path": each, "uploadMode": "regular", "shouldIgnore": False} for each in paths]}
        )

    def commit(self, body: bytes, repository: str, revision: str) -> None:
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                content = base64.b64decode(entry["value"]["content"])
                self.server.repositories[repository][entry["value"]["path"]] = content
        address = f"{self.server.address}/{repository}/commit/{sha(repository)}"
        self.answer({"commitUrl": address, "commitOid": sha(repository), "success": True})


def sha(name: str) -> str:
    return hashlib.sha1(name.encode()).hexdigest()
