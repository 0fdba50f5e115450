"""Waves from inside the agent: the right sessions, the right kind of hang-up, an honest account."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest
import scripted
from scripted import Connection, Server
from test_process import ANSWER, Gate

from chaos.agent.client import Call
from chaos.agent.wire import unread_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    Start = Callable[..., scripted.Process]


def _wave(how: str, sessions: object = "all") -> dict[str, object]:
    return {"cmd": "wave", "id": "w1", "how": how, "sessions": sessions}


def _number(connection: Connection) -> int:
    return int(connection.headers["x-request-id"].split("-s")[1][:7])


async def _seen_streaming(agent: scripted.Process, phases: dict[str, int]) -> None:
    def reached() -> bool:
        beats = agent.of("beat")
        return bool(beats) and all(beats[-1]["phases"][name] == count for name, count in phases.items())

    await agent.until(reached)


@pytest.mark.parametrize(
    ("how", "end", "counts"), [("rst", "reset", (0, 4)), ("fin", "fin", (4, 0)), ("cancel", "fin", (4, 0))]
)
async def test_a_wave_ends_waiting_sessions_in_its_own_way(
    how: str, end: str, counts: tuple[int, int], start: Start
) -> None:
    async with Server(Gate()) as server, start(server.url, sessions=4, rounds=3) as agent:
        await server.until(lambda: len(server.connections) == 4)
        await _seen_streaming(agent, {"waiting": 4})
        await agent.say(_wave(how))
        assert 0 == await agent.ended()  # killed sessions do not come back, so nothing is left
        await server.until(lambda: all(connection.end != "open" for connection in server.connections))
    assert [end] * 4 == [connection.end for connection in server.connections]
    (wave,) = agent.of("wave")
    assert ("w1", how, 4, 4, *counts) == tuple(wave[key] for key in ("id", "how", "sessions", "sockets", "fin", "rst"))
    assert {"connecting": 0, "waiting": 4, "streaming": 0, "thinking": 0} == wave["phases"]
    assert wave["ordered"] <= wave["first"] <= wave["last"] <= wave["t"]
    assert [("cancelled", "fault", "wave w1")] * 4 == [
        (event["error"], event["ended_by"], event["detail"]) for event in agent.of("end")
    ]
    assert ("bye", "done") == (agent.events[-1]["e"], agent.events[-1]["reason"])


class Flood:
    """A server script that sends tokens as fast as the client takes them, without end."""

    async def __call__(self, connection: Connection) -> None:
        tokens = scripted.chunked(scripted.sse(scripted.chat_events(1)[1:2] * 100), end=False)
        await connection.send(scripted.head("200 OK", scripted.CHUNKED))
        while not connection.left.is_set():
            await connection.send(tokens)
            await asyncio.sleep(0)


async def test_rst_is_rst_and_is_told_so_in_mid_stream(start: Start) -> None:
    async with Server(Flood()) as server, start(server.url, sessions=2) as agent:
        await _seen_streaming(agent, {"streaming": 2})
        await agent.say(_wave("rst"))
        assert 0 == await agent.ended()
        await server.until(lambda: all(connection.end != "open" for connection in server.connections))
    assert ["reset"] * 2 == [connection.end for connection in server.connections]
    (wave,) = agent.of("wave")
    assert (0, 2, 2) == (wave["fin"], wave["rst"], wave["phases"]["streaming"])


@pytest.mark.parametrize(
    ("how", "kind", "end"), [("fin", "fin", "fin"), ("cancel", "rst", "reset"), ("rst", "rst", "reset")]
)
async def test_unread_data_makes_a_close_an_rst_and_fin_reads_it_first(
    how: str, kind: str, end: str, parser: str
) -> None:
    async with Server(Gate(tokens=1)) as server:
        watched = scripted.Watched()
        tools = scripted.make_tools(scripted.make_config(server.url), parser)
        call = Call(tools, "r", b"{}", watched, keep_text=False)
        running = asyncio.create_task(call.run())
        await asyncio.wait_for(watched.first.wait(), scripted.PATIENCE_S)
        assert call._wire._transport is not None
        assert call._wire._sock is not None
        call._wire._transport.pause_reading()
        await server.connections[0].send(b"1\r\nx\r\n")
        while not unread_bytes(call._wire._sock):  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(0.001)
        farewell = call.hang_up(how, "cancelled", "fault")
        assert "cancelled" == (await running).error
        await server.until(lambda: server.connections[0].end != "open")
    assert farewell is not None
    assert (kind, end) == (farewell.kind, server.connections[0].end)


@pytest.mark.parametrize(("how", "end"), [("fin", b""), ("rst", None)])
async def test_fin_is_on_the_wire_at_once(how: str, end: bytes | None, parser: str) -> None:
    """Within the order itself, without a turn of the loop; an RST takes the turn in which the loop closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        watched = scripted.Watched()
        tools = scripted.make_tools(scripted.make_config(f"http://127.0.0.1:{listener.getsockname()[1]}"), parser)
        call = Call(tools, "r", b"{}", watched, keep_text=False)
        running = asyncio.create_task(call.run())
        await asyncio.wait_for(watched.sent.wait(), scripted.PATIENCE_S)
        await asyncio.sleep(0)
        peer, _ = listener.accept()
        with peer:
            peer.recv(65536)
            peer.setblocking(False)
            call.hang_up(how, "cancelled", "fault")
            if end is None:
                with pytest.raises(BlockingIOError):
                    peer.recv(1)
            else:
                assert end == peer.recv(1)
            assert "cancelled" == (await running).error


