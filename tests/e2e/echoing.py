"""A careless gateway before a router: it logs what it is sent, and tells clients their own keys."""

from __future__ import annotations

import threading
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TELLING = ("authorization", "x-gateway")


class Gateway(ThreadingHTTPServer):
    """Passes requests on to `router`; those with the header `x-rude` are refused with all that they told."""

    daemon_threads = True

    def __init__(self, router: str, log: Path, gossip: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.router = urlsplit(router)
        self.log = log
        self.gossip = gossip
        self.heard: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Gateway

    def _pass(self) -> None:
        told = " ".join(f"{name}={self.headers[name]}" for name in TELLING if name in self.headers)
        self.server.heard.update(self.headers[name] for name in TELLING if name in self.headers)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if "x-rude" in self.headers:
            with self.server.log.open("a") as log:
                log.write(f"thread 'main' (1) panicked at src/gate.rs:1:1: {told} from {self.server.gossip}\n")
            self._answer(401, f"who is {told} at {self.server.gossip}?".encode())
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        with closing(HTTPConnection(self.server.router.hostname or "", self.server.router.port)) as router:
            router.request(self.command, self.path, body, headers)
            with router.getresponse() as response:
                self.send_response(response.status)
                self.send_header("content-type", response.getheader("content-type") or "text/plain")
                self.end_headers()
                while piece := response.read1():
                    self.wfile.write(piece)

    do_GET = do_POST = _pass  # noqa: N815 - named by the library

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Silent."""

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            self.close_connection = True  # clients are killed; that is what this project is about


@contextmanager
def gateway(router: str, log: Path, gossip: str) -> Iterator[Gateway]:
    """One that runs."""
    log.touch()
    server = Gateway(router, log, gossip)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
