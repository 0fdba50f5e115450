"""What an answer to a canary means: first token, finish reason, errors inside an HTTP 200, the end marker.

OpenAI chat and completions chunks and SGLang's native ones are read by one struct, because a canary needs the same
few facts from each. SGLang reports failures after its headers are out (a stream answers 200 at once), so an error
object or the finish reason `abort` on HTTP 200 is an error here.
"""

from __future__ import annotations

import math

import msgspec

from chaos.model.events import Gaps

DETAIL_CHARS = 300
MOST_TEXT_CHARS = 1 << 16
SURELY_TEXT = 4
"""A token may decode to no text (an end marker, half a character); so many do not."""
DONE = b"[DONE]"
_BAD_FINISH = frozenset({"abort", "error"})


class _Usage(msgspec.Struct):
    completion_tokens: int | None = None
    prompt_tokens: int | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Finish(msgspec.Struct):
    type: str = ""
    message: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Meta(msgspec.Struct):
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    finish_reason: _Finish | str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw(b"")
    object: str | None = None
    message: str | None = None
    text: str | None = None
    meta_info: _Meta | None = None


class _Error(msgspec.Struct):
    message: str


_decode = msgspec.json.Decoder(_Chunk).decode
_decode_error = msgspec.json.Decoder(_Error).decode


class Answer:
    """Folds the events of one streamed answer. `error` stays empty only for a complete and correct one."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.finish = ""
        self.error = ""
        self.detail = ""
        self.done = False
        self.prompt_tokens: int | None = None
        self.text = ""  # what the model said, reasoning included, up to `MOST_TEXT_CHARS`
        self._told_tokens: int | None = None
        self._stamps: list[int] = []

    @property
    def tokens(self) -> int:
        """Tokens by the server's own count where it gives one, else the chunks that carried text."""
        return len(self._stamps) if self._told_tokens is None else self._told_tokens

    @property
    def mute(self) -> bool:
        """Whether the server counted tokens, and not a letter of text came."""
        return not self.text and self.tokens >= SURELY_TEXT

    @property
    def gaps(self) -> Gaps | None:
        """Inter-token gaps; None for fewer than two tokens."""
        gaps = sorted((b - a) / 1e6 for a, b in zip(self._stamps, self._stamps[1:], strict=False))
        if not gaps:
            return None
        return Gaps(n=len(gaps), p50_ms=_quantile(gaps, 0.5), p99_ms=_quantile(gaps, 0.99), max_ms=gaps[-1])

    def fail(self, error: str, detail: str = "") -> None:
        """Record the first thing that went wrong; later ones follow from it."""
        if not self.error:
            self.error, self.detail = error, detail[:DETAIL_CHARS]

    def event(self, data: bytes, now_ns: int) -> None:
        """Take in the data of one server-sent event."""
        self.last_ns = now_ns
        if data.strip() == DONE:
            self.done = True
            return
        try:
            chunk = _decode(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            self.fail("protocol", f"{error}: {_text(data)}")
            return
        self._take(chunk, now_ns)

    def end(self) -> None:
        """The stream is over: whatever is still missing is an error."""
        if self.error:
            return
        if not self.done:
            self.fail("truncated", "the stream ended without its end marker")
        elif not self.finish:
            self.fail("truncated", "the stream ended without a finish reason")
        elif self.tokens < 1:
            self.fail("no-tokens", f"finished ({self.finish}) without a token")

    def _take(self, chunk: _Chunk, now_ns: int) -> None:
        if bytes(chunk.error) not in (b"", b"null"):
            self.fail("in-band", _error_text(bytes(chunk.error)))
        elif chunk.object == "error":
            self.fail("in-band", chunk.message or "")
        carries = bool(chunk.text)
        if chunk.text:  # native chunks repeat the whole text
            self.text = chunk.text[:MOST_TEXT_CHARS]
        for choice in chunk.choices or ():
            said = _said(choice)
            carries = carries or bool(said)
            self.text += said[: MOST_TEXT_CHARS - len(self.text)]
            self._finished(choice.finish_reason)
        told = chunk.usage.completion_tokens if chunk.usage else None
        asked = chunk.usage.prompt_tokens if chunk.usage else None
        if chunk.meta_info is not None:
            told, asked = chunk.meta_info.completion_tokens, chunk.meta_info.prompt_tokens
            # Native chunks repeat the whole text: only a grown count is a token, and a token may decode to no text.
            carries = told > (self._told_tokens or 0) if told is not None else carries
            self._finished(chunk.meta_info.finish_reason)
        if asked is not None:
            self.prompt_tokens = asked
        if told is not None:
            self._told_tokens = max(told, self._told_tokens or 0)
        if carries:
            self._stamps.append(now_ns)
        if self.first_ns is None and (carries or self._told_tokens):
            self.first_ns = now_ns

    def _finished(self, reason: _Finish | str | None) -> None:
        if reason is None:
            return
        kind, message = (reason.type, reason.message) if isinstance(reason, _Finish) else (reason, None)
        self.finish = kind
        if kind in _BAD_FINISH:
            self.fail("in-band", message or f"finish reason {kind}")


def _said(choice: _Choice) -> str:
    delta = choice.delta
    return (choice.text or "") + ((delta.reasoning_content or "") + (delta.content or "") if delta else "")


def _quantile(values: list[float], q: float) -> float:
    """The nearest-rank quantile of sorted values."""
    return values[max(0, math.ceil(q * len(values)) - 1)]


def _error_text(raw: bytes) -> str:
    try:
        return _decode_error(raw).message
    except (msgspec.MsgspecError, RecursionError):
        return _text(raw)


def _text(raw: bytes) -> str:
    return raw[: 4 * DETAIL_CHARS].decode(errors="replace")
