"""How a host is asked for something: a line of JSON to its keeper's socket, a line of JSON back.

Asked by the bed from outside, and by `pd-node` on the host, which speaks the same without this module.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import socketserver
import threading
from typing import TYPE_CHECKING, Any

from testbed.errors import BedError
from testbed.mounts import SUDOER, USERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Acts = Mapping[str, Callable[..., "Answer"]]

Answer = dict[str, Any]
_TIMEOUT_S = 600.0  # a real engine takes minutes to restart on a busy machine


def ask(path: Path, what: str, **more: object) -> Answer:
    """Ask a keeper; BedError when it says no or nothing."""
    folder = os.open(path.parent, os.O_PATH)  # a socket's path may have 107 characters, a test's folder has more
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(_TIMEOUT_S)
            asking.connect(f"/proc/self/fd/{folder}/{path.name}")
            asking.sendall(json.dumps({"do": what, **more}).encode() + b"\n")
            with asking.makefile("rb") as answers:
                line = answers.readline()
    except OSError as error:
        raise BedError(f"{path.parent.name} does not answer to {what!r}: {error}", hint="is the bed up?") from error
    finally:
        os.close(folder)
    answer: Answer = json.loads(line) if line else {"error": "it ended"}
    if "error" in answer:
        raise BedError(f"{path.parent.name}: {what}: {answer['error']}")
    return answer


def serve(path: Path, acts: Acts) -> None:
    """Answer in threads of our own, for good; root and who may use sudo may ask."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked = json.loads(self.rfile.readline() or b"{}")
            act = acts.get(asked.pop("do", ""))
            try:
                answer = act(**asked) if act else {"error": f"unknown; known are {', '.join(sorted(acts))}"}
            except (OSError, TypeError, BedError) as error:
                answer = {"error": str(error)}
            with contextlib.suppress(BrokenPipeError):  # whoever asked has left
                self.wfile.write(json.dumps(answer).encode() + b"\n")

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True
        request_queue_size = 16

    path.unlink(missing_ok=True)
    server = Server(str(path), Handler)
    os.chown(path, 0, USERS[SUDOER])
    path.chmod(0o660)
    threading.Thread(target=server.serve_forever, name="control", daemon=True).start()
