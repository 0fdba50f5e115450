"""Connections as the kernel tells them, from the client's end and from the server's."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest
from people import running, until

from chaos.outpost.sockets import connections, leaving, peers, still_open
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def server() -> socket.socket:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as listener:
        yield listener


def connected(server: socket.socket, count: int) -> list[socket.socket]:
    return [socket.create_connection(server.getsockname()) for _ in range(count)]


def test_connections_are_counted_until_they_are_closed(server: socket.socket) -> None:
    before = set(connections(os.getpid()))
    clients = connected(server, 2)
    mine = set(connections(os.getpid())) - before
    assert (2, 2) == (len(mine), still_open(mine))
    clients[0].close()
    assert 1 == still_open(mine)
    clients[1].close()
    assert 0 == still_open(mine)


def test_a_connection_is_told_from_a_later_one_on_the_same_port() -> None:
    before = set(connections(os.getpid()))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        client.bind(("127.0.0.1", 0))
        client.connect(server.getsockname())
        port = client.getsockname()[1]
        accepted, _ = server.accept()
        mine = set(connections(os.getpid())) - before
        assert (2, 2) == (len(mine), still_open(mine))
        client.close()
        accepted.close()
        assert 0 == still_open(mine)
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", port))
            again.connect(other.getsockname())
            assert 1 == len(set(connections(os.getpid())) - before)
            assert 0 == still_open(mine)


def test_connections_over_a_unix_socket_count_too(tmp_path: Path) -> None:
    before = set(connections(os.getpid(), unix=True))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        assert set() == set(connections(os.getpid(), unix=True)) - before
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "s"))
            mine = set(connections(os.getpid(), unix=True)) - before
            assert set() == set(connections(os.getpid())) & mine
            assert (1, 1) == (len(mine), still_open(mine))
        assert 0 == still_open(mine)


def test_of_a_process_that_is_gone_the_kernel_tells_nothing() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    with pytest.raises(Trouble, match="cannot be seen"):
        connections(child.pid)


def test_a_port_s_connections_are_told_by_their_other_ends(server: socket.socket) -> None:
    clients = connected(server, 2)
    ends = sorted(f"127.0.0.1:{one.getsockname()[1]}" for one in clients)
    assert ends == peers(server.getsockname()[1])
    for one in clients:
        one.close()


class Looks(threading.Event):
    """What ends a watch; it looks once each time it has waited for it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.begun += 1
        return super().wait(timeout)


class Watch:
    """The stream of leaving connections, in a thread."""

    def __init__(self, **args: object) -> None:
        self.sent: list[dict] = []
        self.stopped = Looks()
        self.began = threading.Event()
        self.thread = threading.Thread(target=leaving, args=(self.send, self.stopped), kwargs=args)
        self.thread.start()
        assert self.began.wait(60)

    def look(self) -> None:
        """Have it look at what there is now."""
        second = self.stopped.begun + 2
        until(lambda: self.stopped.begun >= second)

    def send(self, value: dict) -> None:
        self.sent.append(value)
        self.began.set()

    def end(self) -> dict:
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.sent[-1]


CLIENTS = """
import socket, sys
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
print("up", flush=True)
sys.stdin.read()
"""


def test_the_spread_of_disconnects_is_measured_as_the_server_saw_them(server: socket.socket) -> None:
    port = server.getsockname()[1]
    with running("-c", CLIENTS, str(port), "40") as clients:
        assert clients.stdout.readline() == "up\n"
        watch = Watch(port=port)
        before_ns = time.monotonic_ns()
        clients.kill()
        told = watch.end()
    assert {"watched": 40} == watch.sent[0]
    assert (40, 0) == (told["watched"], told["left"])
    assert told["since_ns"] <= told["first_ns"] <= told["last_ns"] <= time.monotonic_ns()
    assert before_ns <= told["first_ns"]


def test_first_and_last_are_stamped_apart_and_who_stays_is_counted(server: socket.socket) -> None:
    one, two, three = connected(server, 3)
    watch = Watch(port=server.getsockname()[1], at_most_s=60)
    for client, left in ((one, 2), (two, 1)):
        client.close()
        until(lambda left=left: len(peers(server.getsockname()[1])) == left)
        watch.look()
    watch.stopped.set()
    told = watch.end()
    assert (3, 1) == (told["watched"], told["left"])
    assert told["first_ns"] < told["last_ns"]
    three.close()


def test_only_the_wanted_ends_are_watched_and_a_watch_ends_in_time(server: socket.socket) -> None:
    one, two = connected(server, 2)
    mine = f"127.0.0.1:{one.getsockname()[1]}"
    watch = Watch(port=server.getsockname()[1], peers=[mine], at_most_s=0.05)
    two.close()
    told = watch.end()
    assert ({"watched": 1}, 1, 1) == (watch.sent[0], told["watched"], told["left"])
    assert "first_ns" not in told
    one.close()
