"""When forensics are wanted: at the first sign after a fault, once per cycle, never for what we do at the end."""

from __future__ import annotations

import asyncio

import pytest

from chaos.engine.forensics import Suspicion
from chaos.model import events as ev

LOAD = ev.PhaseEntered(t_ns=0, phase="load")
WAVE = ev.WaveFired(t_ns=0, wave="wave", how="sigkill", ordered_ns=0)
FREEZE = ev.FaultStep(t_ns=0, fault="freeze", kind="signal", stage="applied", ok=True, nodes=("decode-0",))
BEGUN = ev.RequestStarted(t_ns=0, req="c1", kind="canary", path="routed", intended_ns=0)
OVERDUE = ev.RequestOverdue(t_ns=0, req="c1", kind="canary", path="routed", age_s=6.0, deadline_s=6.0)
FAILED = ev.RequestEnded(t_ns=0, req="c1", kind="canary", path="routed", error="status")
PASSED = ev.RequestEnded(t_ns=0, req="c1", kind="canary", path="routed")
HUNG_UP = ev.RequestEnded(t_ns=0, req="c1", kind="canary", path="routed", error="cancelled", ended_by="harness")
FATAL = ev.LogHit(t_ns=0, node="prefill-0", stream="log", signature="died", klass="fatal", line="x", title="it died")
ABORT = ev.LogHit(t_ns=0, node="prefill-0", stream="log", signature="aborted", klass="abort", line="x")
ALIVE = ev.ProcessSeen(
    t_ns=0, node="decode-0", pid=7, alive=True, children=(ev.Child(pid=8, name="scheduler", alive=True),)
)
DEAD = ev.ProcessSeen(t_ns=0, node="decode-0", pid=7, alive=False, children=ALIVE.children)
CHILD_DEAD = ev.ProcessSeen(
    t_ns=0, node="decode-0", pid=7, alive=True, children=(ev.Child(pid=8, name="scheduler", alive=False),)
)


def raised(*events: ev.AnyEvent) -> list[tuple[str, str]]:
    suspicion = Suspicion()
    for event in events:
        suspicion.on_event(event)

    async def drain() -> list[tuple[str, str]]:
        found = []
        while True:
            try:
                async with asyncio.timeout(0):
                    one = await suspicion.next()
            except TimeoutError:
                return found
            found.append((one.reason, one.detail))

    return asyncio.run(drain())


@pytest.mark.parametrize(
    ("events", "reason", "detail"),
    [
        ((WAVE, BEGUN, OVERDUE), "canary-overdue", "routed: no answer in 6 s"),
        ((FREEZE, BEGUN, OVERDUE), "canary-overdue", "routed"),
        ((WAVE, BEGUN, FAILED), "canary-failed", "routed: status"),
        ((FATAL,), "fatal-line", "prefill-0: it died"),
        ((ALIVE, DEAD), "process-gone", "decode-0: process 7"),
        ((ALIVE, CHILD_DEAD), "process-gone", "decode-0: process 8"),
    ],
)
def test_each_sign_is_a_reason(events: tuple[ev.AnyEvent, ...], reason: str, detail: str) -> None:
    ((got, told),) = raised(LOAD, *events)
    assert (reason, True) == (got, detail in told)


@pytest.mark.parametrize(
    "events",
    [
        (LOAD, BEGUN, OVERDUE),  # before any fault: the load is heavy
        (LOAD, BEGUN, WAVE, OVERDUE),  # it was under way when the fault came
        (LOAD, WAVE, BEGUN, PASSED, OVERDUE),
        (LOAD, WAVE, BEGUN, HUNG_UP),
        (LOAD, WAVE, ABORT),
        (LOAD, ALIVE, ALIVE),
        (FATAL,),  # before the load
        (LOAD, ev.PhaseEntered(t_ns=0, phase="teardown"), FATAL),
    ],
)
def test_everything_else_is_none(events: tuple[ev.AnyEvent, ...]) -> None:
    assert [] == raised(*events)


def test_one_cycle_raises_one_suspicion_and_the_next_may_raise_another() -> None:
    cycle = (LOAD, WAVE, FATAL, BEGUN, OVERDUE, FATAL)
    assert ["fatal-line", "fatal-line"] == [reason for reason, _ in raised(*cycle, *cycle)]


def test_every_applied_fault_is_noted_once() -> None:
    noted: list[int] = []
    suspicion = Suspicion()
    suspicion.on_fault = lambda: noted.append(suspicion.faults)
    kill = ev.FaultStep(t_ns=0, fault="wave", kind="kill", stage="applied", ok=True)
    for event in (LOAD, WAVE, kill, FREEZE):
        suspicion.on_event(event)
    assert [1, 2] == noted
