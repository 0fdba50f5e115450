"""One request against real servers, well-behaved and not, with both HTTP parsers."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest
import scripted
from scripted import CHUNKED, Server, Watched, ask, chunked, head, json_response, make_config, sse, stream_response

from chaos.agent.client import Call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scripted import Connection

APIS = list(scripted.EVENTS)
CHAT = sse(scripted.chat_events(5))


@pytest.mark.parametrize("api", APIS)
async def test_a_stream_is_a_success_with_stamps_tokens_and_reason(api: str, parser: str) -> None:
    watched = Watched()
    async with Server(scripted.always(stream_response(scripted.EVENTS[api](5)))) as server:
        ended = await ask(make_config(server.url, api=api), parser, watched)
    assert ("", "", "server", 200, "length", 5) == (
        ended.error, ended.detail, ended.ended_by, ended.status, ended.finish, ended.tokens,
    )  # fmt: skip
    assert ["sent", "first"] == watched.seen
    assert ended.sent_ns is not None
    assert ended.last_ns is not None
    assert ended.sent_ns < ended.stamps[0] <= ended.stamps[-1] <= ended.last_ns


@pytest.mark.parametrize("framing", ["chunked", "one chunk per byte", "content-length", "close"])
async def test_every_framing_of_a_body_gives_the_same_answer(framing: str, parser: str) -> None:
    scripts = {
        "chunked": scripted.always(head("200 OK", CHUNKED) + chunked(CHAT)),
        "one chunk per byte": scripted.always(head("200 OK", CHUNKED) + chunked(CHAT, 1)),
        "content-length": scripted.always(head("200 OK", f"Content-Length: {len(CHAT)}") + CHAT),
        "close": scripted.then_close(head("200 OK") + CHAT),
    }
    async with Server(scripts[framing]) as server:
        ended = await ask(make_config(server.url), parser)
    assert ("", 5, " tok0 tok1 tok2 tok3 tok4") == (ended.error, ended.tokens, ended.text)


def test_a_response_cut_at_every_byte_gives_the_same_answer(parser: str) -> None:
    response = b"HTTP/1.1 100 Continue\r\n\r\n" + stream_response(scripted.chat_events(2))

    async def cut_everywhere() -> None:
        tools = scripted.make_tools(make_config("http://127.0.0.1:1"), parser)
        for cut in range(len(response) + 1):
            call = Call(tools, "r", b"{}", Watched(), keep_text=True)
            for piece in (response[:cut], response[cut:]):
                if piece:
                    call.received(piece, 1)
            assert ("", "", "server") == call._over.result(), cut
            assert (2, " tok0 tok1") == (call.answer.tokens, call.answer.text()), cut

    asyncio.run(cut_everywhere())


async def test_a_response_that_drips_byte_by_byte_over_the_network_is_understood(parser: str) -> None:
    async def drip(connection: Connection) -> None:
        connection.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = stream_response(scripted.chat_events(1))
        for at in range(len(data)):
            await connection.send(data[at : at + 1])
            await asyncio.sleep(0)

    async with Server(drip) as server:
        ended = await ask(make_config(server.url), parser)
    assert ("", 1) == (ended.error, ended.tokens)


@pytest.mark.parametrize(
    ("api", "value"),
    [
        (
            "chat",
            {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": {"completion_tokens": 3}},
        ),
        ("completions", {"choices": [{"text": "hi", "finish_reason": "stop"}], "usage": {"completion_tokens": 3}}),
        ("generate", {"text": "hi", "meta_info": {"finish_reason": {"type": "stop"}, "completion_tokens": 3}}),
    ],
)
async def test_a_whole_answer_is_a_success(api: str, value: object, parser: str) -> None:
    async with Server(scripted.always(json_response(value))) as server:
        ended = await ask(make_config(server.url, api=api, stream=False), parser)
    assert ("", "stop", 3, "hi", 0) == (ended.error, ended.finish, ended.tokens, ended.text, len(ended.stamps))


ERROR = {"object": "error", "message": "Decode transfer failed", "code": 500}
NO_END = scripted.chat_events(3)[:-1]
BAD: dict[str, tuple[Callable[[Connection], Awaitable[None]], bool, str, str, str]] = {
    # name: script, stream, error, part of the detail, ended_by
    "500": (scripted.always(json_response(ERROR, "500 X")), True, "status", "Decode transfer failed", "server"),
    "503 without a body": (scripted.always(head("503 X", "Content-Length: 0")), True, "status", "", "server"),
    "204": (scripted.always(b"HTTP/1.1 204 No Content\r\n\r\n"), True, "status", "", "server"),
    "500 cut": (scripted.then_close(head("500 X", "Content-Length: 99") + b"half"), True, "status", "half", "server"),
    "in-band": (
        scripted.always(stream_response([*NO_END[:2], b'{"error":{"message":"gone"}}', b"[DONE]"])),
        True, "in-band", "gone", "server",
    ),
    "in-band, then cut": (
        scripted.then_close(head("200 OK", CHUNKED) + chunked(sse([b'{"error":{"message":"gone"}}']), end=False)),
        True, "in-band", "gone", "server",
    ),
    "abort": (
        scripted.always(stream_response(scripted.chat_events(2, finish="abort"))),
        True, "in-band", "abort", "server",
    ),
    "error as a whole body": (scripted.always(json_response(ERROR)), True, "in-band", "Decode transfer", "server"),
    "whole error": (scripted.always(json_response(ERROR)), False, "in-band", "Decode transfer", "server"),
    "no end marker": (scripted.always(stream_response(NO_END)), True, "truncated", "no end marker", "server"),
    "no finish reason": (
        scripted.always(stream_response(scripted.chat_events(2, finish=None))),
        True, "truncated", "no finish reason", "server",
    ),
    "cut": (
        scripted.then_close(head("200 OK", CHUNKED) + chunked(CHAT[:300], end=False)),
        True, "truncated", "closed", "server",
    ),
    "cut in the head": (
        scripted.then_close(b"HTTP/1.1 200 OK\r\nCont"), True, "truncated", "without an answer", "server",
    ),
    "closed at once": (scripted.then_close(b""), True, "truncated", "without an answer", "server"),
    "whole, cut": (
        scripted.then_close(head("200 OK", "Content-Length: 99") + b"{"), False, "truncated", "closed", "server",
    ),
    "no tokens": (scripted.always(stream_response(scripted.chat_events(0))), True, "no-tokens", "length", "server"),
    "not http": (scripted.always(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), True, "protocol", "SSH-2.0", "error"),
    "bad chunk": (scripted.always(head("200 OK", CHUNKED) + b"zz\r\n"), True, "protocol", "", "error"),
    "not json": (scripted.always(stream_response([b"hello", b"[DONE]"])), True, "protocol", "hello", "server"),
    "whole, not json": (
        scripted.always(head("200 OK", "Content-Length: 5") + b"hello"), False, "protocol", "hello", "server",
    ),
    "html": (scripted.then_close(head("200 OK", kind="text/html") + b"<html>"), True, "truncated", "<html>", "server"),
    "an endless event": (
        scripted.always(head("200 OK", CHUNKED) + chunked(b"data: " + b"x" * 5_000_000)),
        True, "protocol", "does not end", "error",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(BAD))
async def test_every_misbehaviour_has_its_word(case: str, parser: str) -> None:
    script, stream, error, detail, ended_by = BAD[case]
    async with Server(script) as server:
        ended = await ask(make_config(server.url, stream=stream), parser)
    assert (error, ended_by) == (ended.error, ended.ended_by)
    assert detail in ended.detail
    assert len(ended.detail) <= 400


async def test_a_reset_in_mid_stream_is_a_reset(parser: str) -> None:
    async def reset(connection: Connection) -> None:
        await connection.send(head("200 OK", CHUNKED) + chunked(CHAT[:400], end=False))
        await proceed.wait()
        sock = connection.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.writer.transport.abort()

    proceed, watched = asyncio.Event(), Watched()
    async with Server(reset) as server:
        asking = asyncio.create_task(ask(make_config(server.url), parser, watched))
        await asyncio.wait_for(watched.first.wait(), scripted.PATIENCE_S)
        proceed.set()
        ended = await asking
    assert ("reset", "error", 1) == (ended.error, ended.ended_by, ended.tokens)


async def test_a_closed_port_refuses(parser: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        ended = await ask(make_config(f"http://127.0.0.1:{free.getsockname()[1]}"), parser)
    assert ("refused", "error", None) == (ended.error, ended.ended_by, ended.sent_ns)


async def test_plain_text_where_tls_is_expected_is_a_failed_connection(parser: str) -> None:
    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 ready\r\n")
        writer.close()

    async with await asyncio.start_server(hello, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        ended = await ask(make_config(f"https://127.0.0.1:{port}", tls_verify=False), parser)
    assert ("connect", "error", None) == (ended.error, ended.ended_by, ended.sent_ns)


async def test_slow_headers_are_waited_for(parser: str) -> None:
    async def slow(connection: Connection) -> None:
        await proceed.wait()
        await connection.send(stream_response(scripted.chat_events(2)))

    proceed, watched = asyncio.Event(), Watched()
    async with Server(slow) as server:
        asking = asyncio.create_task(ask(make_config(server.url), parser, watched))
        await server.until(lambda: bool(server.connections))
        assert ["sent"] == watched.seen
        proceed.set()
        assert "" == (await asking).error


async def test_headers_and_a_role_are_no_first_token(parser: str) -> None:
    async def slow(connection: Connection) -> None:
        events = scripted.chat_events(2)
        await connection.send(head("200 OK", CHUNKED) + chunked(sse(events[:1]), end=False))
        await proceed.wait()
        await connection.send(chunked(sse(events[1:])))

    class NotingCall(Call):
        def received(self, data: bytes, now_ns: int) -> None:
            super().received(data, now_ns)
            arrived.set()

    proceed, arrived, watched = asyncio.Event(), asyncio.Event(), Watched()
    async with Server(slow) as server:
        call = NotingCall(scripted.make_tools(make_config(server.url), parser), "r", b"{}", watched, keep_text=False)
        running = asyncio.create_task(call.run())
        await asyncio.wait_for(arrived.wait(), scripted.PATIENCE_S)
        assert ["sent"] == watched.seen
        proceed.set()
        assert "" == (await running).error


async def test_our_timeout_hangs_up_and_says_so(parser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(connection: Connection) -> None:
        await connection.left.wait()

    async with Server(silent) as server:
        tools = scripted.make_tools(make_config(server.url, timeout_s=1000), parser)
        running = asyncio.create_task(Call(tools, "r", b"{}", Watched(), keep_text=False).run())
        await server.until(lambda: bool(server.connections))
        scripted.jump(monkeypatch, 1000)
        ended = await running
        await server.until(lambda: server.connections[0].end != "open")
    assert ("timeout", "harness", 0) == (ended.error, ended.ended_by, ended.tokens)


async def test_a_suspended_timeout_waits_for_the_server(parser: str) -> None:
    async def slow(connection: Connection) -> None:
        await asyncio.sleep(0.2)
        await connection.send(stream_response(scripted.chat_events(2)))

    async with Server(slow) as server:
        config = make_config(server.url, timeout_s=0.05)
        call = Call(scripted.make_tools(config, parser), "r", b"{}", Watched(), keep_text=False)
        running = asyncio.create_task(call.run())
        await asyncio.sleep(0)
        call.suspend_timeout()
        assert "" == (await running).error


@pytest.mark.parametrize("how", ["cut", "left open"])
async def test_an_answer_is_complete_with_its_end_marker_even_if_the_transfer_coding_is_not(
    how: str, parser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.agent.client._AFTER_DONE_S", 0.05)
    data = head("200 OK", CHUNKED) + chunked(CHAT, end=False)
    async with Server(scripted.then_close(data) if how == "cut" else scripted.always(data)) as server:
        ended = await ask(make_config(server.url, timeout_s=1000), parser)
    assert ("", "server", 5) == (ended.error, ended.ended_by, ended.tokens)


async def test_a_client_does_not_leave_before_the_end_of_the_response(parser: str) -> None:
    async def late_end(connection: Connection) -> None:
        await connection.send(head("200 OK", CHUNKED) + chunked(CHAT, end=False))
        await asyncio.sleep(0.1)  # an early close would arrive in this time
        await connection.send(b"0\r\n\r\n")

    async with Server(late_end) as server:
        assert "" == (await ask(make_config(server.url), parser)).error
        await server.until(lambda: server.connections[0].end != "open")
    assert not server.connections[0].left_early


async def test_bytes_after_the_response_do_no_harm(parser: str) -> None:
    async with Server(scripted.always(stream_response(scripted.chat_events(2)) + b"garbage\r\n\r\n")) as server:
        assert "" == (await ask(make_config(server.url), parser)).error


async def test_what_is_sent_is_what_was_configured(parser: str) -> None:
    values: dict[str, Any] = {"api_key": "s3cret", "headers": (("X-Team", "chaos"), ("User-Agent", "me")), "run": "r1"}
    async with Server(scripted.always(stream_response(scripted.chat_events(1)))) as server:
        config = make_config(f"{server.url}/prefix/", **values)
        assert "" == (await ask(config, parser)).error
    got = server.connections[0]
    assert "/prefix/v1/chat/completions" == got.path
    assert f"127.0.0.1:{server.port}" == got.headers["host"]
    assert ("Bearer s3cret", "chaos", "me") == tuple(
        got.headers[name] for name in ("authorization", "x-team", "user-agent")
    )
    assert "r1-g-s1-r1" == got.headers["x-request-id"]


async def test_a_large_body_is_sent_whole(parser: str) -> None:
    body = b'{"prompt":"' + b"x" * 8_000_000 + b'"}'
    async with Server(scripted.always(stream_response(scripted.chat_events(1)))) as server:
        call = Call(scripted.make_tools(make_config(server.url), parser), "r", body, Watched(), keep_text=False)
        # Longer than the 64 KiB at which the test's server pauses reading: the body must wait for it.
        assert "" == (await asyncio.wait_for(call.run(), scripted.PATIENCE_S)).error
    assert body == server.connections[0].raw_body


async def test_the_name_localhost_is_tried_on_every_address(parser: str) -> None:
    async with Server(scripted.always(stream_response(scripted.chat_events(1)))) as server:
        ended = await ask(make_config(f"http://localhost:{server.port}"), parser)
    assert "" == ended.error
