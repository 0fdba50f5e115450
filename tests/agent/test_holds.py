"""Clients that stop reading, vanish, lose patience or are aborted from elsewhere, by what the kernel says of them."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import scripted
from scripted import Connection, Server
from test_process import Gate
from test_waves import Flood, _number, _seen_streaming

from chaos.agent import blackhole

if TYPE_CHECKING:
    from collections.abc import Callable

    Start = Callable[..., scripted.Process]

MOST_IN_A_WINDOW = int(Path("/proc/sys/net/ipv4/tcp_rmem").read_text().split()[2])
"""Bytes that this kernel lets a receive buffer grow to."""


async def _look(agent: scripted.Process, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Have the agent look at what it holds until that is as wanted."""
    async with asyncio.timeout(scripted.PATIENCE_S):
        while True:
            before = len(agent.of("held"))
            await agent.say({"cmd": "look", "id": "w1"})
            await agent.until(lambda: len(agent.of("held")) > before)  # noqa: B023 - awaited at once
            if wanted(agent.of("held")[-1]):
                return agent.of("held")[-1]
            await asyncio.sleep(0.02)


async def _hold(agent: scripted.Process, how: str, sessions: object = "all") -> dict[str, Any]:
    await agent.say({"cmd": "wave", "id": "w1", "how": how, "sessions": sessions})
    await agent.until(lambda: bool(agent.of("wave")))
    return agent.of("wave")[0]


def _tokens(agent: scripted.Process) -> int:
    return agent.of("beat")[-1]["tokens"]


async def _grows(agent: scripted.Process) -> None:
    before = _tokens(agent)
    await agent.until(lambda: _tokens(agent) > before)


@pytest.mark.parametrize(("how", "sign"), [("stall", "with_unread"), ("blackhole", "with_dropped")])
async def test_a_held_client_takes_nothing_until_it_is_released(how: str, sign: str, start: Start) -> None:
    async with Server(Flood()) as server, start(server.url, sessions=2) as agent:
        await _seen_streaming(agent, {"streaming": 2})
        wave = await _hold(agent, how)
        assert (how, 2, 2, 2, "") == (
            wave["how"], wave["sessions"], wave["sockets"], wave["phases"]["streaming"], wave["problem"]
        )  # fmt: skip
        held = await _look(agent, lambda now: now[sign] == 2)
        assert (2, 2) == (held["open"], held["held"])
        beats = len(agent.of("beat"))
        await agent.until(lambda: len(agent.of("beat")) >= beats + 3)
        stood_still = {beat["tokens"] for beat in agent.of("beat")[-2:]}
        assert 1 == len(stood_still)
        await agent.say({"cmd": "release", "id": "w1", "close": False})
        await _look(agent, lambda now: (now["open"], now["held"]) == (2, 0))
        await _grows(agent)
    assert [] == agent.of("end")


async def test_the_window_of_a_stalled_client_closes_after_few_bytes(start: Start) -> None:
    async with Server(Flood()) as server, start(server.url) as agent:
        await _seen_streaming(agent, {"streaming": 1})
        await _hold(agent, "stall")
        seen = [0]

        def full(now: dict[str, Any]) -> bool:
            seen.append(now["unread"])
            return seen[-1] == seen[-2] > 0

        await _look(agent, full)
    assert max(seen) <= MOST_IN_A_WINDOW


@pytest.mark.parametrize("how", ["stall", "blackhole"])
async def test_a_held_client_may_be_closed_instead(how: str, start: Start) -> None:
    async with Server(Flood()) as server, start(server.url, sessions=2, rounds=5) as agent:
        await _seen_streaming(agent, {"streaming": 2})
        await _hold(agent, how)
        await agent.say({"cmd": "release", "id": "w1", "close": True})
        assert 0 == await agent.ended()
    assert [("cancelled", "fault", "wave w1")] * 2 == [
        (e["error"], e["ended_by"], e["detail"]) for e in agent.of("end")
    ]


