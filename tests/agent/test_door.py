"""The agent through a relay: what servers see of it is what they would see of direct connections."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import scripted
from scripted import Server
from test_process import Gate
from test_waves import Flood, _seen_streaming, _wave

sys.path.append(str(Path(__file__).parent.parent / "outpost"))
from relays import killed, relayed

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    Start = Callable[..., scripted.Process]


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(
    ("how", "end", "counts"), [("rst", "reset", (0, 4)), ("fin", "fin", (4, 0)), ("cancel", "fin", (4, 0))]
)
async def test_a_wave_ends_waiting_sessions_in_its_own_way_there(
    how: str,
    end: str,
    counts: tuple[int, int],
    secure: bool,
    start: Start,
    server_tls: ssl.SSLContext,
    certificate: Path,
    tmp_path: Path,
) -> None:
    async with Server(Gate(), server_tls if secure else None) as server:
        with relayed(tmp_path, {"door": ("127.0.0.1", server.port)}, window=32768):
            tls = {"tls": {"verify": True, "ca": str(certificate)}} if secure else {}
            through = {"unix_socket": str(tmp_path / "door"), **tls}
            async with start(server.url, sessions=4, **through) as agent:
                await server.until(lambda: len(server.connections) == 4)
                await _seen_streaming(agent, {"waiting": 4})
                ports = {connection.writer.get_extra_info("peername")[1] for connection in server.connections}
                await agent.say(_wave(how))
                assert 0 == await agent.ended()
                await server.until(lambda: all(connection.end != "open" for connection in server.connections))
    if not secure:  # with TLS a client says goodbye first
        assert [end] * 4 == [connection.end for connection in server.connections]
    (wave,) = agent.of("wave")
    if not secure:
        assert (4, *counts) == tuple(wave[key] for key in ("sockets", "fin", "rst"))
    assert ports == {event["local_port"] for event in agent.of("start")}
    assert {server.url.partition("//")[2]} == {connection.headers["host"] for connection in server.connections}


async def test_a_killed_agent_ends_at_the_server(start: Start, tmp_path: Path) -> None:
    async with Server(Gate()) as server:
        with relayed(tmp_path, {"door": ("127.0.0.1", server.port)}):
            async with start(server.url, sessions=6, unix_socket=str(tmp_path / "door")) as agent:
                await server.until(lambda: len(server.connections) == 6)
                agent.process.send_signal(signal.SIGKILL)
                await server.until(lambda: all(connection.end != "open" for connection in server.connections))
    assert ["fin"] * 6 == [connection.end for connection in server.connections]


async def test_a_killed_agent_with_unread_tokens_ends_in_a_reset(start: Start, tmp_path: Path) -> None:
    async with Server(Flood()) as server:
        with relayed(tmp_path, {"door": ("127.0.0.1", server.port)}, window=32768):
            async with start(server.url, sessions=2, unix_socket=str(tmp_path / "door")) as agent:
                await _seen_streaming(agent, {"streaming": 2})
                agent.process.send_signal(signal.SIGKILL)
                await server.until(lambda: all(connection.end != "open" for connection in server.connections))
    assert ["reset"] * 2 == [connection.end for connection in server.connections]


async def test_a_name_that_only_the_far_end_knows_is_its_host_header(start: Start, tmp_path: Path) -> None:
    answer = scripted.always(scripted.stream_response(scripted.chat_events(2)))
    async with Server(answer) as server:
        with relayed(tmp_path, {"door": ("127.0.0.1", server.port)}):
            url = f"http://engine.invalid:{server.port}"
            async with start(url, sessions=1, unix_socket=str(tmp_path / "door")) as agent:
                assert 0 == await agent.ended()
    assert [f"engine.invalid:{server.port}"] == [connection.headers["host"] for connection in server.connections]
    assert [""] == [event["error"] for event in agent.of("end")]


async def test_a_refusal_there_is_a_refusal_and_a_lost_way_is_our_own(start: Start, tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
    with relayed(tmp_path, {"door": ("127.0.0.1", port)}) as relay:
        url, door = f"http://127.0.0.1:{port}", str(tmp_path / "door")
        async with start(url, sessions=1, unix_socket=door) as agent:
            assert 0 == await agent.ended()
        assert [("refused", "error")] == [(event["error"], event["ended_by"]) for event in agent.of("end")]
        killed(relay.there)
        relay.here.wait(10)
        async with start(url, sessions=1, unix_socket=door) as agent:
            assert 0 == await agent.ended()
        assert [("way", "harness")] == [(event["error"], event["ended_by"]) for event in agent.of("end")]


async def test_a_stalled_client_leaves_its_tokens_and_stops_the_server(start: Start, tmp_path: Path) -> None:
    async with Server(Flood()) as server:
        with relayed(tmp_path, {"door": ("127.0.0.1", server.port)}, window=32768):
            async with start(server.url, sessions=1, unix_socket=str(tmp_path / "door")) as agent:
                await _seen_streaming(agent, {"streaming": 1})
                await agent.say(_wave("stall"))
                while not (held := agent.of("held")) or not held[-1]["unread"]:
                    await agent.say({"cmd": "look", "id": "w1"})
                    await asyncio.sleep(0.05)
                await agent.say({"cmd": "stop"})
                assert 0 == await agent.ended()
    assert 1 == held[-1]["held"]


async def test_a_black_hole_cannot_be_made_of_a_relayed_connection(start: Start, tmp_path: Path) -> None:
    async with Server(Gate()) as server:
        with relayed(tmp_path, {"door": ("127.0.0.1", server.port)}):
            async with start(server.url, sessions=1, unix_socket=str(tmp_path / "door")) as agent:
                await _seen_streaming(agent, {"waiting": 1})
                await agent.say(_wave("blackhole"))
                await agent.until(lambda: bool(agent.of("wave")))
                await agent.say({"cmd": "stop"})
                assert 0 == await agent.ended()
    (wave,) = agent.of("wave")
    assert 0 == wave["sockets"]
    assert "relay" in json.dumps(wave["problem"])
