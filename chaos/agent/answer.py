"""What a response says: tokens, finish reason, usage, errors on HTTP 200; for chat, completions and native generate.

Most events of a stream are one more token and nothing else. They are told by a few byte searches, which are exact
because a quote inside a JSON string is escaped, so `"finish_reason":null` can only be a key with its value. The first
event, every event with a finish reason, usage or error, and whatever else looks unusual is parsed in full.
"""

from __future__ import annotations

import re
from array import array
from typing import Callable

from .codec import as_list, as_mapping, as_text, dumps, loads
from .sse import EventSplitter

DETAIL_CHARS = 300
MOST_TEXT_BYTES = 1 << 20  # kept of an answer; its codeword stands at the beginning

_QUOTE, _BACKSLASH, _BRACE = b'"\\}'
_STRING_BODY = re.compile(rb'(?:[^"\\]|\\.)*')
_TEXT_KEYS = {"chat": b'"content":', "completions": b'"text":', "generate": b'"text":'}
_FAILED_FINISHES = ("abort", "error")  # SGLang ends an aborted request with HTTP 200 and such a finish reason


def shorten(text: str | bytes) -> str:
    """One detail for a report: what the server said, cut."""
    if isinstance(text, bytes):
        text = text[: 4 * DETAIL_CHARS].decode("utf-8", "replace")
    return text[:DETAIL_CHARS]


