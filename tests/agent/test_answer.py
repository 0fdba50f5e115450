"""What events and bodies mean, for the three APIs."""

from __future__ import annotations

import json
from typing import Any

import pytest
import scripted
from hypothesis import given
from hypothesis import strategies as st

from chaos.agent.answer import DETAIL_CHARS, Answer


def _answer(api: str, events: list[bytes] | None = None) -> tuple[Answer, list[int]]:
    firsts: list[int] = []
    answer = Answer(api, keep_text=True, on_first=lambda: firsts.append(len(answer.stamps)))
    for index, event in enumerate(events or []):
        answer.feed(scripted.sse([event]), index)
    return answer, firsts


@pytest.mark.parametrize("api", list(scripted.EVENTS))
def test_a_complete_stream_is_understood(api: str) -> None:
    answer, firsts = _answer(api, scripted.EVENTS[api](5))
    text = "".join(f" tok{i}" if api == "chat" else f" t{i}" for i in range(5))
    assert (True, "length", None, None) == (answer.done, answer.finish, answer.in_band, answer.garbage)
    assert (5, 5, [1], text) == (answer.tokens, len(answer.stamps), firsts, answer.text())


@pytest.mark.parametrize(("api", "first"), [("chat", 1), ("completions", 0), ("generate", 0)])
def test_the_first_token_is_the_first_event_with_text(api: str, first: int) -> None:
    answer, _ = _answer(api, scripted.EVENTS[api](3))
    assert [first, first + 1, first + 2] == list(answer.stamps)


def test_a_role_without_text_is_no_token() -> None:
    answer, firsts = _answer("chat", scripted.chat_events(3)[:1])
    assert (0, []) == (answer.tokens, firsts)


@pytest.mark.parametrize(
    ("api", "event"),
    [
        ("chat", b'{"choices":[{"delta":{"content":""},"finish_reason":null}]}'),
        ("chat", b'{"choices":[{"delta":{},"finish_reason":null}]}'),
        ("completions", b'{"choices":[{"text":"","finish_reason":null}]}'),
    ],
)
def test_an_event_without_text_in_mid_stream_is_no_token(api: str, event: bytes) -> None:
    events = scripted.EVENTS[api](3)[:3]
    without, _ = _answer(api, events)
    answer, _ = _answer(api, [*events, event])
    assert without.tokens == answer.tokens


def test_an_error_beside_text_is_seen() -> None:
    event = b'{"choices":[{"delta":{"content":"x"},"finish_reason":null}],"error":{"message":"gone"}}'
    assert "gone" == _answer("chat", [*scripted.chat_events(3)[:3], event])[0].in_band


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_a_token(field: str) -> None:
    event = json.dumps({"choices": [{"delta": {field: "hm", "content": None}, "finish_reason": None}]}).encode()
    answer, firsts = _answer("chat", [event, event])
    assert (2, [1]) == (answer.tokens, firsts)


def test_a_native_token_without_text_yet_is_a_token() -> None:
    event = {"text": "", "meta_info": {"completion_tokens": 1, "finish_reason": None}}
    answer, firsts = _answer("generate", [json.dumps(event).encode()])
    assert (1, [1]) == (answer.tokens, firsts)


def test_a_native_event_that_only_brings_the_reason_is_no_further_token() -> None:
    events = scripted.generate_events(4)[:3]
    last = {"text": " t0 t1 t2", "meta_info": {"completion_tokens": 3, "finish_reason": {"type": "stop"}}}
    answer, _ = _answer("generate", [*events, json.dumps(last).encode()])
    assert (3, 3, "stop") == (answer.tokens, len(answer.stamps), answer.finish)


def test_native_tokens_of_a_cut_stream_are_the_engine_s_count() -> None:
    event = b'{"text":"abc","meta_info":{"finish_reason":null,"completion_tokens":%d}}'
    answer, _ = _answer("generate", [event % 4, event % 8, event % 12])
    assert (12, 3) == (answer.tokens, len(answer.stamps))


def test_usage_beats_counting() -> None:
    events = scripted.chat_events(2, usage=False)
    events.insert(-1, b'{"choices":[],"usage":{"completion_tokens":9}}')
    assert 9 == _answer("chat", events)[0].tokens


def test_usage_in_the_event_of_a_token_is_seen() -> None:
    event = b'{"choices":[{"delta":{"content":"x"},"finish_reason":null}],"usage":{"completion_tokens":7}}'
    assert 7 == _answer("chat", [*scripted.chat_events(2)[:2], event])[0].tokens


