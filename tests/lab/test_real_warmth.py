"""What counts as a first generation of a real engine, against a server that answers nonsense."""

from __future__ import annotations

import socket
import threading

import pytest

from chaos.lab.real.asking import is_healthy
from chaos.lab.real.dynamo import commands as dynamo
from chaos.lab.real.dynamo.warmth import warm as warm_dynamo
from chaos.lab.real.sglang import commands as sglang
from chaos.lab.real.sglang.warmth import warm as warm_sglang


class LookedAgainError(Exception):
    """The generation did not count."""


def look_again() -> None:
    raise LookedAgainError


@pytest.fixture
def nonsense():
    """The port of a server that reads a request and answers what is no HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"nonsense\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def test_an_answer_that_is_no_http_is_no_generation_of_sglang(nonsense):
    router = sglang.Place("router", "router", "127.0.0.1", nonsense)
    with pytest.raises(LookedAgainError):
        warm_sglang([router], print, check=look_again, error=lambda *_: AssertionError())


def test_an_answer_that_is_no_http_is_no_generation_of_dynamo_and_no_health(nonsense):
    router = dynamo.Place("router", "router", "127.0.0.1", nonsense, nonsense)
    looks = iter([None, LookedAgainError()])

    def check() -> None:
        if again := next(looks):
            raise again

    with pytest.raises(LookedAgainError):
        warm_dynamo(router, [], check=check, error=lambda *_: AssertionError())
    assert not is_healthy(router.url)