async def test_a_wave_of_chosen_sessions_spares_the_others(start: Start) -> None:
    gate = Gate()
    async with Server(gate) as server, start(server.url, sessions=5, first_session=10) as agent:
        await server.until(lambda: len(server.connections) == 5)
        await agent.say(_wave("rst", [11, 14, 99]))
        await agent.until(lambda: bool(agent.of("wave")))
        gate.opened.set()
        assert 0 == await agent.ended()
    assert {11, 14} == {_number(connection) for connection in server.connections if connection.end == "reset"}
    errors = {event["session"]: event["error"] for event in agent.of("end")}
    assert {10: "", 11: "cancelled", 12: "", 13: "", 14: "cancelled"} == errors
    assert 2 == agent.of("wave")[0]["sessions"]


async def test_a_wave_of_so_many_sessions_takes_waiting_ones_first(start: Start) -> None:
    waiting, streaming = Gate(), Gate(tokens=1)

    async def script(connection: Connection) -> None:
        await (streaming if _number(connection) < 3 else waiting)(connection)

    async with Server(script) as server, start(server.url, sessions=5) as agent:
        await _seen_streaming(agent, {"waiting": 2, "streaming": 3})
        await agent.say(_wave("rst", 3))
        await agent.until(lambda: bool(agent.of("wave")))
        waiting.opened.set()
        streaming.opened.set()
        assert 0 == await agent.ended()
    assert {3, 4, 0} == {event["session"] for event in agent.of("end") if event["error"]}
    assert {"connecting": 0, "waiting": 2, "streaming": 1, "thinking": 0} == agent.of("wave")[0]["phases"]


async def test_a_wave_takes_thinking_sessions_and_those_to_come(start: Start) -> None:
    async with (
        Server(scripted.always(ANSWER)) as server,
        start(server.url, sessions=2, rounds=2, think_s=60, ramp_s=120) as agent,
    ):
        await _seen_streaming(agent, {"thinking": 1})
        await agent.say(_wave("rst"))
        assert 0 == await agent.ended()
    (wave,) = agent.of("wave")
    assert (1, 0, 1, None) == (wave["sessions"], wave["sockets"], wave["phases"]["thinking"], wave["first"])
    assert 1 == len(server.connections)


async def test_sessions_can_be_added_after_a_wave(start: Start) -> None:
    gate = Gate()
    async with Server(gate) as server, start(server.url, sessions=3) as agent:
        await server.until(lambda: len(server.connections) == 3)
        await agent.say(_wave("rst", 2))
        await agent.say({"cmd": "add", "sessions": 2})
        await server.until(lambda: len(server.connections) == 5)
        gate.opened.set()
        assert 0 == await agent.ended()
    assert ["", "", "", "cancelled", "cancelled"] == sorted(event["error"] for event in agent.of("end"))


@pytest.mark.parametrize("how", ["rst", "fin", "cancel"])
async def test_a_session_that_still_connects_is_hit_as_connecting(how: str, start: Start) -> None:
    """The backlog of a listener that accepts nothing is full, so further connections hang in the kernel."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        async with start(f"http://127.0.0.1:{port}", sessions=4) as agent:
            await agent.until(lambda: bool(agent.of("beat")))
            await agent.say(_wave(how))
            assert 0 == await agent.ended()
    (wave,) = agent.of("wave")
    stuck = wave["phases"]["connecting"]
    assert stuck >= 1
    assert (4, 4 - stuck) == (wave["sessions"], wave["sockets"])
    assert ["cancelled"] * 4 == [event["error"] for event in agent.of("end")]
    assert 4 == len(agent.of("start"))