@pytest.mark.parametrize(
    ("api", "event", "text"),
    [
        (
            "chat",
            {"error": {"object": "error", "message": "Decode transfer failed", "code": 500}},
            "Decode transfer failed",
        ),
        ("chat", {"object": "error", "message": "no", "code": 400}, "no"),
        ("chat", {"error": "boom"}, "boom"),
        ("completions", {"error": {"code": 503}}, '{"code":503}'),
        ("generate", {"error": {"message": "m"}}, "m"),
        (
            "generate",
            {"text": "", "meta_info": {"finish_reason": {"type": "abort", "message": "Aborted by AbortReq."}}},
            "Aborted by AbortReq.",
        ),
        ("chat", {"choices": [{"delta": {}, "finish_reason": "abort"}]}, "finish reason abort"),
    ],
)
@pytest.mark.parametrize("before", [0, 3])
def test_an_error_in_band_is_seen_at_any_point(api: str, event: dict[str, Any], text: str, before: int) -> None:
    events = [*scripted.EVENTS[api](5)[:before], json.dumps(event).encode(), b"[DONE]"]
    assert text == _answer(api, events)[0].in_band


def test_an_abort_after_counted_tokens_is_seen() -> None:
    events = scripted.generate_events(5, finish={"type": "abort", "message": "gone", "status_code": 500})
    assert ("abort", "gone") == ((answer := _answer("generate", events)[0]).finish, answer.in_band)


@pytest.mark.parametrize("event", [b"hello", b"[1]", b"null", b'{"a":', b"{}", b"\xff\xfe", b"[" * 100_000])
def test_what_is_not_the_api_is_garbage(event: bytes) -> None:
    garbage = _answer("chat", [event])[0].garbage
    assert garbage is not None
    assert len(garbage) <= DETAIL_CHARS


def test_an_empty_keep_alive_is_nothing() -> None:
    assert None is _answer("chat", [b""])[0].garbage


@pytest.mark.parametrize("spaces", [(",", ":"), (", ", ": ")])
@given(
    texts=st.lists(
        st.text(min_size=1)
        | st.sampled_from(['"finish_reason":"abort"', '"error"', "\\", '\\"', '"usage":{"completion_tokens":3}'])
    ),
    ascii_only=st.booleans(),
)
def test_counting_by_byte_search_agrees_with_parsing(
    texts: list[str], ascii_only: bool, spaces: tuple[str, str]
) -> None:
    events = []
    for text in texts:
        chunk = {"choices": [{"delta": {"content": text}, "finish_reason": None}], "usage": None}
        events.append(json.dumps(chunk, ensure_ascii=ascii_only, separators=spaces).encode("utf-8", "surrogatepass"))
    answer, _ = _answer("chat", events)
    wanted = "".join(texts).encode("utf-8", "replace").decode()
    assert (len(texts), None, None, "") == (len(answer.stamps), answer.in_band, answer.garbage, answer.finish)
    assert wanted == answer.text()


@pytest.mark.parametrize(
    ("api", "body", "tokens"),
    [
        (
            "chat",
            {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": {"completion_tokens": 3}},
            3,
        ),
        ("chat", {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}, 1),
        ("completions", {"choices": [{"text": "hi", "finish_reason": "stop"}], "usage": {"completion_tokens": 2}}, 2),
        ("generate", {"text": "hi", "meta_info": {"finish_reason": {"type": "stop"}, "completion_tokens": 4}}, 4),
        ("generate", {"text": "hi", "meta_info": {"finish_reason": {"type": "stop"}}}, 1),
    ],
)
def test_a_whole_body_is_understood(api: str, body: dict[str, Any], tokens: int) -> None:
    answer, _ = _answer(api)
    answer.whole(json.dumps(body).encode())
    assert (True, "stop", tokens, "hi") == (answer.done, answer.finish, answer.tokens, answer.text())


def test_half_a_surrogate_pair_can_be_sent_back() -> None:
    events = [b'{"choices":[{"delta":{"content":"a\\ud83d"},"finish_reason":null}]}'] * 2
    assert "a?a?" == _answer("chat", events)[0].text()


# ---------------------------------------------------------------------------------------------- what was said


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_many_tokens_by_count_without_a_letter_were_not_said(api: str) -> None:
    """Trap 40: HTTP 200, a finish reason, a token count, and no text."""
    mute = b'{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":9}}'
    answer = Answer(api, keep_text=True, on_first=lambda: None)
    answer.feed(scripted.sse([mute, b"[DONE]"]), 1)
    assert (9, 7, False, "") == (answer.tokens, answer.prompt_tokens, answer.said, answer.text())


@pytest.mark.parametrize("api", ["chat", "completions", "generate"])
def test_text_that_came_was_said_however_it_came(api: str) -> None:
    answer = Answer(api, keep_text=False, on_first=lambda: None)
    answer.feed(scripted.sse(scripted.EVENTS[api](3)), 1)
    assert answer.said


def test_text_is_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.agent.answer.MOST_TEXT_BYTES", 10)
    answer = Answer("chat", keep_text=True, on_first=lambda: None)
    answer.feed(scripted.sse(scripted.EVENTS["chat"](1000)), 1)
    assert 1000 == answer.tokens
    assert 3 <= len(answer.text()) < 40
