"""Framing of server-sent events."""

from __future__ import annotations

import pytest

from chaos.agent.sse import MAX_EVENT_BYTES, EventSplitter, EventTooLong

STREAM = b': hello\n\ndata: {"a":1}\n\nid: 7\ndata: one\ndata: two\n\ndata:tight\n\n\nevent: note\n\ndata: [DONE]\n\n'
PAYLOADS = [b'{"a":1}', b"one\ntwo", b"tight", b"[DONE]"]


def _fed(pieces: list[bytes]) -> list[bytes]:
    splitter = EventSplitter()
    return [payload for piece in pieces for payload in splitter.feed(piece)]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_events_are_the_same_wherever_the_network_cuts_the_bytes(ending: bytes) -> None:
    stream = STREAM.replace(b"\n", ending) + b": the end of a lone CR is known with the next byte\n\n"
    for cut in range(len(stream) + 1):
        assert PAYLOADS == _fed([stream[:cut], stream[cut:]]), cut


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_events_are_the_same_byte_by_byte(ending: bytes) -> None:
    stream = STREAM.replace(b"\n", ending)
    assert PAYLOADS == _fed([stream[at : at + 1] for at in range(len(stream))])


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (b"event: error\ndata: no workers\n\n", b"no workers"),
        (b"event: error\n: stream incomplete\n\n", b"stream incomplete"),
        (b"event: error\n\n", b"an event named error"),
    ],
)
def test_an_event_named_error_is_an_error_with_its_text(event: bytes, text: bytes) -> None:
    splitter = EventSplitter()
    assert [] == splitter.feed(event)
    assert text == splitter.failed


def test_an_incomplete_event_is_kept_apart() -> None:
    splitter = EventSplitter()
    assert [b"1"] == splitter.feed(b"data: 1\n\ndata: 2")
    assert b"data: 2" == splitter.rest()


def test_an_event_without_end_is_refused_before_it_fills_the_memory() -> None:
    splitter = EventSplitter()
    with pytest.raises(EventTooLong):
        splitter.feed(b"data: " + b"x" * MAX_EVENT_BYTES)
