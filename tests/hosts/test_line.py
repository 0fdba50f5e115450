"""A connection that breaks off under the line: its threads end quietly, and whoever waits is told."""

from __future__ import annotations

import threading

from chaos.engine.hosts.line import Line, Said
from chaos.engine.hosts.start import Started


class Broken:
    """A channel of a transport that is dead: paramiko raises EOFError where it cannot send, also while it receives."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def sendall(self, _data: bytes) -> None:
        self.asked.set()
        raise EOFError

    def recv(self, _most: int) -> bytes:
        self.asked.wait(10)
        raise EOFError

    def recv_stderr_ready(self) -> bool:
        raise EOFError

    def close(self) -> None:
        raise EOFError

    def get_transport(self) -> Broken:
        return self

    def is_active(self) -> bool:
        return True


def test_a_connection_that_breaks_off_while_something_is_sent_is_told_to_whoever_waits() -> None:
    lost: list[str] = []
    told: list[Said] = []
    line = Line(Started(Broken(), {}, b""), lost.append)
    line.ask({"op": "now"}, told.append)
    line.finish(10)
    line.close("closed")
    assert ["the SSH connection is gone"] == lost
    assert [("lost", "the SSH connection is gone")] == [(one.what, one.value) for one in told]
