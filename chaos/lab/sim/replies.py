"""What clients get: SSE chunks and JSON bodies of the native and the OpenAI APIs, errors included.

Failures come in the engine's several ways: not streamed, HTTP 500 with an error object; a native stream, HTTP 200 and a
chunk whose finish reason is an abort; an OpenAI stream, HTTP 200 and an error object in the stream.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from chaos.lab.sim.request import Api

if TYPE_CHECKING:
    from chaos.lab.sim.request import Finish, Req

DONE = b"data: [DONE]\n\n"


def error_body(message: str, status: int, kind: str = "") -> dict[str, object]:
    """The engine's error object."""
    return {"object": "error", "message": message, "type": kind or str(status), "param": None, "code": status}


def sse(body: object) -> bytes:
    """One event of a stream."""
    return b"data: " + _compact(body).encode() + b"\n\n"


def _compact(body: object) -> str:
    return json.dumps(body, separators=(",", ":"))


def finish_reason(finish: Finish | None, generated: int) -> dict[str, object] | None:
    """The native form."""
    if finish is None:
        return None
    if finish.kind == "length":
        return {"type": "length", "length": generated}
    reason: dict[str, object] = {"type": "abort", "message": finish.message}
    if finish.status is not None:
        reason["status_code"] = finish.status
    return reason


class Reply:
    """Turns a request's tokens into what its client gets; one object per request."""

    def __init__(self, req: Req, model: str) -> None:
        self.req = req
        self.model = model
        self._started = False
        self._parts: list[str] = []
        self._said = 0  # tokens already given out
        self._native_text = ""  # the text so far, JSON-escaped: native streams repeat it in every chunk
        self._created = int(time.time())

    # ------------------------------------------------------------------ streams

    def chunks(self) -> bytes:
        """The events for everything that happened since the last call, the end of the stream included."""
        texts, self.req.pending = self.req.pending, []
        finish = self.req.finish
        self._said += len(texts)
        if self.req.api is Api.GENERATE:
            events = [self._native_chunk("".join(texts), finish)] if texts or finish else []
        else:
            events = self._openai_chunks("".join(texts), finish)
        return b"".join([*events, DONE] if finish else events)

    def _native_chunk(self, text: str, finish: Finish | None) -> bytes:
        self._native_text += json.dumps(text)[1:-1]
        meta = _compact(self._meta(finish))
        return f'data: {{"text":"{self._native_text}","output_ids":[],"meta_info":{meta}}}\n\n'.encode()

    def _openai_chunks(self, text: str, finish: Finish | None) -> list[bytes]:
        if finish is not None and finish.failed:
            return [sse({"error": error_body(finish.message, finish.status or 500, "INTERNAL_SERVER_ERROR")})]
        events = []
        chat = self.req.api is Api.CHAT
        if chat and not self._started:
            events.append(self._openai_chunk({"role": "assistant", "content": ""}, None))
        self._started = True
        if text:
            events.append(self._openai_chunk({"content": text} if chat else text, None))
        if finish is not None:
            events.append(self._openai_chunk({} if chat else "", finish.kind))
            if self.req.include_usage:
                events.append(sse({**self._envelope(chunk=True), "choices": [], "usage": self._usage()}))
        return events

    def _openai_chunk(self, delta: dict[str, str] | str, reason: str | None) -> bytes:
        choice: dict[str, object] = {"index": 0, "logprobs": None, "finish_reason": reason, "matched_stop": None}
        choice["delta" if self.req.api is Api.CHAT else "text"] = delta
        return sse({**self._envelope(chunk=True), "choices": [choice]})

    # ------------------------------------------------------------------ whole answers

    def take(self) -> None:
        """Move what was generated into the answer that is being collected."""
        self._parts += self.req.pending
        self._said += len(self.req.pending)
        self.req.pending = []

    def body(self) -> tuple[int, dict[str, object]]:
        """Status and body of an answer that is not streamed."""
        finish = self.req.finish
        if finish is not None and finish.failed:
            return finish.status or 500, error_body(finish.message, finish.status or 500)
        text = "".join(self._parts)
        if self.req.api is Api.GENERATE:
            return 200, {"text": text, "output_ids": [], "meta_info": self._meta(finish)}
        choice: dict[str, object] = {"index": 0, "logprobs": None, "matched_stop": None}
        choice["finish_reason"] = finish.kind if finish else None
        if self.req.api is Api.CHAT:
            choice["message"] = {"role": "assistant", "content": text, "reasoning_content": None, "tool_calls": None}
        else:
            choice["text"] = text
        return 200, {**self._envelope(chunk=False), "choices": [choice], "usage": self._usage()}

    # ------------------------------------------------------------------ parts

    def _envelope(self, *, chunk: bool) -> dict[str, object]:
        kind = "text_completion" if self.req.api is Api.COMPLETIONS else "chat.completion"
        if chunk and self.req.api is Api.CHAT:
            kind += ".chunk"
        return {"id": self.req.rid, "object": kind, "created": self._created, "model": self.model}

    def _usage(self) -> dict[str, object]:
        prompt = self.req.prompt_len
        return {"prompt_tokens": prompt, "total_tokens": prompt + self._said, "completion_tokens": self._said}

    def _meta(self, finish: Finish | None) -> dict[str, object]:
        return {
            "id": self.req.rid,
            "finish_reason": finish_reason(finish, self.req.generated),
            "prompt_tokens": self.req.prompt_len,
            "weight_version": "default",
            "total_retractions": self.req.retractions,
            "completion_tokens": self._said,
            "cached_tokens": 0,
            "e2e_latency": round(time.monotonic() - self.req.created, 6),
        }
