"""An engine notices late that a client has left; how late depends on the API and on whether it was streaming."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from lab_client import CHAT, GENERATE, Client, Lab, eventually

from chaos.lab.provider import parse_lab, start_lab

if TYPE_CHECKING:
    from collections.abc import Iterator

SCALE = 0.1
STREAM_DELAY_S, POLL_S = 2 * SCALE, 4 * SCALE


@pytest.fixture(scope="module")
def slow(tmp_path_factory) -> Iterator[Lab]:
    """A lab whose clocks are long enough to measure, left idle by every test."""
    with start_lab(
        parse_lab("sim", {"time_scale": str(SCALE)}), tmp_path_factory.mktemp("slow"), lambda _: None
    ) as lab:
        opened = Lab(lab)
        yield opened
        opened.close()


class Aborts:
    """The engine's own count of aborts, and how long the next one takes."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.before = self.count()

    def count(self) -> float:
        return self.lab.metric(self.lab.decode, "num_aborted_requests_total") or 0.0

    def seconds_to_next(self, since: float) -> float:
        eventually(lambda: self.count() > self.before, "the abort")
        return time.monotonic() - since


def alone(lab: Lab, path: str, *, stream: bool = True, **more: object) -> Client:
    """A request to decode only: it never gets a token, because no prefill knows of its room."""
    pair = {"bootstrap_host": "127.0.0.1", "bootstrap_port": lab.bootstrap_port, "bootstrap_room": 9}
    return lab.client(path, "nobody prefills this", 10, stream=stream, url=lab.decode, **pair, **more)


def test_a_streams_abort_is_sent_two_seconds_after_its_client_left(slow):
    client, aborts = slow.client(CHAT, "long", 2000), Aborts(slow)
    eventually(lambda: client.has(b"data: "), "streaming")
    left = time.monotonic()
    client.hang_up()
    assert aborts.seconds_to_next(left) >= STREAM_DELAY_S
    slow.until_idle()


def test_a_native_stream_without_a_token_yet_is_aborted_two_seconds_after_its_client_left(slow):
    client, aborts = alone(slow, GENERATE, rid="native"), Aborts(slow)
    eventually(lambda: client.has(b"200 OK"), "headers")
    left = time.monotonic()
    client.hang_up()
    assert aborts.seconds_to_next(left) >= STREAM_DELAY_S
    given_up = "Decode transfer failed for request rank=0 decode_req.req.rid='native'"
    eventually(lambda: given_up in slow.log("decode-0"), "its room is given up")
    # it counts as active until that late abort is over
    eventually(lambda: not slow.active(slow.decode), "over")
    assert time.monotonic() - left >= STREAM_DELAY_S


def test_before_the_first_token_of_a_chat_the_connection_is_looked_at_every_four_seconds(slow):
    aborts, began = Aborts(slow), time.monotonic()
    client = alone(slow, CHAT)
    eventually(lambda: slow.active(slow.decode), "there")
    client.hang_up()
    assert aborts.seconds_to_next(began) >= POLL_S
    slow.until_idle()


def test_a_native_answer_that_is_not_streamed_says_how_it_noticed(slow):
    client = alone(slow, GENERATE, stream=False, rid="mine")
    eventually(lambda: slow.active(slow.decode), "there")
    client.hang_up()
    line = "[http_server] Error: Request is disconnected from the client side (type 1). Abort request obj.rid='mine'"
    eventually(lambda: line in slow.log("decode-0"), "type 1")
    slow.until_idle()


def test_the_router_writes_down_when_it_saw_clients_leave(slow):
    seen = len(ledger(slow))
    with slow.transfer_held():
        clients = slow.clients(5)
        eventually(lambda: 5 == slow.active(slow.decode), "all there")
        before = time.monotonic_ns()
        for client in clients:
            client.hang_up()
        eventually(lambda: len(ledger(slow)) == seen + 5, "all written down")
    assert [False] * 5 == [entry["streaming"] for entry in ledger(slow)[seen:]]
    assert all(before <= entry["t_ns"] <= time.monotonic_ns() for entry in ledger(slow)[seen:])
    slow.until_idle()
    streaming = slow.client(CHAT, "long", 5000)
    eventually(lambda: streaming.has(b"data: "), "streaming")
    streaming.hang_up()
    eventually(lambda: len(ledger(slow)) == seen + 6, "the sixth")
    assert ledger(slow)[-1]["streaming"]
    line = f"Client disconnected, cancelling upstream PD stream from {slow.decode}{CHAT}"
    eventually(lambda: line in slow.log("router"), "logged")


def ledger(lab: Lab) -> list[dict[str, object]]:
    return lab.http.get(f"{lab.router}/_sim/disconnects").json()["disconnects"]
