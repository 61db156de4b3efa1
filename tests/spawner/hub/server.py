"""Stands for a notebook server: answers everything with the variables it was started with, and `/exit/3` by ending with that code."""

from __future__ import annotations

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(dict(os.environ)).encode()
        self.send_response(200)
        self.send_header("X-JupyterHub-Version", "6.1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if self.path.startswith("/exit/"):
            self.wfile.flush()
            os._exit(int(self.path.removeprefix("/exit/")))

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    url = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
    ThreadingHTTPServer((url.hostname or "", url.port or 8888), Handler).serve_forever()
