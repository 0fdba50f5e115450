"""What counts as an answer: event splitting, tokens, finish reasons, errors inside an HTTP 200."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.engine.probes.answers import Answer
from chaos.engine.probes.sse import MAX_EVENT_BYTES, SseDecoder, SseError
from chaos.model.events import Gaps

DONE = b"[DONE]"
CHAT_ROLE = b'{"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}'
CHAT_TEXT = b'{"choices":[{"delta":{"content":"hi"},"finish_reason":null}]}'
CHAT_STOP = b'{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":null}'
USAGE = b'{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":8}}'
NATIVE_1 = b'{"text":"a","meta_info":{"id":"x","finish_reason":null,"completion_tokens":1}}'
NATIVE_2 = b'{"text":"ab","meta_info":{"id":"x","finish_reason":{"type":"length","length":2},"completion_tokens":2}}'


def answer(*events: bytes) -> Answer:
    """Each event arrives a millisecond after the one before it."""
    got = Answer()
    for n, event in enumerate(events):
        got.event(event, n * 1_000_000)
    got.end()
    return got


@settings(deadline=None)
@given(st.data(), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_events_are_the_same_however_the_stream_is_cut(data: st.DataObject, end: bytes) -> None:
    stream = end.join([b": comment", b"data: one", b"", b"event: x", b"data:two", b"data: lines", b"", b"data: 3", b""])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    decoder = SseDecoder()
    got = [e for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) for e in decoder.feed(stream[a:b])]
    assert [b"one", b"two\nlines", b"3"] == got + decoder.finish()


def test_an_event_without_end_is_refused() -> None:
    decoder = SseDecoder()
    decoder.feed(b"data: " + b"x" * (MAX_EVENT_BYTES - 6))
    with pytest.raises(SseError):
        decoder.feed(b"x")


@pytest.mark.parametrize(
    ("events", "tokens", "finish", "first_ms"),
    [
        ((CHAT_ROLE, CHAT_TEXT, CHAT_TEXT, CHAT_STOP, DONE), 2, "stop", 1),
        ((CHAT_ROLE, CHAT_TEXT, CHAT_STOP, USAGE, DONE), 8, "stop", 1),
        ((b'{"choices":[{"text":"a","finish_reason":null}]}', CHAT_STOP, DONE), 1, "stop", 0),
        ((NATIVE_1, NATIVE_2, DONE), 2, "length", 0),
        ((CHAT_ROLE, CHAT_STOP, USAGE, DONE), 8, "stop", 2),
        ((b'{"choices":[{"delta":{"reasoning_content":"hm"}}]}', CHAT_STOP, DONE), 1, "stop", 0),
    ],
    ids=["chat", "usage", "completions", "native", "tokens-without-text", "reasoning"],
)
def test_a_complete_answer_is_a_success(events: tuple[bytes, ...], tokens: int, finish: str, first_ms: int) -> None:
    got = answer(*events)
    assert ("", tokens, finish, first_ms * 1_000_000) == (got.error, got.tokens, got.finish, got.first_ns)


@pytest.mark.parametrize(
    ("events", "error", "detail"),
    [
        ((), "truncated", "without its end marker"),
        ((CHAT_ROLE, CHAT_TEXT), "truncated", "without its end marker"),
        ((CHAT_ROLE, CHAT_TEXT, CHAT_STOP), "truncated", "without its end marker"),
        ((CHAT_ROLE, CHAT_TEXT, DONE), "truncated", "without a finish reason"),
        ((CHAT_ROLE, CHAT_STOP, DONE), "no-tokens", "stop"),
        ((b'{"error":{"object":"error","message":"timed out after 300.1s","code":500}}', DONE), "in-band", "300.1s"),
        ((b'{"error":"boom"}', DONE), "in-band", "boom"),
        ((b'{"object":"error","message":"no","code":400}',), "in-band", "no"),
        (
            (
                NATIVE_1,
                b'{"text":"","meta_info":{"finish_reason":{"type":"abort","message":"Abort in waiting queue"}}}',
            ),
            "in-band",
            "waiting queue",
        ),
        ((b'{"choices":[{"delta":{},"finish_reason":"abort"}]}', DONE), "in-band", "abort"),
        ((b"not json", DONE), "protocol", "not json"),
        ((b'{"choices":7}', DONE), "protocol", "choices"),
    ],
)
def test_anything_else_on_http_200_is_an_error(events: tuple[bytes, ...], error: str, detail: str) -> None:
    got = answer(*events)
    assert error == got.error
    assert detail in got.detail


def test_the_first_error_is_the_one_that_is_kept() -> None:
    got = Answer()
    got.fail("in-band", "x" * 1000)
    got.fail("truncated")
    assert ("in-band", 300) == (got.error, len(got.detail))


def test_gaps_are_between_tokens() -> None:
    assert answer(CHAT_TEXT).gaps is None
    assert Gaps(n=2, p50_ms=1.0, p99_ms=2.0, max_ms=2.0) == answer(CHAT_TEXT, CHAT_TEXT, CHAT_ROLE, CHAT_TEXT).gaps
