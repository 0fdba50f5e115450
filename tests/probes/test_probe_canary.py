"""Canaries: what they ask, how they are paced, that a waiting one is never hung up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import TYPE_CHECKING

import httpx
import pytest
from probe_helpers import ModelServer, Recorder, VirtualClock, serving, settle, until

from chaos.agent.codeword import codeword
from chaos.engine.owners import Owners
from chaos.engine.ports import SystemClock
from chaos.engine.probes.canary import MAX_OPEN, CanaryProbe, Route
from chaos.engine.probes.http import make_http
from chaos.model.events import RequestEnded, RequestOverdue, RequestStarted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from chaos.model.section import Api

GOOD = (
    b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


def probe(http: httpx.AsyncClient, url: str, emit: Recorder, clock: object, **changes: object) -> CanaryProbe:
    settings: dict[str, object] = {"interval_s": 1.0, "deadline_s": 20.0, "run_id": "r1", "model": "m"}
    return CanaryProbe(
        [Route(path="routed", url=url, api="chat")], http=http, emit=emit, clock=clock, **{**settings, **changes}
    )


@contextlib.asynccontextmanager
async def running(canary: CanaryProbe) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        group.create_task(canary.run())
        await settle()
        try:
            yield
        finally:
            await canary.close()


@contextlib.asynccontextmanager
async def virtual(
    handler: Callable[[httpx.Request], Awaitable[httpx.Response]], **changes: object
) -> AsyncIterator[tuple[CanaryProbe, VirtualClock, Recorder]]:
    """A canary probe on virtual time whose requests `handler` answers."""
    clock, emit = VirtualClock(), Recorder()
    async with httpx.AsyncClient(transport=httpx.MockTransport(handler)) as http:
        canary = probe(http, "http://target/v1/chat/completions", emit, clock, **changes)
        async with running(canary):
            yield canary, clock, emit


async def answered(request: httpx.Request) -> httpx.Response:
    async def stream() -> AsyncIterator[bytes]:
        yield GOOD

    return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream())


async def never(request: httpx.Request) -> httpx.Response:
    await asyncio.Event().wait()
    raise AssertionError


def started_at(emit: Recorder) -> list[float]:
    starts = [event.intended_ns / 1e9 for event in emit.of(RequestStarted)]
    return [at - starts[0] for at in starts]


# ---------------------------------------------------------------------------------------------- pacing


async def test_a_target_that_answers_gets_one_canary_per_interval() -> None:
    async with virtual(answered) as (_, clock, emit):
        await clock.advance(5.5)
    assert [0, 1, 2, 3, 4, 5] == started_at(emit)
    assert [True] * 6 == [event.ok for event in emit.of(RequestEnded)]


async def test_a_target_that_hangs_gets_fresh_canaries_ever_more_slowly_up_to_the_cap() -> None:
    async with virtual(never) as (canary, clock, emit):
        await clock.advance(600)
        assert [0, 1, 3, 7, 15, 31, 51, 71] == started_at(emit)
        assert (MAX_OPEN, MAX_OPEN) == (canary.open_count, canary.overdue_count)
        assert [] == emit.of(RequestEnded)


async def test_at_the_cap_a_canary_starts_as_soon_as_one_ends() -> None:
    release = asyncio.Event()
    waited = 0

    async def first_held(request: httpx.Request) -> httpx.Response:
        nonlocal waited
        waited += 1
        await (release.wait() if waited == 1 else asyncio.Event().wait())
        return await answered(request)

    async with virtual(first_held) as (_, clock, emit):
        await clock.advance(600)
        release.set()
        await clock.advance(2)
        assert MAX_OPEN + 1 == len(emit.of(RequestStarted))


async def test_after_a_mark_the_next_canary_is_due_at_once_whatever_still_hangs() -> None:
    async with virtual(never) as (canary, clock, emit):
        await clock.advance(600)
        canary.mark()
        await clock.advance(8)
        assert [0, 1, 3, 7] == [at - started_at(emit)[MAX_OPEN] for at in started_at(emit)[MAX_OPEN:]]


async def test_each_overdue_canary_is_reported_once_and_stays_open() -> None:
    async with virtual(never) as (canary, clock, emit):
        await clock.advance(21.5)
        overdue = emit.of(RequestOverdue)
        assert [("canary-000001", 20.0), ("canary-000002", 20.0)] == [(event.req, event.age_s) for event in overdue]
        assert canary.overdue_count == 2
        assert canary.open_count == 5


async def test_paused_no_canary_starts_and_those_open_stay_open() -> None:
    async with virtual(never) as (canary, clock, emit):
        await clock.advance(1.5)
        canary.pause()
        await clock.advance(60)
        assert (2, 2) == (len(emit.of(RequestStarted)), canary.open_count)
        canary.resume()
        await clock.advance(1)
        assert 3 == canary.open_count


@pytest.mark.parametrize(("only", "left"), [("routed", ["canary-000003", "canary-000004", "canary-000005"]), ("", [])])
async def test_given_up_is_what_is_overdue_and_whatever_is_on_a_path_that_is_asked_no_more(only, left) -> None:
    async with virtual(never) as (canary, clock, emit):
        await clock.advance(21.5)  # two are overdue and three are not
        await canary.give_up([only])
        given_up = emit.of(RequestEnded)
        assert {"harness"} == {event.ended_by for event in given_up}
        assert left == sorted({event.req for event in emit.of(RequestStarted)} - {event.req for event in given_up})
        started = canary.started
        await clock.advance(60)
        assert bool(only) is (canary.started > started)
        canary.resume()
        asked = canary.started
        await clock.advance(1)
        assert canary.started > asked


async def test_stop_waits_for_young_canaries_up_to_their_deadline_and_hangs_none_up() -> None:
    async with virtual(never) as (canary, clock, emit):
        await clock.advance(3.5)
        stopping = asyncio.create_task(canary.stop())
        await clock.advance(15)
        assert not stopping.done()
        await clock.advance(10)
        assert stopping.done()
        assert (3, 3, []) == (canary.open_count, canary.overdue_count, emit.of(RequestEnded))


async def test_the_last_canaries_are_the_last_and_wait_no_longer_than_told() -> None:
    async with virtual(never) as (canary, clock, emit):
        canary.pause()
        await clock.advance(30)
        last = asyncio.create_task(canary.last(5.0))
        canary.resume()
        await clock.advance(4.9)
        assert not last.done()
        await clock.advance(30)
        assert last.done()
        assert ["canary-000001", "canary-000002"] == [event.req for event in emit.of(RequestStarted)]
        assert [20.0, 5.0] == [event.deadline_s for event in emit.of(RequestOverdue)]


async def test_close_journals_every_open_canary_as_hung_up_by_the_harness() -> None:
    async with virtual(never) as (canary, clock, emit):
        await clock.advance(3.5)
        await canary.close()
        assert [("cancelled", "harness", False)] * 3 == [
            (event.error, event.ended_by, event.ok) for event in emit.of(RequestEnded)
        ]
        assert 0 == canary.open_count


async def test_a_canary_hung_up_before_its_first_step_is_journaled_too() -> None:
    async with virtual(never) as (canary, _, emit):
        canary.pause()
        last = asyncio.create_task(canary.last(5.0))
        await asyncio.sleep(0)
        await canary.close()
        await last
    assert sorted(event.req for event in emit.of(RequestStarted)) == sorted(
        event.req for event in emit.of(RequestEnded)
    )


async def test_a_cancelled_run_says_so_of_every_open_canary() -> None:
    clock, emit = VirtualClock(), Recorder()
    async with httpx.AsyncClient(transport=httpx.MockTransport(never)) as http:
        run = asyncio.create_task(probe(http, "http://target/", emit, clock).run())
        await clock.advance(0.5)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert ["harness"] == [event.ended_by for event in emit.of(RequestEnded)]


# ---------------------------------------------------------------------------------------------- on the wire


async def test_what_a_canary_asks_is_tagged_and_no_prefix_of_another() -> None:
    server, emit = ModelServer(), Recorder()
    server.gate.set()
    async with serving(v1__chat__completions=server) as url, make_http() as http:
        canary = probe(http, url + "/v1/chat/completions", emit, SystemClock(), interval_s=0.02)
        async with running(canary):
            await until(lambda: len(emit.of(RequestEnded)) >= 3)
            await canary.stop()
    bodies = [body for _, body, _ in server.asked]
    assert ("canary-r1-000001", "canary-r1-000001") == (bodies[0]["rid"], bodies[0]["user"])
    assert {"r1"} == {headers["x-pdchaos-run"] for _, _, headers in server.asked}
    prompts = [body["messages"][0]["content"] for body in bodies]
    assert len(set(prompts)) == len({prompt[:16] for prompt in prompts}) == len(bodies)
    assert {(True, 8, 0)} == {(body["stream"], body["max_tokens"], body["temperature"]) for body in bodies}


async def test_an_answered_canary_has_its_stamps_tokens_and_finish() -> None:
    server, emit = ModelServer(), Recorder()
    server.gate.set()
    async with serving(v1__chat__completions=server) as url, make_http() as http:
        canary = probe(http, url + "/v1/chat/completions", emit, SystemClock())
        async with running(canary):
            await canary.last(20.0)
    ended = emit.of(RequestEnded)[-1]
    assert (True, 200, 2, "length", "server", "routed") == (
        ended.ok,
        ended.status,
        ended.tokens,
        ended.finish,
        ended.ended_by,
        ended.path,
    )
    assert ended.sent_ns <= ended.first_ns <= ended.last_ns <= ended.t_ns
    assert 0 == server.hung_up


@pytest.mark.parametrize("api", ["completions", "generate"])
async def test_other_apis_are_asked_in_their_own_shape(api: str) -> None:
    server, emit = ModelServer(), Recorder()
    server.gate.set()
    async with serving(ask=server) as url, make_http() as http:
        route = Route(path="routed", url=url + "/ask", api=api)
        canary = CanaryProbe(
            [route], http=http, emit=emit, clock=SystemClock(), run_id="r", model="m", interval_s=1, deadline_s=9
        )
        async with running(canary):
            await canary.last(9)
    body = server.asked[0][1]
    assert ("prompt" in body, "text" in body) == (api == "completions", api == "generate")


async def test_a_canary_held_for_long_is_not_hung_up_until_close() -> None:
    server, emit = ModelServer(), Recorder()
    async with serving(v1__chat__completions=server) as url, make_http() as http:
        canary = probe(http, url + "/v1/chat/completions", emit, SystemClock(), interval_s=0.02, deadline_s=0.05)
        async with running(canary):
            await until(lambda: canary.overdue_count >= 5)
            await canary.stop()
            assert (0, []) == (server.hung_up, emit.of(RequestEnded))
            assert len(server.asked) == canary.open_count >= 5
        await until(lambda: server.hung_up == len(server.asked))
    assert {"harness"} == {event.ended_by for event in emit.of(RequestEnded)}


async def test_a_held_canary_that_is_answered_late_ends_by_itself_and_is_late_but_right() -> None:
    server, emit = ModelServer(), Recorder()
    async with serving(v1__chat__completions=server) as url, make_http() as http:
        canary = probe(http, url + "/v1/chat/completions", emit, SystemClock(), deadline_s=0.05)
        async with running(canary):
            await until(lambda: emit.of(RequestOverdue))
            server.gate.set()
            await until(lambda: canary.open_count == 0)
            await canary.stop()
    assert 0 == server.hung_up
    assert emit.of(RequestEnded)[0].ok


async def once(handler: object) -> RequestEnded:
    """How one canary at a server that does `handler` ends."""
    emit = Recorder()
    async with serving(v1__chat__completions=handler) as url, make_http() as http:
        canary = probe(http, url + "/v1/chat/completions", emit, SystemClock())
        async with running(canary):
            await canary.last(20.0)
    return emit.of(RequestEnded)[0]


async def test_a_refusal_has_its_status_and_what_the_server_said() -> None:
    server = ModelServer(status=503)
    server.gate.set()
    ended = await once(server)
    assert ("status", 503, "server", True) == (ended.error, ended.status, ended.ended_by, "no worker" in ended.detail)


async def test_a_stream_cut_before_its_end_marker_is_truncated() -> None:
    server = ModelServer(events=ModelServer().events[:-1])
    server.gate.set()
    ended = await once(server)
    assert ("truncated", "server") == (ended.error, ended.ended_by)


async def test_an_error_inside_http_200_is_an_error() -> None:
    server = ModelServer(events=(b'data: {"error":{"message":"Decode transfer failed"}}\n\n', b"data: [DONE]\n\n"))
    server.gate.set()
    ended = await once(server)
    assert ("in-band", "Decode transfer failed", 200) == (ended.error, ended.detail, ended.status)


async def test_a_json_object_instead_of_a_stream_is_no_success() -> None:
    from aiohttp import web

    async def one_object(request: web.Request) -> web.Response:
        return web.json_response({"choices": [{"text": "a", "finish_reason": "stop"}]})

    async def an_error(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "no model"}})

    assert "protocol" == (await once(one_object)).error
    assert "in-band" == (await once(an_error)).error


async def test_a_stream_nobody_can_read_is_read_to_its_end_and_not_hung_up() -> None:
    server = ModelServer(events=(b"data: " + b"x" * (5 << 20), b"y" * 100, b"\n\n"))
    server.gate.set()
    assert "protocol" == (await once(server)).error
    assert 0 == server.hung_up


async def test_a_port_nobody_listens_on_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    emit = Recorder()
    async with make_http() as http:
        canary = probe(http, f"http://127.0.0.1:{port}/", emit, SystemClock())
        async with running(canary):
            await canary.last(20.0)
    assert ("refused", "error") == (emit.of(RequestEnded)[0].error, emit.of(RequestEnded)[0].ended_by)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"", "reset"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 999\r\n\r\ndata: {", "truncated"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\ndata:\r\n", "truncated"),
    ],
    ids=["closed", "not-http", "short", "cut-chunk"],
)
async def test_servers_that_break_off_are_told_apart(reply: bytes, error: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        await reader.readexactly(int(length[15:]))
        writer.write(reply)
        writer.close()

    emit = Recorder()
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, make_http() as http:
        port = server.sockets[0].getsockname()[1]
        canary = probe(http, f"http://127.0.0.1:{port}/", emit, SystemClock())
        async with running(canary):
            await canary.last(20.0)
    assert error == emit.of(RequestEnded)[0].error


async def test_environment_proxies_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    server = ModelServer()
    server.gate.set()
    assert (await once(server)).ok


def test_a_canary_body_is_json() -> None:
    from chaos.engine.probes.exchange import request_body

    assert "m" == json.loads(request_body("chat", "r", "canary-000001", model="m", max_tokens=1, prompt="x"))["model"]


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_server_that_refuses_unknown_fields_is_sent_none(api: Api) -> None:
    from chaos.engine.probes.exchange import request_body

    openai = {"model", "messages", "prompt", "max_tokens", "temperature", "stream", "stream_options", "user"}
    body = json.loads(request_body(api, "r", "canary-000001", model="m", max_tokens=1, prompt="x", named=False))
    assert set() == set(body) - openai
    assert "canary-r-000001" == body["user"]


# ---------------------------------------------------------------------------------------------- content


def says(answer: Callable[[str], str]) -> Callable[[httpx.Request], Awaitable[httpx.Response]]:
    """A server that answers a prompt with whatever `answer` makes of it."""

    async def respond(request: httpx.Request) -> httpx.Response:
        prompt = json.loads(request.content)["messages"][0]["content"]

        async def stream() -> AsyncIterator[bytes]:
            delta = {"choices": [{"delta": {"content": answer(prompt)}, "finish_reason": "stop"}]}
            usage = {"choices": [], "usage": {"prompt_tokens": len(prompt.split()), "completion_tokens": 3}}
            yield b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in (delta, usage))
            yield b"data: [DONE]\n\n"

        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream())

    return respond


def last_word(prompt: str) -> str:
    return prompt.rsplit(maxsplit=1)[-1]


async def ends(answer: Callable[[str], str], **changes: object) -> list[RequestEnded]:
    async with virtual(says(answer), **changes) as (_, clock, emit):
        await clock.advance(3.5)
    words = [event.words for event in emit.of(RequestStarted)]
    assert words == [event.prompt_tokens for event in emit.of(RequestEnded)]
    return emit.of(RequestEnded)


async def test_a_target_that_echoes_is_asked_for_a_codeword_every_time() -> None:
    assert [("ok", "")] * 4 == [(end.content, end.digest) for end in await ends(last_word, content="echo")]


@pytest.mark.parametrize("mode", ["auto", "known-answer"])
async def test_one_that_may_not_is_also_asked_the_same_question_again_and_again(mode: str) -> None:
    got = await ends(last_word, content=mode)
    assert ["ok", "unchecked", "ok", "unchecked"] == [end.content for end in got]
    assert ("", "") == (got[0].digest, got[2].digest)
    assert len(got[1].digest) == 12
    assert got[1].digest == got[3].digest


async def test_an_answer_without_its_codeword_lacks_it() -> None:
    assert {"missing"} == {end.content for end in await ends(lambda _: "well", content="echo")}


async def test_somebody_elses_codeword_is_told_by_the_name_of_its_request() -> None:
    text = f"{codeword('r1', 'g1-12-3')} {codeword('r1', 'c-999')}"
    got = await ends(lambda _: text, content="auto", owners=Owners(("agents", "users")))
    assert {("corrupted", "users-s0000012-r00003")} == {(end.content, end.whose) for end in got}


async def test_nothing_is_asked_for_where_content_is_not_checked() -> None:
    got = await ends(lambda prompt: codeword("r1", "c-999") + prompt)
    assert {("unchecked", "", "")} == {(end.content, end.whose, end.digest) for end in got}


async def test_tokens_by_count_without_a_letter_are_told_as_such() -> None:
    """Trap 40: HTTP 200, a finish reason, a token count, and no text."""

    async def mute(request: httpx.Request) -> httpx.Response:
        async def stream() -> AsyncIterator[bytes]:
            yield b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
            yield b'data: {"choices":[],"usage":{"completion_tokens":8}}\n\ndata: [DONE]\n\n'

        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream())

    async with virtual(mute) as (_, clock, emit):
        await clock.advance(0.5)
    assert [("", True)] == [(end.error, end.mute) for end in emit.of(RequestEnded)]
    assert {False} == {end.mute for end in await ends(last_word)}


def test_owners_know_their_requests_and_leave_others_alone() -> None:
    owners = Owners(("agents", "users"))
    assert ("g1", "c-7") == (owners.of_group("users"), owners.of_canary(7))
    assert "canary-000007" == owners.request("c-7")
    assert ["g2-1-0", "x-1", "g-1-0", "c"] == [owners.request(owner) for owner in ("g2-1-0", "x-1", "g-1-0", "c")]
