"""Who cannot wait: users are hung up on, and the target is looked at once more, for seconds, unless asked yet again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from chaos.engine import leaving
from chaos.engine.leaving import leave
from chaos.engine.safety import Interrupt
from chaos.judge import Facts
from chaos.model import events as ev


@dataclass
class FakeKit:
    """What `leave` needs of a kit: a load that is hung up on, canaries, a clock that counts what it was asked."""

    facts: Facts
    tokens: tuple[int, ...] = ()  # of each open request of users
    open_canaries: int = 0
    answers: bool = True
    did: list[str] = field(default_factory=list)

    @property
    def probes(self) -> FakeKit:
        return self

    @property
    def fleet(self) -> FakeKit:
        return self

    @property
    def clock(self) -> FakeKit:
        return self

    def pause_for_idle(self) -> None:
        self.did.append("paused")

    async def hang_up(self) -> None:
        self.did.append("hung up")
        for number, tokens in enumerate(self.tokens):
            self.facts.feed(
                ev.RequestEnded(
                    t_ns=2,
                    src_t_ns=2,
                    req=f"u{number}",
                    kind="load",
                    path="routed",
                    tokens=tokens,
                    error="cancelled",
                    ended_by="harness",
                )
            )

    async def sleep(self, seconds: float) -> None:
        self.did.append(f"slept {seconds:g}")

    async def last(self, deadline_s: float) -> None:
        self.did.append(f"asked, deadline {deadline_s:g}")
        await self._answered()

    async def settled(self) -> None:
        self.did.append("waited")
        await self._answered()

    async def _answered(self) -> None:
        if not self.answers:
            await asyncio.Event().wait()


def kit(**more: Any) -> FakeKit:
    facts = Facts()
    facts.feed(ev.PhaseEntered(t_ns=1, phase="teardown", reason="SIGINT"))
    facts.feed(ev.PhaseEntered(t_ns=1, phase="leaving", reason="SIGINT"))
    return FakeKit(facts, **more)


async def left(kit: FakeKit, interrupt: Interrupt | None = None) -> list[str]:
    async with asyncio.timeout(5):
        await leave(kit, kit.facts, interrupt or Interrupt(lambda _: None))  # type: ignore[arg-type]
    return kit.did


@pytest.mark.parametrize(
    ("look", "open_"),
    [
        pytest.param(["slept 4", "asked, deadline 20"], {"tokens": (0, 3)}, id="a waiting request"),
        pytest.param(["waited"], {"tokens": (3,), "open_canaries": 1}, id="only streams"),
        pytest.param(["waited"], {"open_canaries": 1}, id="only canaries"),
        pytest.param([], {}, id="nothing"),
    ],
)
async def test_a_fresh_request_is_sent_only_where_a_waiting_one_was_hung_up_on_already(look, open_) -> None:
    assert ["paused", "hung up", *look] == await left(kit(**open_))


async def test_the_last_look_is_over_within_seconds_whatever_the_target_does(monkeypatch) -> None:
    monkeypatch.setattr(leaving, "LOOK_S", 0.05)
    assert "asked, deadline 20" in await left(kit(tokens=(0,), answers=False))


async def test_who_asks_once_more_leaves_without_the_last_look(monkeypatch) -> None:
    monkeypatch.setattr(leaving, "LOOK_S", 60.0)
    interrupt = Interrupt(lambda _: None)
    for _ in range(3):
        interrupt.request("SIGINT")
    assert "hung up" in await left(kit(tokens=(0,), answers=False), interrupt)
