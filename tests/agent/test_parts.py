"""Prompts, phases, configuration, gaps and open-loop arrivals, without a process."""

from __future__ import annotations

import asyncio
import json
import struct
from array import array
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import make_config

from chaos.agent import phases, prompts
from chaos.agent.beat import Beat
from chaos.agent.config import ConfigError, parse_config
from chaos.agent.report import gaps
from chaos.agent.sessions import Counters, arrivals

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# ---------------------------------------------------------------------------------------------- prompts


def test_a_prompt_is_the_same_for_the_same_place_and_starts_differently_for_every_other() -> None:
    places = [
        (seed, group, session, round_) for seed in (1, 2) for group in "ab" for session in (0, 1) for round_ in (0, 1)
    ]
    texts = [prompts.prompt(*place, 50) for place in places]
    assert texts == [prompts.prompt(*place, 50) for place in places]
    assert len(places) == len({text[:16] for text in texts})


def test_a_prompt_is_the_same_on_every_python_and_machine() -> None:
    assert "8516c56882f94c07 high rock stone young" == prompts.prompt(1, "agents", 0, 0, 12)


@pytest.mark.parametrize("tokens", [1, 8, 9, 300, 5000])
def test_a_prompt_has_about_the_ordered_length(tokens: int) -> None:
    words = len(prompts.prompt(1, "g", 0, 0, tokens).split())
    assert max(2, tokens - 7) == words


def test_the_context_of_a_chat_grows_by_questions_and_answers() -> None:
    talk = prompts.Conversation(make_config("http://h", rounds=3), 7)
    first = json.loads(talk.ask(0))["messages"]
    talk.answered("so it is")
    second = json.loads(talk.ask(1))["messages"]
    assert [*first, {"role": "assistant", "content": "so it is"}] == second[:2]
    assert ["user", "assistant", "user"] == [message["role"] for message in second]


@pytest.mark.parametrize(("api", "key"), [("completions", "prompt"), ("generate", "text")])
def test_the_context_of_a_text_grows_by_questions_and_answers(api: str, key: str) -> None:
    talk = prompts.Conversation(make_config("http://h", api=api), 7)
    first = json.loads(talk.ask(0))[key]
    talk.answered("so it is")
    assert json.loads(talk.ask(1))[key].startswith(f"{first}\nso it is\n")


def test_a_question_that_failed_is_forgotten() -> None:
    talk = prompts.Conversation(make_config("http://h"), 7)
    talk.ask(0)
    talk.failed()
    assert 1 == len(json.loads(talk.ask(1))["messages"])


def test_a_body_asks_for_what_was_configured() -> None:
    config = make_config("http://h", model="m", max_tokens=9, temperature=0.5, ignore_eos=False)
    body = json.loads(prompts.Conversation(config, 0).ask(0))
    del body["messages"]
    assert {
        "model": "m", "max_tokens": 9, "temperature": 0.5, "ignore_eos": False, "stream": True,
        "stream_options": {"include_usage": True},
    } == body  # fmt: skip


def test_a_native_body_asks_for_what_was_configured() -> None:
    config = make_config("http://h", api="generate", model="m", max_tokens=9, stream=False)
    body = json.loads(prompts.Conversation(config, 0).ask(0))
    del body["text"]
    assert {"sampling_params": {"max_new_tokens": 9, "temperature": 0.0, "ignore_eos": True}, "stream": False} == body


# ---------------------------------------------------------------------------------------------- phases


def test_a_phase_file_has_the_documented_layout(tmp_path: Path) -> None:
    file = phases.PhaseFile(tmp_path / "p", 3)
    file.move(1, phases.NONE, phases.WAITING)
    data = (tmp_path / "p").read_bytes()
    assert (b"PDCH", 1, 3) == struct.unpack_from("<4sII", data)
    assert bytes(52) == data[12:64]
    assert bytes([0, phases.WAITING, 0]) == data[64:]
    assert data[64:] == phases.read_phases(tmp_path / "p")
    file.close()


