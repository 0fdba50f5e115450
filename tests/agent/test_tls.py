"""TLS: the certificate is checked, requests work, and hang-ups are still what was ordered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import scripted
from scripted import Server, Watched, ask, make_config, stream_response
from test_process import Gate

from chaos.agent.client import Call
from chaos.agent.wire import unread_bytes

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from pathlib import Path

ANSWER = stream_response(scripted.chat_events(3))


async def test_a_trusted_certificate_serves(certificate: Path, server_tls: ssl.SSLContext, parser: str) -> None:
    watched = Watched()
    async with Server(scripted.always(ANSWER), server_tls) as server:
        ended = await ask(make_config(server.url, tls_ca=str(certificate)), parser, watched)
    assert ("", 3, ["sent", "first"]) == (ended.error, ended.tokens, watched.seen)


async def test_an_unknown_certificate_is_no_connection(server_tls: ssl.SSLContext, parser: str) -> None:
    async with Server(scripted.always(ANSWER), server_tls) as server:
        ended = await ask(make_config(server.url), parser)
    assert ("connect", "error", None) == (ended.error, ended.ended_by, ended.sent_ns)
    assert "CERTIFICATE_VERIFY_FAILED" in ended.detail


async def test_an_unknown_certificate_serves_where_verification_is_off(server_tls: ssl.SSLContext, parser: str) -> None:
    async with Server(scripted.always(ANSWER), server_tls) as server:
        ended = await ask(make_config(server.url, tls_verify=False), parser)
    assert ("", 3) == (ended.error, ended.tokens)


@pytest.mark.parametrize("how", ["rst", "fin", "cancel"])
async def test_a_wave_through_tls_ends_every_connection(
    how: str, certificate: Path, server_tls: ssl.SSLContext, start: Callable[..., scripted.Process]
) -> None:
    tls = {"verify": True, "ca": str(certificate)}
    async with Server(Gate(), server_tls) as server, start(server.url, sessions=3, tls=tls) as agent:
        await server.until(lambda: len(server.connections) == 3)
        await agent.until(lambda: len(agent.of("start")) == 3)
        await agent.say({"cmd": "wave", "id": "w", "how": how, "sessions": "all"})
        assert 0 == await agent.ended()
        await server.until(lambda: all(connection.end != "open" for connection in server.connections))
    (wave,) = agent.of("wave")
    assert (3, 3, {"connecting": 0, "waiting": 3, "streaming": 0, "thinking": 0}) == (
        wave["sessions"], wave["sockets"], wave["phases"],
    )  # fmt: skip
    assert ((0, 3) if how == "rst" else (3, 0)) == (wave["fin"], wave["rst"])
    assert {"reset" if how == "rst" else "fin"} == {connection.end for connection in server.connections}


@pytest.mark.parametrize("how", ["rst", "fin", "cancel"])
async def test_a_hang_up_in_the_handshake_ends_it(how: str, parser: str) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(1000):
                greeted.set()
            left.set_result("fin")
        except ConnectionError:
            left.set_result("reset")
        writer.close()

    greeted, left = asyncio.Event(), asyncio.get_running_loop().create_future()
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        call = Call(
            scripted.make_tools(make_config(url, tls_verify=False), parser), "r", b"", Watched(), keep_text=False
        )
        running = asyncio.create_task(call.run())
        await asyncio.wait_for(greeted.wait(), scripted.PATIENCE_S)
        farewell = call.hang_up(how, "cancelled", "fault")
        ended = await asyncio.wait_for(running, scripted.PATIENCE_S)
        assert ("reset" if how == "rst" else "fin") == await asyncio.wait_for(left, scripted.PATIENCE_S)
    assert ("cancelled", "fault", None) == (ended.error, ended.ended_by, ended.sent_ns)
    assert farewell is not None
    assert ("rst" if how == "rst" else "fin") == farewell.kind


@pytest.mark.parametrize(("how", "end"), [("fin", "fin"), ("rst", "reset")])
async def test_unread_data_does_not_turn_fin_into_rst_under_tls(
    how: str, end: str, server_tls: ssl.SSLContext, parser: str
) -> None:
    async with Server(Gate(tokens=1), server_tls) as server:
        watched = Watched()
        config = make_config(server.url, tls_verify=False)
        call = Call(scripted.make_tools(config, parser), "r", b"{}", watched, keep_text=False)
        running = asyncio.create_task(call.run())
        await asyncio.wait_for(watched.first.wait(), scripted.PATIENCE_S)
        assert call._wire._transport is not None
        assert call._wire._sock is not None
        call._wire._transport.pause_reading()
        # The TLS layer reads ahead some before it stops the socket.
        while not unread_bytes(call._wire._sock):
            await server.connections[0].send(b"800\r\n" + b"x" * 2048 + b"\r\n")
        call.hang_up(how, "cancelled", "fault")
        assert "cancelled" == (await running).error
        await server.until(lambda: server.connections[0].end != "open")
    assert end == server.connections[0].end
