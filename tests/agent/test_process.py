"""The agent as a process: its protocol, its ends, and what it leaves behind when it is killed."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from typing import TYPE_CHECKING, Any

import pytest
import scripted
from scripted import CHUNKED, Connection, Server, chunked, head, sse, stream_response

from chaos.agent import phases

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Start = Callable[..., scripted.Process]

ANSWER = stream_response(scripted.chat_events(3))


class Gate:
    """A server script that answers only when the gate opens: `tokens` of them at once, the rest after it."""

    def __init__(self, tokens: int = 0) -> None:
        self.opened = asyncio.Event()
        self._tokens = tokens

    async def __call__(self, connection: Connection) -> None:
        events = scripted.chat_events(3)
        if self._tokens:
            before = events[: self._tokens + 1]
            await connection.send(head("200 OK", CHUNKED) + chunked(sse(before), end=False))
            await self.opened.wait()
            await connection.send(chunked(sse(events[len(before) :])))
        else:
            await self.opened.wait()
            await connection.send(ANSWER)


def _by_request(events: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {event["req"]: event for event in events}


async def test_a_closed_loop_runs_all_rounds_of_all_sessions_and_says_so(start: Start) -> None:
    async with Server(scripted.always(ANSWER)) as server, start(server.url, sessions=3, rounds=2, path="p>d") as agent:
        assert 0 == await agent.ended()
    kinds = [event["e"] for event in agent.events]
    assert ("hello", "bye", 6, 6) == (kinds[0], kinds[-1], kinds.count("start"), kinds.count("end"))
    assert "done" == agent.events[-1]["reason"]
    assert agent.process.pid == agent.events[0]["pid"]
    starts, ends = _by_request(agent.of("start")), _by_request(agent.of("end"))
    assert {f"g-s000000{s}-r0000{r}" for s in range(3) for r in range(2)} == set(starts) == set(ends)
    for req, end in ends.items():
        begun = starts[req]
        assert ("", "server", 200, "length", 3, 2) == (
            end["error"], end["ended_by"], end["status"], end["finish"], end["tokens"], end["gaps"]["n"],
        )  # fmt: skip
        assert begun["intended"] <= begun["sent"] == end["sent"] <= end["first"] <= end["last"] <= end["t"]
        assert ("p>d", "chat") == (end["path"], begun["api"])
        assert kinds.index("start") < kinds.index("end")
    last = agent.of("beat")[-1]
    assert (6, 6, 18, 6, 0) == tuple(last[key] for key in ("intended", "delivered", "tokens", "completed", "failed"))
    assert {"connecting": 0, "waiting": 0, "streaming": 0, "thinking": 0, "done": 3} == last["phases"]
    assert "" == agent.stderr


async def test_later_rounds_carry_the_earlier_answers(start: Start) -> None:
    async with Server(scripted.always(ANSWER)) as server, start(server.url, rounds=2) as agent:
        assert 0 == await agent.ended()
    roles = [message["role"] for message in server.connections[1].body["messages"]]
    assert ["user", "assistant", "user"] == roles
    assert " tok0 tok1 tok2" == server.connections[1].body["messages"][1]["content"]


@pytest.mark.parametrize("api", list(scripted.EVENTS))
@pytest.mark.parametrize("stream", [True, False])
async def test_every_api_is_spoken(api: str, stream: bool, start: Start) -> None:
    whole: dict[str, object] = {
        "chat": {
            "choices": [{"message": {"content": "x"}, "finish_reason": "stop"}],
            "usage": {"completion_tokens": 3},
        },
        "completions": {"choices": [{"text": "x", "finish_reason": "stop"}], "usage": {"completion_tokens": 3}},
        "generate": {"text": "x", "meta_info": {"finish_reason": {"type": "stop"}, "completion_tokens": 3}},
    }
    answer = stream_response(scripted.EVENTS[api](3)) if stream else scripted.json_response(whole[api])
    async with Server(scripted.always(answer)) as server, start(server.url, api=api, stream=stream, rounds=2) as agent:
        assert 0 == await agent.ended()
    assert [("", 3), ("", 3)] == [(end["error"], end["tokens"]) for end in agent.of("end")]
    paths = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "generate": "/generate"}
    assert {paths[api]} == {connection.path for connection in server.connections}


async def test_the_same_seed_gives_the_same_requests(start: Start) -> None:
    bodies = []
    for seed in (7, 7, 8):
        async with (
            Server(scripted.always(ANSWER)) as server,
            start(server.url, sessions=4, rounds=2, seed=seed) as agent,
        ):
            assert 0 == await agent.ended()
        by_id = {connection.headers["x-request-id"]: connection.raw_body for connection in server.connections}
        bodies.append([by_id[key] for key in sorted(by_id)])
    assert 8 == len(set(bodies[0]))
    assert bodies[0] == bodies[1]
    assert not set(bodies[0]) & set(bodies[2])


async def test_sessions_are_numbered_from_the_first_and_ramp_up(start: Start) -> None:
    async with (
        Server(scripted.always(ANSWER)) as server,
        start(server.url, sessions=4, first_session=100, ramp_s=0.4) as agent,
    ):
        assert 0 == await agent.ended()
    intended = {event["session"]: event["intended"] for event in agent.of("start")}
    assert [100, 101, 102, 103] == sorted(intended)
    assert [0, 100, 200, 300] == [round((intended[number] - intended[100]) / 1e6) for number in sorted(intended)]
    assert all(event["sent"] >= event["intended"] for event in agent.of("start"))


async def test_no_session_sends_before_it_is_due(start: Start) -> None:
    """An event loop may wake a sleeper up to half a millisecond early (uvloop does)."""
    async with Server(scripted.always(ANSWER)) as server, start(server.url, sessions=30, ramp_s=0.25) as agent:
        assert 0 == await agent.ended()
    late_ns = [event["sent"] - event["intended"] for event in agent.of("start")]
    assert (30, True) == (len(late_ns), min(late_ns) >= 0)


async def test_add_brings_more_sessions_at_once(start: Start) -> None:
    gate = Gate()
    async with Server(gate) as server, start(server.url, sessions=2) as agent:
        await server.until(lambda: len(server.connections) == 2)
        await agent.say({"cmd": "add", "sessions": 3})
        await server.until(lambda: len(server.connections) == 5)
        gate.opened.set()
        assert 0 == await agent.ended()
    assert {0, 1, 2, 3, 4} == {event["session"] for event in agent.of("end")}


async def test_draining_never_hangs_up_and_starts_nothing(start: Start) -> None:
    gate = Gate()
    async with Server(gate) as server, start(server.url, sessions=3, rounds=5) as agent:
        await server.until(lambda: len(server.connections) == 3)
        await agent.say({"cmd": "drain"})
        await agent.say({"cmd": "add", "sessions": 3})
        await agent.say({"cmd": "nothing"})  # told after the two were heard
        await agent.until(lambda: bool(agent.of("refused")))
        gate.opened.set()
        assert 0 == await agent.ended()
        await server.until(lambda: all(connection.end != "open" for connection in server.connections))
    assert [False] * 3 == [connection.left_early for connection in server.connections]
    assert [("", "server")] * 3 == [(end["error"], end["ended_by"]) for end in agent.of("end")]
    assert "drained" == agent.events[-1]["reason"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains(number: signal.Signals, start: Start) -> None:
    gate = Gate(tokens=1)
    async with Server(gate) as server, start(server.url, sessions=2, rounds=2) as agent:
        await server.until(lambda: len(server.connections) == 2)
        agent.kill(number)
        await asyncio.sleep(0.2)
        agent.kill(number)  # again changes nothing
        gate.opened.set()
        assert 0 == await agent.ended()
    assert [""] * 2 == [end["error"] for end in agent.of("end")]
    assert "terminated" == agent.events[-1]["reason"]


async def test_draining_ends_sessions_that_think_or_have_not_begun(start: Start) -> None:
    async with (
        Server(scripted.always(ANSWER)) as server,
        start(server.url, sessions=2, rounds=2, think_s=60, ramp_s=120) as agent,
    ):
        await agent.until(lambda: bool(agent.of("end")))
        await agent.until(lambda: agent.of("beat")[-1]["phases"]["thinking"] == 1 if agent.of("beat") else False)
        await agent.say({"cmd": "drain"})
        assert 0 == await agent.ended()
    assert 1 == len(server.connections)


async def test_stop_hangs_up_everything_now(start: Start) -> None:
    gate = Gate()
    async with Server(gate) as server, start(server.url, sessions=3, rounds=2) as agent:
        await server.until(lambda: len(server.connections) == 3)
        await agent.say({"cmd": "stop"})
        assert 0 == await agent.ended()
        await server.until(lambda: all(connection.left_early for connection in server.connections))
    assert [("cancelled", "harness")] * 3 == [(end["error"], end["ended_by"]) for end in agent.of("end")]
    assert "stopped" == agent.events[-1]["reason"]


async def test_an_orphan_drains_and_hangs_up_only_when_its_time_is_over(start: Start) -> None:
    gate = Gate()
    async with Server(gate) as server, start(server.url, sessions=2, rounds=2, orphan_drain_s=0.5) as agent:
        await server.until(lambda: len(server.connections) == 2)
        agent.hang_up_stdin()
        assert 0 == await agent.ended()
    assert [("cancelled", "harness")] * 2 == [(end["error"], end["ended_by"]) for end in agent.of("end")]
    waited_ns = min(end["t"] - end["sent"] for end in agent.of("end"))
    assert waited_ns >= 490_000_000  # a loop's timers are early by a part of a millisecond (uvloop)
    assert "orphaned" == agent.events[-1]["reason"]


async def test_an_orphan_whose_requests_end_in_time_hangs_up_nothing(start: Start) -> None:
    gate = Gate()
    async with Server(gate) as server, start(server.url, sessions=2, rounds=2, orphan_drain_s=60) as agent:
        await server.until(lambda: len(server.connections) == 2)
        agent.hang_up_stdin()
        await asyncio.sleep(0.1)
        gate.opened.set()
        assert 0 == await agent.ended()
    assert [""] * 2 == [end["error"] for end in agent.of("end")]
    assert "orphaned" == agent.events[-1]["reason"]


async def test_an_agent_whose_reader_died_ends_as_an_orphan(start: Start) -> None:
    async with Server(Gate()) as server, start(server.url, sessions=1, orphan_drain_s=0.2) as agent:
        await server.until(lambda: len(server.connections) == 1)
        agent._reading.cancel()
        agent.process._transport.get_pipe_transport(1).close()
        assert 0 == await asyncio.wait_for(agent.process.wait(), scripted.PATIENCE_S)
        agent._reading = asyncio.create_task(asyncio.sleep(0))


async def test_a_killed_agent_leaves_its_census_and_the_server_sees_every_socket_close(
    start: Start, tmp_path: Path
) -> None:
    async def by_session(connection: Connection) -> None:
        number = int(connection.headers["x-request-id"].split("-s")[1][:7])
        await (waiting if number < 3 else streaming)(connection)

    waiting, streaming = Gate(), Gate(tokens=1)
    async with Server(by_session) as server, start(server.url, sessions=5, think_s=60) as agent:
        await server.until(lambda: len(server.connections) == 5)
        seen = {"waiting": 3, "streaming": 2}
        while seen != _census(tmp_path / "phases"):  # noqa: ASYNC110 - the file is all there is to look at
            await asyncio.sleep(0.005)
        await agent.until(lambda: len(agent.of("start")) == 5)
        agent.kill()
        assert -signal.SIGKILL == await agent.ended()
        assert seen == _census(tmp_path / "phases")
        await server.until(lambda: all(connection.left_early for connection in server.connections))
    assert 0 == len(agent.of("end"))


def _census(path: Path) -> dict[str, int]:
    slots = phases.read_phases(path)
    counts = {name: slots.count(value) for value, name in enumerate(phases.PHASE_NAMES)}
    return {name: count for name, count in counts.items() if count and name != "none"}


async def test_a_failing_server_is_not_hammered(start: Start) -> None:
    answer = head("500 X", "Content-Length: 4") + b"oops"
    async with Server(scripted.always(answer)) as server, start(server.url, rounds=3) as agent:
        assert 0 == await agent.ended()
    sent = [event["sent"] for event in agent.of("start")]
    assert [("status", "oops", 500)] * 3 == [(end["error"], end["detail"], end["status"]) for end in agent.of("end")]
    assert all(later - earlier >= 500_000_000 for earlier, later in itertools.pairwise(sent))
    assert 3 == agent.of("beat")[-1]["failed"]


async def test_a_refused_connection_is_reported_with_a_start_that_was_not_sent(start: Start) -> None:
    async with Server(Gate()) as server:
        url = server.url
    async with start(url) as agent:
        assert 0 == await agent.ended()
    assert [(None, None)] == [(event["sent"], event["local_port"]) for event in agent.of("start")]
    assert [("refused", "error", None)] == [(end["error"], end["ended_by"], end["sent"]) for end in agent.of("end")]
    assert (1, 0) == (agent.of("beat")[-1]["intended"], agent.of("beat")[-1]["delivered"])


async def test_an_open_loop_arrives_at_its_rate_until_drained_whatever_the_server_does(start: Start) -> None:
    gate = Gate()
    async with Server(gate) as server, start(server.url, rate_per_s=50, rounds=9, phase_slots=100) as agent:
        await server.until(lambda: len(server.connections) >= 40)  # none of them has been answered
        await agent.say({"cmd": "drain"})
        gate.opened.set()
        assert 0 == await agent.ended()
    starts = sorted(agent.of("start"), key=lambda event: event["session"])
    begun = starts[0]["intended"]
    assert [begun + i * 20_000_000 for i in range(len(starts))] == [event["intended"] for event in starts]
    assert [0] * len(starts) == [event["round"] for event in starts]
    assert list(range(len(starts))) == [event["session"] for event in starts]
    assert "drained" == agent.events[-1]["reason"]


async def test_beats_tell_the_phases(start: Start) -> None:
    gate = Gate()
    async with Server(gate) as server, start(server.url, sessions=2) as agent:
        await server.until(lambda: len(server.connections) == 2)
        await agent.until(lambda: [2, 2] == [beat["phases"]["waiting"] for beat in agent.of("beat")[-2:]])
        gate.opened.set()
        assert 0 == await agent.ended()
    beats = agent.of("beat")
    assert 3 <= beats[1]["open_files"] < 50
    assert all(0 <= beat["lag_p99_ms"] <= beat["lag_max_ms"] for beat in beats)


@pytest.mark.parametrize(
    "line",
    [
        {"cmd": "dance"},
        {"cmd": "add", "sessions": -1},
        {"cmd": "wave", "id": "w", "how": "nuke"},
        {"cmd": "wave", "id": "w", "how": "rst", "sessions": "some"},
        [],
    ],
)
async def test_a_command_that_cannot_be_carried_out_is_refused_aloud(line: Any, start: Start) -> None:
    gate = Gate()
    async with Server(gate) as server, start(server.url) as agent:
        await server.until(lambda: len(server.connections) == 1)
        await agent.say(line)
        await agent.until(lambda: bool(agent.of("refused")))
        gate.opened.set()
        assert 0 == await agent.ended()
    assert json.dumps(line).replace(" ", "") == agent.of("refused")[0]["command"].strip().replace(" ", "")
    assert "" == agent.of("end")[0]["error"]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"sesions": 3}, "sesions: unknown key"),
        ({"phase_file": "/nowhere/phases"}, "/nowhere/phases"),
        ({"base_url": "http://no-such-host.invalid:1"}, "agent: "),
    ],
)
async def test_a_bad_configuration_ends_the_process_with_its_reason(
    values: dict[str, Any], complaint: str, start: Start
) -> None:
    async with start("http://127.0.0.1:1", **values) as agent:
        assert 2 == await agent.ended()
    assert complaint in agent.stderr
    assert "Traceback" not in agent.stderr
    assert [] == agent.events


async def test_an_api_key_appears_in_no_event(start: Start) -> None:
    answer = head("401 X", "Content-Length: 6") + b"denied"
    async with Server(scripted.always(answer)) as server, start(server.url, api_key="s3cret") as agent:
        assert 0 == await agent.ended()
    assert "Bearer s3cret" == server.connections[0].headers["authorization"]
    assert "s3cret" not in json.dumps(agent.events) + agent.stderr
