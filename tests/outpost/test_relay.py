"""TCP streams over one pipe: what arrives, how connections end, who stalls whom."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from typing import TYPE_CHECKING

import pytest
from relays import HOST_END, ending, flooding, frames, killed, listening, local_end, port_of, relayed

from chaos.outpost.pipe import CLOSE, HEADER, OPEN, OPENED
from chaos.outpost.relay import ORPHAN_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLIENTS = """
import socket, sys, time
held = []
for _ in range(int(sys.argv[2])):
    client = socket.socket(socket.AF_UNIX)
    client.connect(sys.argv[1])
    assert client.recv(3)[:1] == b"+"
    held.append(client)
print("there", flush=True)
time.sleep(60)
"""


def test_bytes_arrive_whole_in_both_directions_and_the_port_is_told(tmp_path: Path) -> None:
    big = os.urandom(3 << 20)
    with listening() as server, relayed(tmp_path, {"door": ("127.0.0.1", port_of(server))}) as relay:
        client = relay.connect()
        there = relay.accept(server)
        assert b"+" + struct.pack(">H", there.getpeername()[1]) == client.recv(3)
        for one, other in ((client, there), (there, client)):
            assert big == _pumped(one, other, big)


def _pumped(one: socket.socket, other: socket.socket, data: bytes) -> bytes:
    """Send from one, read at the other, both without waiting for each other."""
    thread = threading.Thread(target=one.sendall, args=(data,))
    thread.start()
    got = bytearray()
    other.settimeout(20)
    while len(got) < len(data):
        got += other.recv(1 << 16)
    thread.join(20)
    return bytes(got)


def test_a_port_where_nobody_listens_is_refused_and_an_unknown_name_is_not_found(tmp_path: Path) -> None:
    with listening() as server:
        port = port_of(server)
    doors = {"shut": ("127.0.0.1", port), "nowhere": ("no-such-host.invalid", 80)}
    with relayed(tmp_path, doors) as relay, relay.connect("shut") as shut, relay.connect("nowhere") as nowhere:
        assert shut.recv(200).startswith(b"-refused ")
        assert b"" == shut.recv(1)
        assert nowhere.recv(200).startswith(b"-unresolved ")


def test_a_half_close_leaves_the_other_direction_open(tmp_path: Path) -> None:
    with listening() as server, relayed(tmp_path, {"door": ("127.0.0.1", port_of(server))}) as relay:
        client = relay.through()
        there = relay.accept(server)
        client.sendall(b"question")
        client.shutdown(socket.SHUT_WR)
        assert b"question" == _all(there)
        there.sendall(b"answer")
        there.close()
        assert b"answer" == _all(client)
        client.close()


def test_a_server_that_ends_first_is_heard_to_the_end(tmp_path: Path) -> None:
    with listening() as server, relayed(tmp_path, {"door": ("127.0.0.1", port_of(server))}) as relay:
        client = relay.through()
        there = relay.accept(server)
        there.sendall(b"all of it")
        there.shutdown(socket.SHUT_WR)
        assert b"all of it" == _all(client)
        client.sendall(b"still heard")
        assert b"still heard" == there.recv(100)
        client.close()
        assert "fin" == ending(there)


def test_a_client_that_closes_with_nothing_unread_sends_a_fin(tmp_path: Path) -> None:
    with listening() as server, relayed(tmp_path, {"door": ("127.0.0.1", port_of(server))}) as relay:
        client = relay.through()
        there = relay.accept(server)
        client.close()
        assert "fin" == ending(there)
        # Nobody is there any more, and who goes on sending is told so.
        assert "rst" == _sends_until_reset(there)


def test_a_client_that_is_killed_with_unread_data_sends_a_reset(tmp_path: Path) -> None:
    with listening() as server, relayed(tmp_path, {"door": ("127.0.0.1", port_of(server))}) as relay:
        clients = _clients(relay.folder / "door", 1)
        there = relay.accept(server)
        there.sendall(b"never read")
        _until(lambda: _unread(there) == 0)
        time.sleep(0.2)  # until it has come through both ends
        killed(clients)
        assert "rst" == ending(there)


@pytest.mark.parametrize(("taken", "end"), [(0, "rst"), (5, "fin")])
def test_a_client_that_closed_with_data_on_its_way_answers_it_by_a_reset(taken: int, end: str) -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    with listening() as server, ours, theirs, subprocess.Popen(HOST_END, stdin=theirs, stdout=theirs) as host_end:
        address = struct.pack(">HI", port_of(server), 65536) + b"127.0.0.1"
        ours.sendall(HEADER.pack(OPEN, 1, len(address)) + address)
        there, _ = server.accept()
        with there:
            there.sendall(b"token")
            got = b""
            while b"token" not in got:
                got += ours.recv(1000)
            ours.sendall(HEADER.pack(CLOSE, 1, 8) + struct.pack(">Q", taken))
            assert end == ending(there)
        ours.shutdown(socket.SHUT_WR)
        assert 0 == host_end.wait(10)


def test_a_client_may_ask_for_its_end_to_be_a_reset(tmp_path: Path) -> None:
    with listening() as server, relayed(tmp_path, {"door": ("127.0.0.1", port_of(server))}) as relay:
        client = relay.through()
        there = relay.accept(server)
        client.sendall(b"request")
        socket.send_fds(client, [b"\0"], [0])
        client.close()
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while data := there.recv(100):
                got += data
            raise AssertionError("a FIN, not a reset")
        assert got in (b"", b"request")  # a reset may overtake what was sent before; the passed byte never arrives


def test_what_a_client_sent_before_it_closed_arrives(tmp_path: Path) -> None:
    with (
        listening() as server,
        relayed(tmp_path, {"door": ("127.0.0.1", port_of(server))}, window=4096) as relay,
    ):
        client = relay.through()
        there = relay.accept(server)
        client.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                sent += client.send(bytes(1024))
        client.close()  # much more than the window is on its way
        assert sent == len(_all(there))


def test_a_client_that_does_not_read_stalls_its_server_and_nobody_else(tmp_path: Path) -> None:
    with (
        listening() as server,
        relayed(tmp_path, {"door": ("127.0.0.1", port_of(server))}, window=16384) as relay,
    ):
        stalled = relay.through()
        there = relay.accept(server)
        there.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        thread, took = flooding(there)
        thread.join(20)  # until the kernel takes no more for two seconds
        assert not thread.is_alive()
        assert 16384 < sum(took) < 300_000
        other = relay.through()
        beside = relay.accept(server)
        assert bytes(1 << 20) == _pumped(beside, other, bytes(1 << 20))
        assert sum(took) == len(_read(stalled, sum(took)))  # it was kept, and comes when it is asked for


def test_the_clients_of_a_killed_process_end_at_their_server_together(tmp_path: Path) -> None:
    count = 60
    with listening() as server, relayed(tmp_path, {"door": ("127.0.0.1", port_of(server))}) as relay:
        clients = _clients(relay.folder / "door", count)
        there = [relay.accept(server) for _ in range(count)]
        beside = relay.through()
        still = relay.accept(server)
        killed(clients)
        assert {"fin"} == {ending(one) for one in there}
        beside.sendall(b"alive")
        assert b"alive" == still.recv(10)


def test_what_ends_together_leaves_in_one_write(tmp_path: Path) -> None:
    count = 60
    with local_end(tmp_path, {"door": ("127.0.0.1", 9)}) as (pipe, _):
        clients = subprocess.Popen(
            [sys.executable, "-c", CLIENTS, str(tmp_path / "door"), str(count)], stdout=subprocess.PIPE
        )
        opened = 0
        while opened < count:
            for kind, ident, _ in frames(pipe.recv(65536)):
                if kind == OPEN:
                    pipe.sendall(HEADER.pack(OPENED, ident, 2) + b"\0\1")
                    opened += 1
        assert clients.stdout is not None
        with clients.stdout as said:
            assert b"there\n" == said.readline()
        killed(clients)
        closes = [sum(kind == CLOSE for kind, _, _ in frames(pipe.recv(65536)))]
        while sum(closes) < count:
            closes.append(sum(kind == CLOSE for kind, _, _ in frames(pipe.recv(65536))))
        # One write is one packet of an SSH connection. A busy machine may interrupt the kernel's own closing.
        assert len([number for number in closes if number]) <= 3


def test_a_reset_by_the_server_ends_the_client_and_so_does_a_lost_pipe(tmp_path: Path) -> None:
    with listening() as server, relayed(tmp_path, {"door": ("127.0.0.1", port_of(server))}) as relay:
        reset, lost = relay.through(), relay.through()
        first, _ = relay.accept(server), relay.accept(server)
        first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        first.close()
        assert ending(reset) in ("rst", "fin")
        killed(relay.there)
        assert ending(lost) in ("rst", "fin")
        assert 0 == relay.here.wait(10)
        assert not (tmp_path / "door").exists()


@pytest.mark.parametrize(("said", "left"), [(b"", False), (b"again\n", True)])
def test_when_nobody_will_open_the_doors_again_their_directory_goes_too(
    said: bytes, left: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "doors"
    folder.mkdir()
    with local_end(folder, {"door": ("127.0.0.1", 9)}) as (pipe, here):
        assert here.stdin is not None
        here.stdin.write(said)
        here.stdin.close()
        pipe.close()  # as when whoever started it was killed
        assert 0 == here.wait(10)
    assert left == folder.exists()
    assert not (folder / "door").exists()


def test_servers_may_end_their_answers_when_the_pipe_is_lost(tmp_path: Path) -> None:
    with listening() as server, relayed(tmp_path, {"door": ("127.0.0.1", port_of(server))}) as relay:
        client = relay.through()
        there = relay.accept(server)
        client.sendall(b"request")
        assert b"request" == there.recv(100)
        killed(relay.here)
        client.close()
        for _ in range(20):
            there.sendall(bytes(65536))  # nobody hung up
        assert relay.there.poll() is None
        there.close()
        assert 0 == relay.there.wait(ORPHAN_S / 2)


# ---------------------------------------------------------------------------------------------- helpers


def _clients(door: Path, count: int) -> subprocess.Popen[bytes]:
    clients = subprocess.Popen([sys.executable, "-c", CLIENTS, str(door), str(count)], stdout=subprocess.PIPE)
    assert clients.stdout is not None
    with clients.stdout as said:
        assert b"there\n" == said.readline()
    return clients


def _all(connection: socket.socket) -> bytes:
    got = bytearray()
    while data := connection.recv(65536):
        got += data
    return bytes(got)


def _read(connection: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        got += connection.recv(65536)
    return bytes(got)


def _sends_until_reset(connection: socket.socket) -> str:
    try:
        for _ in range(1000):
            connection.send(b"more")
            time.sleep(0.01)
    except (ConnectionResetError, BrokenPipeError):
        return "rst"
    return "nothing"


def _unread(connection: socket.socket) -> int:
    """Bytes that the peer's kernel has not acknowledged."""
    count = array.array("i", [0])
    fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, count)
    return count[0]


def _until(done: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)