class Answer:
    """Collects one response body. `stamps` are the receive times of tokens (one per event that brought any)."""

    __slots__ = (
        "_api", "_events", "_keep_text", "_kept", "_last_native", "_native_tokens", "_null", "_on_first", "_pieces",
        "_text_key", "_usage_tokens", "done", "finish", "garbage", "in_band", "prompt_tokens", "said", "stamps",
    )  # fmt: skip

    def __init__(self, api: str, *, keep_text: bool, on_first: Callable[[], None]) -> None:
        self._api = api
        self._keep_text = keep_text
        self._on_first = on_first
        self._events = EventSplitter()
        self._text_key = b""  # learned from the first event: the server's own spacing
        self._null = b""
        self._pieces: list[bytes] = []  # JSON-escaped pieces of text
        self._kept = 0  # bytes in them
        self._last_native = b""  # native events repeat the whole text: the last one has it
        self._native_tokens = 0
        self._usage_tokens: int | None = None
        self.prompt_tokens: int | None = None  # by the server's count
        self.said = False  # something came that a model says: text, reasoning or a call
        self.stamps = array("q")
        self.done = False  # the stream's end marker was seen, or the whole body parsed
        self.finish = ""
        self.in_band: str | None = None  # an error that came with HTTP 200
        self.garbage: str | None = None  # an event or body that is not the API's

    # ------------------------------------------------------------------------------------------ streams

    def feed(self, data: bytes, now_ns: int) -> None:
        """Take the next bytes of an event stream, received at `now_ns`."""
        for payload in self._events.feed(data):
            if not self._plain_token(payload, now_ns):
                self._read(payload, now_ns)
        if self._events.failed is not None and self.in_band is None:
            self.in_band = shorten(self._events.failed)

    def end_of_stream(self) -> None:
        """The body is complete: some servers end the last event with one newline only, others answer without events."""
        rest = self._events.rest().strip()
        if rest == b"data: [DONE]":
            self.done = True
        elif rest and not self.done and self.in_band is None:
            document = _object(rest)
            if document:
                self._seen_error(document)

    def rest(self) -> bytes:
        """Bytes that never became an event."""
        return self._events.rest()

    def _plain_token(self, payload: bytes, now_ns: int) -> bool:
        """Count an event that is one more token and nothing else; False when it must be parsed."""
        key = self._text_key
        if not key or payload[-1:] != b"}":
            return False
        start = payload.find(key) + len(key)
        if start < len(key) or payload[start] == _QUOTE or self._null not in payload or b'"error"' in payload:
            return False
        if self._api == "generate":
            self._last_native = payload
        else:
            if b'"completion_tokens"' in payload:
                return False
            if self._keep_text:
                self._keep(_string_body(payload, start))
        self.said = True
        self._token(now_ns)
        return True

    def _keep(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._kept += len(piece)
        if self._kept > MOST_TEXT_BYTES:
            self._keep_text = False

    def _token(self, now_ns: int) -> None:
        self.stamps.append(now_ns)
        if len(self.stamps) == 1:
            self._on_first()

    def _read(self, payload: bytes, now_ns: int) -> None:
        if payload.strip() == b"[DONE]":
            self.done = True
            return
        if not payload:  # a keep-alive of some proxies
            return
        document = _object(payload)
        if not document:
            if self.garbage is None:
                self.garbage = shorten(payload)
            return
        if self._seen_error(document):
            return
        self._learn(payload)
        if self._api == "generate":
            before = self._native_count()
            self._last_native = payload
            text = self._take_native(document)
            # The last event may only bring the reason; an engine's first tokens may have no text yet.
            fresh = self._native_tokens > before or (not before and bool(text))
        else:
            fresh = self._take_choice(document, "delta")
        if fresh:
            self._token(now_ns)

    def _learn(self, payload: bytes) -> None:
        if not self._text_key:
            space = b" " if b'"finish_reason": ' in payload else b""
            self._text_key = _TEXT_KEYS[self._api] + space + b'"'
            self._null = b'"finish_reason":' + space + b"null"

    # ------------------------------------------------------------------------------------------ whole bodies

    def whole(self, body: bytes) -> None:
        """Take a complete body that is not a stream."""
        document = _object(body)
        if not document:
            self.garbage = shorten(body)
            return
        self.done = True
        if self._seen_error(document):
            return
        if self._api == "generate":
            self._last_native = body
            answered = bool(self._take_native(document))
        else:
            answered = self._take_choice(document, "message")
        if answered and not self.tokens:
            self._usage_tokens = 1  # at least; the server did not count

    # ------------------------------------------------------------------------------------------ both

    @property
    def tokens(self) -> int:
        """Tokens generated, by the server's own count where it gave one, else the events that brought text."""
        if self._usage_tokens is not None:
            return self._usage_tokens
        return max(self._native_count(), len(self.stamps))

    def text(self) -> str:
        """What the model answered; empty unless it was to be kept."""
        if self._api == "generate":
            text = as_text(_object(self._last_native).get("text")) if self._last_native else ""
        else:
            try:
                text = as_text(loads(b'"' + b"".join(self._pieces) + b'"'))
            except ValueError:
                text = ""
        # A half that stayed alone cannot be sent back.
        return text.encode("utf-8", "replace").decode("utf-8")

    def _seen_error(self, document: dict[str, object]) -> bool:
        error = document.get("error")
        if not error and document.get("object") != "error":
            return False
        source = as_mapping(error) or document
        message = as_text(error) or as_text(source.get("message"))
        self.in_band = shorten(message or dumps(error or document))
        return True

    def _finished(self, reason: object) -> None:
        """Note a finish reason, if it is one: a word, or SGLang's `{"type": ..., "message": ...}`."""
        if not reason:
            return
        details = as_mapping(reason)
        self.finish = as_text(reason) or as_text(details.get("type"))
        if self.finish in _FAILED_FINISHES and self.in_band is None:
            self.in_band = shorten(as_text(details.get("message")) or f"finish reason {self.finish}")

    def _take_native(self, document: dict[str, object]) -> str:
        meta = as_mapping(document.get("meta_info"))
        count, asked = meta.get("completion_tokens"), meta.get("prompt_tokens")
        if isinstance(count, int):
            self._native_tokens = count
        if isinstance(asked, int):
            self.prompt_tokens = asked
        self._finished(meta.get("finish_reason"))
        text = as_text(document.get("text"))
        self.said = self.said or bool(text)
        return text

    def _native_count(self) -> int:
        """The engine's count in its last event, which may have been taken unparsed."""
        if self._last_native:
            self._take_native(_object(self._last_native))
        return self._native_tokens

    def _take_choice(self, document: dict[str, object], part: str) -> bool:
        """Whether this chat or completions object brought text."""
        usage = as_mapping(document.get("usage"))
        count, asked = usage.get("completion_tokens"), usage.get("prompt_tokens")
        if isinstance(count, int):
            self._usage_tokens = count
        if isinstance(asked, int):
            self.prompt_tokens = asked
        choices = as_list(document.get("choices"))
        choice = as_mapping(choices[0]) if choices else {}
        self._finished(choice.get("finish_reason"))
        if self._api == "completions":
            text = as_text(choice.get("text"))
            fresh = bool(text)
        else:
            message = as_mapping(choice.get(part))
            text = as_text(message.get("content"))
            # A first event with only the role and an empty text is no token.
            fresh = bool(
                text or message.get("reasoning_content") or message.get("reasoning") or message.get("tool_calls")
            )
        if text and self._keep_text:
            self._keep(dumps(text)[1:-1])
        self.said = self.said or fresh
        return fresh


def _object(data: bytes) -> dict[str, object]:
    try:
        return as_mapping(loads(data))
    except ValueError:
        return {}


def _string_body(payload: bytes, start: int) -> bytes:
    """The JSON-escaped text of the string that begins at `start`."""
    end = payload.find(b'"', start)
    if payload[end - 1] != _BACKSLASH:
        return payload[start:end]
    match = _STRING_BODY.match(payload, start)
    return match.group() if match else b""
