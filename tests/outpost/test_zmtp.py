"""Messages to real ZMQ sockets, sent without their library."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest
import zmq

from chaos.outpost import zmtp
from chaos.outpost.trouble import Trouble

PARTS = (b"ABORT", b"5", b"", bytes(range(256)) * 300)


def test_the_parts_of_a_message_arrive_as_they_were_sent() -> None:
    with zmq.Context() as context, context.socket(zmq.PULL) as pull:
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        for _ in range(3):
            told = zmtp.push("127.0.0.1", port, [part.hex() for part in PARTS])
            assert list(PARTS) == pull.recv_multipart()
            assert told["sent"] == told["acknowledged"] == sum(map(len, PARTS)) + 3 * 2 + 9


def test_a_socket_of_another_kind_refuses() -> None:
    with zmq.Context() as context, context.socket(zmq.REP) as rep:
        port = rep.bind_to_random_port("tcp://127.0.0.1")
        with pytest.raises(Trouble, match="no PULL socket"):
            zmtp.push("127.0.0.1", port, ["00"])


def test_a_socket_that_asks_for_a_password_gets_nothing() -> None:
    with zmq.Context() as context, context.socket(zmq.PULL) as pull:
        pull.plain_server = True
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        with pytest.raises(Trouble, match=r"asks for PLAIN security|closed during the handshake"):
            zmtp.push("127.0.0.1", port, ["00"])


def test_what_speaks_something_else_gets_nothing() -> None:
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            there, _ = server.accept()
            with there, contextlib.suppress(ConnectionResetError):
                there.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                while data := there.recv(1000):
                    got.append(data)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(Trouble, match="does not speak ZMQ"):
            zmtp.push("127.0.0.1", server.getsockname()[1], ["00"])
        thread.join(10)
    assert 64 == sum(map(len, got))


def test_nobody_listening_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Trouble, match="cannot be written to"):
        zmtp.push("127.0.0.1", port, ["00"])