def test_a_phase_file_that_is_there_is_taken_over_in_place_and_emptied(tmp_path: Path) -> None:
    path = tmp_path / "p"
    first = phases.PhaseFile(path, 4)
    first.move(0, phases.NONE, phases.WAITING)
    with path.open("rb") as watching:
        second = phases.PhaseFile(path, 4)
        assert bytes(4) == phases.read_phases(path)
        second.move(3, phases.NONE, phases.STREAMING)
        assert phases.STREAMING == watching.read()[67]
    first.close()
    second.close()


def test_sessions_beyond_the_last_slot_take_the_slots_of_those_that_are_done(tmp_path: Path) -> None:
    file = phases.PhaseFile(tmp_path / "p", 2)
    assert [0, 1, -1] == [file.slot(ordinal) for ordinal in range(3)]
    file.move(-1, phases.NONE, phases.WAITING)
    file.move(1, phases.NONE, phases.DONE)
    assert 1 == file.slot(3)
    assert {"connecting": 0, "waiting": 1, "streaming": 0, "thinking": 0, "done": 1} == file.census()
    file.close()


@pytest.mark.parametrize("data", [b"", b"PDCH", b"X" * 100, b"PDCH" + bytes(100)])
def test_what_is_no_phase_file_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(data)
    with pytest.raises(ValueError, match=r"header|not a phase file"):
        phases.read_phases(tmp_path / "p")


# ---------------------------------------------------------------------------------------------- configuration

GOOD: dict[str, Any] = {"group": "g", "base_url": "http://127.0.0.1:1", "api": "chat", "phase_file": "/p"}


def test_the_whole_configuration_of_the_protocol_is_taken() -> None:
    line = {
        "group": "agents", "run": "r", "seed": 1, "base_url": "http://127.0.0.1:1", "api": "chat", "stream": True,
        "model": "m", "headers": {"a": "b"}, "api_key": None, "tls": {"verify": False, "ca": None}, "sessions": 60,
        "first_session": 0, "rounds": 4, "prompt_tokens": 300, "max_tokens": 2500, "timeout_s": 120, "ramp_s": 5,
        "rate_per_s": None, "think_s": 0, "phase_file": "/path", "phase_slots": 400, "orphan_drain_s": 20,
        "path": "routed", "temperature": 0.0, "ignore_eos": True,
    }  # fmt: skip
    config = parse_config(json.dumps(line).encode())
    assert (60, 2500, (("a", "b"),), False, 5.0) == (
        config.sessions, config.max_tokens, config.headers, config.tls_verify, config.ramp_s,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"sesions": 3}, "sesions: unknown key"),
        ({"tls": {"verfy": True}}, "tls.verfy: unknown key"),
        ({"group": None}, "group: wanted a string"),
        ({"sessions": True}, "sessions: wanted an integer"),
        ({"rounds": 0}, "rounds: wanted an integer of at least 1"),
        ({"timeout_s": -1}, "timeout_s: wanted a number"),
        ({"rate_per_s": 0}, "rate_per_s: wanted a positive number"),
        ({"stream": 1}, "stream: wanted true or false"),
        ({"headers": {"A": "b\r\nC: d"}}, "headers.A: wanted one line"),
        ({"headers": []}, "headers: wanted an object"),
        ({"api_key": "a\nb"}, "api_key: wanted one line"),
        ({"api": "grpc"}, "api: wanted one of chat, completions, generate"),
        ({"base_url": "127.0.0.1:1"}, "base_url: wanted http"),
        ({"base_url": "http://h:99999"}, "base_url: wanted http"),
    ],
)
def test_a_bad_configuration_is_refused_with_its_reason(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_config(json.dumps({**GOOD, **change}).encode())


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(b'{"api": "x", "sesions": 1}')
    assert ["group", "base_url", "phase_file", "sesions", "api"] == [
        line.partition(":")[0] for line in str(refused.value).splitlines()
    ]


@pytest.mark.parametrize("line", [b"", b"[]", b"{", b"\xff"])
def test_what_is_no_configuration_is_refused(line: bytes) -> None:
    with pytest.raises(ConfigError):
        parse_config(line)


# ---------------------------------------------------------------------------------------------- gaps


def test_gaps_are_nearest_rank_percentiles() -> None:
    stamps = array("q", [0])
    for gap_ms in range(1, 101):
        stamps.append(stamps[-1] + gap_ms * 1_000_000)
    assert {"n": 100, "p50_ms": 50.0, "p99_ms": 99.0, "max_ms": 100.0} == gaps(stamps)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_tokens_have_no_gaps(count: int) -> None:
    assert None is gaps(array("q", range(count)))


# ---------------------------------------------------------------------------------------------- arrivals


class JumpingClock:
    """Time that passes only in sleep, and oversleeps as ordered."""

    def __init__(self, oversleep: Callable[[], int]) -> None:
        self.now = 1_000
        self._oversleep = oversleep

    def now_ns(self) -> int:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e9) + self._oversleep()


