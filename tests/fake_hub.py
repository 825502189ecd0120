"""A Hugging Face hub of one's own, on this machine: the four kinds of request a download makes."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub(BaseHTTPRequestHandler):
    """Serves the folders in `server.repos` (id → folder, or the code of an error)."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.split("?")[0].removeprefix("/api/models").strip("/")
        owner, name, *rest = path.split("/")
        repo = self.server.repos.get(f"{owner}/{name}", "RepoNotFound")
        self.server.log.append(path)
        if isinstance(repo, str):
            self.refuse(repo)
        elif rest[:1] == ["resolve"]:
            self.answer((repo / rest[-1]).read_bytes())
        elif rest[:1] == ["tree"]:
            self.answer(json.dumps([entry(file) for file in sorted(repo.iterdir())]).encode())
        else:
            siblings = [{"rfilename": file.name} for file in sorted(repo.iterdir())]
            info = {"id": f"{owner}/{name}", "sha": COMMIT, "siblings": siblings}
            self.answer(json.dumps(info).encode())

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def refuse(self, code):
        self.send_response(403 if code == "GatedRepo" else 404)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def entry(file: Path):
    digest = hashlib.sha1(file.read_bytes()).hexdigest()
    return {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": digest}


@contextmanager
def fake_hub(repos):
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    server.repos, server.log = repos, []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
