"""Frames to a real control socket: the embedded lab's, found through its bootstrap server."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from processes import until
from test_node_faults import events, kit, last, stages, step, with_nodes

from chaos.engine.faults.registry import prepare
from chaos.engine.probes import make_http
from chaos.lab.provider import parse_lab, start_lab
from chaos.model.target import Server, ServerSpec
from chaos.outpost import zmtp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.lab.kinds import RunningLab

__all__ = ["events", "kit"]  # fixtures
FRAME = step(foreign_frame={"where": {"role": "prefill"}})
ABORT = step(abort_frame={"where": {"role": "prefill"}})
DIED = "First message should be b'NixlMsgGuard'. Foreign traffic?"


@pytest.fixture(params=["healthy", "nixl-abort-unhandled"])
def lab(request, tmp_path) -> Iterator[RunningLab]:
    with start_lab(parse_lab(f"sim@{request.param}", {"time_scale": "0.02"}), tmp_path, lambda _: None) as running:
        yield running


def log_of(lab: RunningLab) -> str:
    return (lab.folder / "prefill-0.log").read_text()


async def sent(what, kit, servers) -> None:
    async with make_http() as http, prepare(what, with_nodes(kit, *servers, http=http)):
        pass


async def test_a_foreign_frame_ends_the_control_thread_of_every_build_and_the_process_lives(lab, kit, events) -> None:
    await sent(FRAME, kit, lab.target.servers)
    assert [("applied", True), ("verified", True)] == stages(events)
    told = last(events, "verified")
    assert (("prefill-0",), False, "foreign-frame") == (told.nodes, told.ends, told.kind)
    assert "24 of 24 bytes acknowledged by the peer's kernel" in told.measured["prefill-0"]
    assert "127.0.0.1" not in repr(events)
    until(lambda: DIED in log_of(lab), "the thread dies")
    async with make_http() as http:
        assert 200 == (await http.get(f"http://127.0.0.1:{lab.target.prefill[0].bootstrap_port}/health")).status_code


async def test_an_abort_for_an_unknown_room_ends_it_only_where_the_release_does_not_know_the_message(
    lab, kit, events
) -> None:
    await sent(ABORT, kit, lab.target.servers)
    assert [("applied", True), ("verified", True)] == stages(events)
    if lab.spec.build == "nixl-abort-unhandled":
        until(lambda: DIED in log_of(lab), "the thread dies")
    else:
        await sent(FRAME, kit, lab.target.servers)  # proves that the thread was still reading
        until(lambda: DIED in log_of(lab), "and only now it dies")
        assert 1 == log_of(lab).count(DIED)


# ---------------------------------------------------------------------------------------------- going red


async def served(handler, kit, what=FRAME):
    app = web.Application()
    app.router.add_get("/route", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    server = replace(prefill(), spec=prefill().spec.model_copy(update={"bootstrap_port": port}))
    try:
        await sent(what, kit, [server])
    finally:
        await runner.cleanup()


def prefill() -> Server:
    return Server("prefill-0", "prefill", ServerSpec(url="http://127.0.0.1:1", bootstrap_port=1))


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (lambda: web.Response(status=503, text="not registered"), "prefill-0: its bootstrap server answers 503"),
        (lambda: web.Response(text="OK"), "prefill-0: its bootstrap server does not say where the rank listens"),
    ],
)
async def test_a_rank_that_cannot_be_found_is_not_applied(answer, detail, kit, events) -> None:
    async def handler(_: web.Request) -> web.Response:
        return answer()

    await served(handler, kit)
    assert ([("applied", False)], detail) == (stages(events), last(events, "applied").detail)


async def test_no_bootstrap_server_is_not_applied(kit, events) -> None:
    await sent(FRAME, kit, [prefill()])
    assert "prefill-0: its bootstrap server cannot be asked (refused)" == last(events, "applied").detail


async def test_a_socket_that_does_not_speak_zmq_gets_nothing(kit, events, monkeypatch) -> None:
    monkeypatch.setattr(zmtp, "CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as deaf:

        async def handler(_: web.Request) -> web.Response:
            return web.json_response({"rank_ip": "127.0.0.1", "rank_port": deaf.getsockname()[1]})

        await served(handler, kit)
    assert [("applied", False)] == stages(events)
    assert "no ZMQ peer answered at the control socket within 0.5 s" in last(events, "applied").detail
