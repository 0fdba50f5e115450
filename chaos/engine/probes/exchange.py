"""One canary on the wire: sends the request, folds the streamed answer, never hangs up on a request in progress."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import msgspec

from chaos.engine.probes.answers import Answer
from chaos.engine.probes.http import OUR_WAY, TRANSPORT_ERRORS, describe
from chaos.engine.probes.sse import SseDecoder, SseError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

    import httpx

    from chaos.engine.ports import Clock
    from chaos.model.section import Api

DRAIN_S = 5.0
"""After the end marker the engine is done with a request; how long the server may take to end the response."""
PROMPT_WORDS = 16
SAME_PROMPT = "Tell a short story about a red boat on a cold lake in the north, with a fox and an old man in it."
"""Asked word for word again and again, where answers can only be compared with each other."""
HTTP_OK = 200
HEAD_BYTES = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Where the two servers of a pair meet for one request."""

    host: str
    port: int
    room: int

    def fields(self) -> dict[str, str | int]:
        """What the router would add to the body."""
        return {"bootstrap_host": self.host, "bootstrap_port": self.port, "bootstrap_room": self.room}


def fresh_prompt(run_id: str, req: str, wish: str = "") -> str:
    """A prompt whose first word is new to any cache, with a wish at its end."""
    digest = hashlib.sha256(f"{run_id}/{req}".encode()).hexdigest()
    words = [digest[:16], *(digest[n : n + 3] for n in range(16, 16 + 3 * PROMPT_WORDS, 3))]
    return " ".join([*words, wish] if wish else words)


def request_body(
    api: Api,
    run_id: str,
    req: str,
    *,
    model: str,
    max_tokens: int,
    prompt: str,
    meeting: Meeting | None = None,
    named: bool = True,
    n: int = 1,
) -> bytes:
    """The request, for one answer to it or `n`.

    Its id, `canary-RUN-000123`, begins as packs expect of our own traffic, is no prefix of another one (SGLang's
    /abort_request matches prefixes), and is no other run's.
    """
    kind, _, number = req.rpartition("-")
    rid = f"{kind}-{run_id}-{number}"
    where = meeting.fields() if meeting else {}
    if api == "generate":
        sampling = {"max_new_tokens": max_tokens, "temperature": 0, **({"n": n} if n != 1 else {})}
        return msgspec.json.encode({"text": prompt, "sampling_params": sampling, "stream": True, "rid": rid, **where})
    asked = {"messages": [{"role": "user", "content": prompt}]} if api == "chat" else {"prompt": prompt}
    return msgspec.json.encode(
        {
            "model": model,
            **asked,
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "user": rid,
            **({"n": n} if n != 1 else {}),
            **({"rid": rid} if named else {}),  # not OpenAI's: some servers refuse what they do not know
            **where,
        }
    )


async def exchange(
    http: httpx.AsyncClient,
    url: str,
    body: bytes,
    *,
    headers: Mapping[str, str],
    answer: Answer,
    clock: Clock,
    answered: Callable[[], None],
    whole: bool = True,
) -> None:
    """Send `body` and fold what comes back into `answer`; `answered` is called once a stream is complete.

    There is no timeout: only cancelling it hangs up. An answer that need not be `whole` may lack its tokens and its end
    marker, not the end of its response.
    """
    try:
        async with http.stream("POST", url, content=body, headers=dict(headers), timeout=None) as response:
            answer.status = response.status_code
            if response.status_code != HTTP_OK:
                said = await _head(response)
                answer.fail("status", f"HTTP {response.status_code}: {said.decode(errors='replace')}")
            elif "json" in response.headers.get("content-type", ""):
                answer.event(await _head(response), clock.now_ns())
                answer.fail("protocol", "one JSON object where a stream was asked for")
            else:
                async with aclosing(cast("AsyncGenerator[bytes, None]", response.aiter_raw())) as chunks:
                    await _read(chunks, answer, clock, whole=whole)
                    answered()
                    await _drain(chunks)
    except TRANSPORT_ERRORS as error:
        answer.fail(*describe(error))


async def exchange_pair(
    http: httpx.AsyncClient,
    urls: tuple[str, str],
    body: bytes,
    *,
    headers: Mapping[str, str],
    answer: Answer,
    clock: Clock,
    answered: Callable[[], None],
) -> None:
    """Send `body` to prefill and decode at once; decode's answer is the answer, and as for a router prefill must end.

    When one side fails the other is still read to its end, however long that takes: hanging up on it is a fault. Only
    when our own way to one side broke, which hung up on that one, the other is hung up on, too: it may wait for good
    for what will not come, and many such would look like a leak.
    """
    of_prefill = Answer()
    left = len(urls)

    def half() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            _join(answer, of_prefill)
            answered()

    async def ask(url: str, of: Answer, *, whole: bool) -> None:
        await exchange(http, url, body, headers=headers, answer=of, clock=clock, answered=half, whole=whole)
        if of.error == OUR_WAY:
            for side in sides:
                side.cancel()

    async with asyncio.TaskGroup() as group:
        sides = [
            group.create_task(ask(urls[0], of_prefill, whole=False)),
            group.create_task(ask(urls[1], answer, whole=True)),
        ]
    _join(answer, of_prefill)


def _join(answer: Answer, of_prefill: Answer) -> None:
    if of_prefill.error:
        answer.fail(of_prefill.error, f"prefill: {of_prefill.detail}")
        answer.status = answer.status if of_prefill.status in (None, HTTP_OK) else of_prefill.status


async def _read(chunks: AsyncIterator[bytes], answer: Answer, clock: Clock, *, whole: bool) -> None:
    """Read events until the answer is complete.

    What cannot be read is still read to its end: the engine may be at work on it, and hanging up is a fault.
    """
    decoder = SseDecoder()
    readable = True
    async for chunk in chunks:
        if not readable:
            continue
        now_ns = clock.now_ns()
        try:
            for event in decoder.feed(chunk):
                answer.event(event, now_ns)
        except SseError as error:
            readable = False
            answer.fail("protocol", str(error))
        if answer.done or answer.error == "in-band":
            break
    else:
        for event in decoder.finish():
            answer.event(event, clock.now_ns())
    if whole:
        answer.end()


async def _head(response: httpx.Response) -> bytes:
    """Read a whole body and keep the beginning of it."""
    head = bytearray()
    async for chunk in response.aiter_raw():
        head += chunk[: HEAD_BYTES - len(head)]
    return bytes(head)


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Let the server end the response of an answered request itself, for a while."""
    try:
        async with asyncio.timeout(DRAIN_S):
            async for _ in chunks:
                pass
    except TimeoutError:
        return
