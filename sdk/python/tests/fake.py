"""A server that the tests tell what to answer."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, Iterator, List, Tuple

Answer = Tuple[int, Dict[str, str], bytes]


class Fake:
    """An HTTP server that answers what it is told and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: List[Answer] = []
        self.asked: List[Tuple[str, str, bytes]] = []
        self.headers: List[Dict[str, str]] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fake.asked.append((self.command, self.path, body))
                fake.headers.append(dict(self.headers))
                status, headers, content = fake.answers.pop(0) if len(fake.answers) > 1 else fake.answers[0]
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = answer

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def get_request(self) -> Any:
                fake.connections += 1
                return super().get_request()

        self.connections = 0
        self.http = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def json(self, value: Any, status: int = 200, **headers: str) -> None:
        self.answers.append((status, {"Content-Type": "application/json", **headers}, json.dumps(value).encode()))

    def error(self, code: str, status: int, **more: Any) -> None:
        headers = {"Retry-After": more.pop("retry_after")} if "retry_after" in more else {}
        self.json({"error": {"code": code, "message": "it failed", **more}}, status, **headers)


@contextmanager
def serving() -> Iterator[Fake]:
    server = Fake()
    thread = threading.Thread(target=server.http.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        thread.join()
        server.http.server_close()