class Enough(Exception):
    """Ends the arrivals of a test."""


def _arrive(clock: JumpingClock, rate: float, count: int) -> list[tuple[int, int]]:
    """(due, actual) of the first `count` arrivals."""
    seen: list[tuple[int, int]] = []

    def arrive(due_ns: int) -> None:
        seen.append((due_ns, clock.now_ns()))
        if len(seen) == count:
            raise Enough

    with pytest.raises(Enough):
        asyncio.run(arrivals(clock, rate, 1_000, arrive))
    return seen


class TimedLoop:
    """A loop that calls back at its own time, which moves only so."""

    def __init__(self) -> None:
        self.now = 100.0
        self.due: list[tuple[float, Any]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Any) -> None:
        self.due.append((when, callback))

    def turn(self, late_s: float = 0.0) -> None:
        when, callback = self.due.pop()
        self.now = when + late_s
        callback()


def test_a_beat_comes_twice_a_second_and_tells_the_worst_lag_since_the_last() -> None:
    loop, beats = TimedLoop(), []
    load = SimpleNamespace(counters=Counters(), tokens=lambda: 7, phases=SimpleNamespace(census=lambda: {"waiting": 2}))
    report = SimpleNamespace(emit=lambda event, fields: beats.append((round(loop.now, 2), event, fields)))
    Beat(loop, load, report).start()  # type: ignore[arg-type]
    loop.turn(late_s=0.1)
    while len(beats) < 4:
        loop.turn()
    assert [(at, "beat") for at in (100.5, 101.0, 101.5, 102.0)] == [
        (pytest.approx(at, abs=0.011), event) for at, event, _ in beats
    ]
    assert [100.0, 0.0, 0.0, 0.0] == [fields["lag_max_ms"] for _, _, fields in beats]
    assert (7, {"waiting": 2}) == (beats[0][2]["tokens"], beats[0][2]["phases"])


def test_arrivals_are_due_at_absolute_deadlines_without_a_burst_at_the_start() -> None:
    seen = _arrive(JumpingClock(lambda: 0), 20.0, 100)
    assert [1_000 + i * 50_000_000 for i in range(100)] == [due for due, _ in seen]
    assert all(due == actual for due, actual in seen)


@given(st.lists(st.integers(0, 300_000_000), min_size=1), st.sampled_from([3.0, 7.0, 1000.0]))
def test_oversleeping_is_made_up_for_and_drops_or_shifts_nothing(naps: list[int], rate: float) -> None:
    left = list(naps)
    seen = _arrive(JumpingClock(lambda: left.pop() if left else 0), rate, 500)
    assert [1_000 + round(i * 1e9 / rate) for i in range(500)] == [due for due, _ in seen]
    # Never early, and never later than the one nap that was overslept.
    assert all(0 <= actual - due <= max(naps) + 1 for due, actual in seen)
