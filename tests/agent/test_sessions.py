"""Sessions in this process, for what cannot be provoked from outside."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import scripted
from scripted import Server, make_config, make_tools, stream_response

from chaos.agent.client import Tools
from chaos.agent.patience import lose_patience
from chaos.agent.phases import PhaseFile
from chaos.agent.sessions import Load
from chaos.agent.waves import parse_order

if TYPE_CHECKING:
    import socket
    from pathlib import Path

ANSWER = stream_response(scripted.chat_events(3))


class Notes:
    """Keeps what would be reported."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def emit(self, event: str, fields: dict[str, Any]) -> None:
        self.events.append((event, fields))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [fields for event, fields in self.events if event == kind]


async def _run(tools: Tools, phases: PhaseFile) -> tuple[Load, Notes]:
    notes = Notes()
    load = Load(tools, phases, notes)  # type: ignore[arg-type]
    load.start()
    await asyncio.wait_for(load.finished, scripted.PATIENCE_S)
    return load, notes


@pytest.fixture
def phases(tmp_path: Path) -> PhaseFile:
    return PhaseFile(tmp_path / "phases", 8)


async def test_a_defect_of_ours_ends_its_own_session_only(phases: PhaseFile, capfd: pytest.CaptureFixture[str]) -> None:
    async with Server(scripted.always(ANSWER)) as server:
        tools = make_tools(make_config(server.url, sessions=3, rounds=2))

        def head(req: str, length: int) -> bytes:
            if req == "g-s0000001-r00001":
                raise ZeroDivisionError("our defect")
            return tools.head(req, length)

        load, notes = await _run(Tools(tools.config, tools.remote, head, tools.parser), phases)
    assert 1 == load.defects
    assert [""] * 5 == [end["error"] for end in notes.of("end")]
    assert 3 == phases.census()["done"]
    captured = capfd.readouterr()
    assert "our defect" in captured.err
    assert "" == captured.out  # it would corrupt the events


async def test_a_lack_of_file_descriptors_is_a_failed_connection(
    phases: PhaseFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> socket.socket:
        raise OSError(24, "Too many open files")

    tools = make_tools(make_config("http://127.0.0.1:1"))
    monkeypatch.setattr("chaos.agent.reach.socket.socket", none_left)
    _, notes = await _run(tools, phases)
    (end,) = notes.of("end")
    assert ("connect", "error", None) == (end["error"], end["ended_by"], end["sent"])
    assert "Too many open files" in end["detail"]


async def test_no_sessions_are_a_finished_load(phases: PhaseFile) -> None:
    load, notes = await _run(make_tools(make_config("http://127.0.0.1:1", sessions=0)), phases)
    assert ([], 0) == (notes.events, load.counters.intended)


async def test_tokens_count_while_requests_are_open(phases: PhaseFile) -> None:
    async def half(connection: scripted.Connection) -> None:
        events = scripted.chat_events(3)
        await connection.send(scripted.head("200 OK", scripted.CHUNKED))
        await connection.send(scripted.chunked(scripted.sse(events[:3]), end=False))
        await proceed.wait()
        await connection.send(scripted.chunked(scripted.sse(events[3:])))

    proceed = asyncio.Event()
    async with Server(half) as server:
        load = Load(make_tools(make_config(server.url)), phases, Notes())  # type: ignore[arg-type]
        load.start()
        async with asyncio.timeout(scripted.PATIENCE_S):
            while load.tokens() < 2:  # noqa: ASYNC110 - a counter tells nobody
                await asyncio.sleep(0.001)
        assert (0, 1) == (load.counters.tokens, phases.census()["streaming"])
        proceed.set()
        await asyncio.wait_for(load.finished, scripted.PATIENCE_S)
    assert (3, 3) == (load.tokens(), load.counters.tokens)


class Held:
    """A server script that answers the sessions of its numbers when told so, and the others never."""

    def __init__(self, *numbers: int) -> None:
        self.opened = asyncio.Event()
        self._numbers = numbers

    async def __call__(self, connection: scripted.Connection) -> None:
        if int(connection.headers["x-request-id"].split("-s")[1][:7]) in self._numbers:
            await self.opened.wait()
            await connection.send(ANSWER)


@pytest.mark.parametrize(("drains", "error"), [(True, ""), (False, "timeout")])
async def test_draining_outlasts_the_requests_own_timeout(
    drains: bool, error: str, phases: PhaseFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, notes = Held(0, 1), Notes()
    async with Server(script) as server:
        load = Load(make_tools(make_config(server.url, sessions=2, timeout_s=1000)), phases, notes)  # type: ignore[arg-type]
        load.start()
        await server.until(lambda: len(server.connections) == 2)
        if drains:
            load.drain()
        scripted.jump(monkeypatch, 1000)
        await asyncio.sleep(0.001)  # all that is due comes before it
        script.opened.set()
        await asyncio.wait_for(load.finished, scripted.PATIENCE_S)
    assert [error] * 2 == [end["error"] for end in notes.of("end")]


async def test_impatient_clients_that_are_answered_in_time_do_not_give_up(
    phases: PhaseFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, notes = Held(0), Notes()
    async with Server(script) as server:
        load = Load(make_tools(make_config(server.url, sessions=2, timeout_s=5000)), phases, notes)  # type: ignore[arg-type]
        load.start()
        await server.until(lambda: len(server.connections) == 2)
        order = parse_order({"id": "w1", "how": "timeout", "deadline_s": 1000.0}, 0)
        wave = asyncio.create_task(lose_patience(order, load.live.values(), notes))  # type: ignore[arg-type]
        async with asyncio.timeout(scripted.PATIENCE_S):
            await asyncio.sleep(0)
            script.opened.set()
            while not notes.of("end"):  # noqa: ASYNC110 - a list tells nobody
                await asyncio.sleep(0.001)
        scripted.jump(monkeypatch, 1000)
        await wave
        await asyncio.wait_for(load.finished, scripted.PATIENCE_S)
    assert [(0, ""), (1, "cancelled")] == [(end["session"], end["error"]) for end in notes.of("end")]
    assert (2, 1) == (notes.of("wave")[0]["sessions"], notes.of("wave")[0]["sockets"])


async def test_no_request_is_named_by_the_beginning_of_another_ones_name(phases: PhaseFile) -> None:
    """Trap 43: an abort takes every request whose name begins with the one it was given."""
    async with Server(scripted.always(ANSWER)) as server:
        _, notes = await _run(make_tools(make_config(server.url, sessions=12, rounds=11)), phases)
    names = {start["req"] for start in notes.of("start")}
    assert 12 * 11 == len(names)
    assert not [(one, other) for one in names for other in names if one != other and other.startswith(one)]
