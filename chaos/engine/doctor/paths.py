"""Whether every path serves a fresh request, and whether the logs grow by it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.engine.doctor.row import Row, State
from chaos.engine.owners import Owners
from chaos.engine.ports import SystemClock
from chaos.engine.probes.bundle import routes
from chaos.engine.probes.canary import CanaryProbe
from chaos.engine.probes.follow import stream_of
from chaos.engine.probes.logs import LogProbe
from chaos.model import events as ev

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from chaos.engine.ports import Clock
    from chaos.engine.probes.discover import Discovery
    from chaos.model.scenario import Scenario

PATIENCE_S = 60.0
"""A canary that hangs is hung up on only then: on some releases that is itself the fault, and it is already there."""
LOGGED_S = 2.0
"""An engine logs a request when it is done with it, and what it prints is seen within half a second."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What probes need to know of a run."""

    plan: ev.Plan
    run_id: str
    scenario: Scenario
    clock: Clock
    owners: Owners


def setup(plan: ev.Plan, run_id: str, scenario: Scenario) -> Setup:
    """For a look that is no run."""
    return Setup(plan, run_id, scenario, SystemClock(), Owners(()))


async def look(found: Discovery, asking: Setup, *, http: httpx.AsyncClient) -> list[Row]:
    """One canary on every path; rows for each, and for each log whether it grew."""
    events: list[ev.AnyEvent] = []
    logs = [log for node in found.nodes for log in node.logs]
    log_probe = LogProbe(logs, emit=events.append, clock=asking.clock, run_id=asking.run_id)
    canaries = CanaryProbe(
        routes(asking, found),
        http=http,
        emit=events.append,
        clock=asking.clock,
        run_id=asking.run_id,
        model=found.model,
        interval_s=asking.plan.canary_interval_s,
        deadline_s=PATIENCE_S,
        headers=found.headers,
    )
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(log_probe.run())
        asked = tasks.create_task(canaries.run())
        await asyncio.sleep(0)
        await canaries.last(PATIENCE_S)
        await asyncio.sleep(LOGGED_S)
        await log_probe.finish()
        await canaries.close()
        await asked
        reading.cancel()
    return [*_paths(found, events), *_logs(found, events)]


def _paths(found: Discovery, events: list[ev.AnyEvent]) -> Iterator[Row]:
    ended = {event.path: event for event in events if isinstance(event, ev.RequestEnded)}
    for path in found.seen.paths:
        if not path.examined:
            yield Row(path.id, "canary", State.NOTE, f"not asked: {path.reason}")
            continue
        end = ended.get(path.id)
        if end is not None and end.ok:
            took_s = ((end.last_ns or 0) - (end.sent_ns or 0)) / 1e9
            yield Row.ok(path.id, "canary", f"complete after {took_s:.1f} s")
        else:
            fix = "mend the deployment first: it does not serve, before anything was broken"
            yield Row(path.id, "canary", State.PROBLEM, _failed(end), fix)


def _failed(end: ev.RequestEnded | None) -> str:
    if end is None or end.error == "cancelled":  # by us, who had waited for as long as that
        what = "no answer" if end is None or end.first_ns is None else "no whole answer"
        return f"{what} within {PATIENCE_S:g} s"
    return f"{end.error or end.ended_by}: {end.detail}".rstrip(": ")


def _logs(found: Discovery, events: list[ev.AnyEvent]) -> Iterator[Row]:
    read: dict[tuple[str, str], int] = {}
    for event in events:
        if isinstance(event, ev.LogCovered):
            grew = max(event.end - event.start, event.lines)
            log_read = (event.node, stream_of(event.stream))
            read[log_read] = read.get(log_read, 0) + grew
    for node in found.nodes:
        for log in node.logs:
            told = log.log.told
            if read.get((log.node, log.stream)):
                yield Row.ok(log.node, "log grows", f"{told} grew while requests were made")
            elif node.node.role == "router":
                said = f"{told} did not grow while requests were made: not every router logs each of them"
                yield Row(log.node, "log grows", State.NOTE, said)
            else:
                fix = "is it the log of this server, with both streams, and written without a buffer?"
                yield Row(log.node, "log grows", State.NOTE, f"{told} did not grow while requests were made", fix)
