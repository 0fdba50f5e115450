"""Poison: each request is answered, is refused, or hangs and stays open; whatever it was is journaled and measured."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from test_load_and_waves import NoProbes, of

from chaos.agent.codeword import codeword
from chaos.engine.faults.kit import Asking, FaultKit
from chaos.engine.faults.registry import prepare
from chaos.engine.owners import Owners
from chaos.engine.ports import SystemClock
from chaos.engine.probes.http import make_http
from chaos.model import events as ev
from chaos.model.scenario import Step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
REFUSAL = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 7\r\nconnection: close\r\n\r\ntoo odd"


def answer(text: str, prompt_tokens: int = 3) -> bytes:
    said = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}
    usage = {"choices": [], "usage": {"completion_tokens": 2, "prompt_tokens": prompt_tokens}}
    return OK + b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in (said, usage)) + b"data: [DONE]\n\n"


class Nobody:
    """A load that is not there."""

    def census(self, group: str | None = None) -> dict[str, int] | None:
        return None


@contextlib.asynccontextmanager
async def asked(reply: Callable[[dict[str, Any]], bytes | None]) -> AsyncIterator[tuple[FaultKit, list, list]]:
    """A router that replies to each body with bytes, or never; it says that contexts have 100 tokens."""
    bodies: list[dict[str, Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        finally:  # also when the test is over before it has seen its client leave
            writer.close()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if head.startswith(b"get"):
            models = json.dumps({"data": [{"id": "m", "max_model_len": 100}]}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(models) + models)
        else:
            length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
            bodies.append(json.loads(await reader.readexactly(length)))
            said = reply(bodies[-1])
            if said is None:
                await reader.read()
            else:
                writer.write(said)

    events: list[ev.AnyEvent] = []
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, make_http() as http:
        asking = Asking(
            model="m",
            urls={"chat": base + "/v1/chat/completions", "generate": base + "/generate"},
            models_url=base + "/v1/models",
            owners=Owners(("agents",)),
        )
        kit = FaultKit(
            fleet=Nobody(),
            probes=NoProbes(),
            emit=events.append,
            clock=SystemClock(),
            run_id="r1",
            http=http,
            asking=asking,
        )
        yield kit, events, bodies
        server.close()


def poison(kind: str, **more: object) -> Step:
    return Step.model_validate({"id": "p", "at": 0.0, "poison": {"kind": kind, **more}})


async def play(step: Step, reply: Callable[[dict[str, Any]], bytes | None]) -> tuple[list, list]:
    async with asked(reply) as (kit, events, bodies), prepare(step, kit):
        pass
    return events, bodies


async def test_refusals_are_counted_by_what_they_say() -> None:
    events, bodies = await play(poison("n2", count=3), lambda _: REFUSAL)
    assert [2, 2, 2] == [body["n"] for body in bodies]
    applied, verified = of(events, ev.FaultStep)
    assert (True, "3") == (applied.ok, applied.measured["requests"])
    assert (True, {"refused with HTTP 400": "3", "hanging": "0"}) == (verified.ok, verified.measured)
    ends = of(events, ev.RequestEnded)
    assert {("poison", "poison", "status", "server")} == {(e.kind, e.group, e.error, e.ended_by) for e in ends}


@pytest.mark.parametrize(("kind", "words"), [("over-context", 164), ("tiny", 1), ("empty", 0), ("n2", 16)])
async def test_each_kind_is_as_long_as_it_must_be(kind: str, words: int) -> None:
    events, bodies = await play(poison(kind, api="generate"), lambda _: REFUSAL)
    assert words == len(bodies[0]["text"].split())
    assert [words] == [start.words for start in of(events, ev.RequestStarted)]


async def test_what_hangs_is_told_and_left_open_while_the_run_watches() -> None:
    async with asked(lambda _: None) as (kit, events, _):
        async with prepare(poison("tiny", count=2, wait=0.2), kit):
            verified = of(events, ev.FaultStep)[-1]
            assert (True, {"hanging": "2"}) == (verified.ok, verified.measured)
            assert [] == of(events, ev.RequestEnded)
        ends = of(events, ev.RequestEnded)
    assert [("cancelled", "fault")] * 2 == [(end.error, end.ended_by) for end in ends]


async def test_what_hangs_is_given_up_before_the_deployment_is_left_at_rest() -> None:
    async with asked(lambda _: None) as (kit, events, _), prepare(poison("tiny", count=2, wait=0.2), kit):
        (give_up,) = kit.before_rest
        await give_up()
        assert 2 == len(of(events, ev.RequestEnded))
    assert 2 == len(of(events, ev.RequestEnded))


async def test_an_answer_with_somebody_elses_text_is_told() -> None:
    """B75: what a rejected prefill hands over becomes text, sometimes another request's."""
    text = codeword("r1", "g0-3-1")
    events, _ = await play(poison("over-context"), lambda _: answer(f"well: {text}", prompt_tokens=1))
    (end,) = of(events, ev.RequestEnded)
    assert ("corrupted", "agents-s0000003-r00001", 1) == (end.content, end.whose, end.prompt_tokens)
    assert {"answered": "1", "hanging": "0"} == of(events, ev.FaultStep)[-1].measured


async def test_poison_that_reaches_nobody_has_not_landed() -> None:
    async with asked(lambda _: REFUSAL) as (kit, events, _):
        pass
    events.clear()
    async with make_http() as http:
        gone = FaultKit(
            fleet=kit.fleet, probes=kit.probes, emit=events.append, clock=SystemClock(), http=http, asking=kit.asking
        )
        async with prepare(poison("tiny"), gone):
            pass
    verified = of(events, ev.FaultStep)[-1]
    assert (False, "not one of them reached the router") == (verified.ok, verified.detail)