async def test_a_black_hole_does_not_even_answer_a_farewell(start: Start) -> None:
    gate = Gate(tokens=1)
    async with Server(gate) as server, start(server.url) as agent:
        await _seen_streaming(agent, {"streaming": 1})
        await _hold(agent, "blackhole")
        server.connections[0].writer.close()
        await _look(agent, lambda now: now["with_dropped"] == 1 and now["open"] == 1)
        await agent.say({"cmd": "release", "id": "w1", "close": False})
        assert 0 == await agent.ended()
    (end,) = agent.of("end")
    assert ("truncated", "fault") == (end["error"], end["ended_by"])


async def test_streaming_clients_are_held_before_waiting_ones(start: Start) -> None:
    waiting, streaming = Gate(), Gate(tokens=1)

    async def script(connection: Connection) -> None:
        await (streaming if _number(connection) >= 2 else waiting)(connection)

    async with Server(script) as server, start(server.url, sessions=4) as agent:
        await _seen_streaming(agent, {"waiting": 2, "streaming": 2})
        wave = await _hold(agent, "stall", 2)
    assert {"connecting": 0, "waiting": 0, "streaming": 2, "thinking": 0} == wave["phases"]


async def test_impatient_clients_give_up_one_after_the_other(start: Start) -> None:
    async with Server(Gate()) as server, start(server.url, sessions=3, ramp_s=0.6) as agent:
        await server.until(lambda: len(server.connections) == 3)
        await agent.say({"cmd": "wave", "id": "w1", "how": "timeout", "sessions": "all", "deadline_s": 1.0})
        assert 0 == await agent.ended()
    (wave,) = agent.of("wave")
    assert ("timeout", 3, 3) == (wave["how"], wave["sessions"], wave["sockets"])
    assert wave["first"] < wave["last"]
    sent = {event["session"]: event["sent"] for event in agent.of("start")}
    gave_up = agent.of("end")
    assert [("cancelled", "fault")] * 3 == [(event["error"], event["ended_by"]) for event in gave_up]
    # None before its own time was over (but for the milliseconds that a loop's timers are early).
    assert all(event["t"] - sent[event["session"]] >= 990_000_000 for event in gave_up)


class Aborting:
    """A server script that ends a request as an engine ends one it was told to abort."""

    def __init__(self) -> None:
        self.aborted = asyncio.Event()

    async def __call__(self, connection: Connection) -> None:
        await connection.send(scripted.head("200 OK", scripted.CHUNKED))
        await self.aborted.wait()
        error = json.dumps({"error": {"message": "Abort in waiting queue"}}).encode()
        await connection.send(scripted.chunked(scripted.sse([error, b"[DONE]"])))


@pytest.mark.parametrize("api", ["chat", "completions", "generate"])
async def test_requests_to_be_aborted_are_named_as_their_bodies_name_them(api: str, start: Start) -> None:
    script = Aborting()
    async with Server(script) as server, start(server.url, sessions=12, rounds=3, api=api, rid=True) as agent:
        await server.until(lambda: len(server.connections) == 12)
        wave = await _hold(agent, "abort-api", 11)
        assert {connection.body["rid"] for connection in server.connections} > set(wave["rids"])
        assert ("abort-api", 11, 11) == (wave["how"], wave["sockets"], len(wave["rids"]))
        await agent.say({"cmd": "drain"})
        script.aborted.set()
        assert 0 == await agent.ended()
    assert [("in-band", "fault")] * 11 == [
        (end["error"], end["ended_by"]) for end in agent.of("end") if f"t-{end['req']}" in wave["rids"]
    ]


async def test_no_id_of_a_request_is_the_beginning_of_another_one(start: Start) -> None:
    """Trap 43: engines abort whatever begins with the id they are given."""
    async with Server(Gate()) as server, start(server.url, sessions=12, first_session=95, rid=True) as agent:
        await server.until(lambda: len(server.connections) == 12)
        rids = [str(connection.body["rid"]) for connection in server.connections]
        await agent.say({"cmd": "stop"})
        await agent.ended()
    assert 12 == len(set(rids))
    assert 1 == len({len(rid) for rid in rids})


def test_this_machine_can_make_black_holes_without_privileges() -> None:
    assert "" == blackhole.why_impossible()
    with socket.socket() as sock:
        with pytest.raises(OSError, match="No such file"):
            blackhole.detach(sock)
        assert 0 == blackhole.drops(sock)
