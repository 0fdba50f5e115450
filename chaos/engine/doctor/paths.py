"""Whether every path serves a fresh request, and whether the logs grow by it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from chaos.engine.doctor.row import Row, State
from chaos.engine.owners import Owners
from chaos.engine.ports import SystemClock
from chaos.engine.probes.bundle import routes
from chaos.engine.probes.canary import CanaryProbe
from chaos.engine.probes.follow import stream_of
from chaos.engine.probes.logs import LogProbe
from chaos.model import events as ev

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from chaos.engine.ports import Clock
    from chaos.engine.probes.discover import Discovery
    from chaos.model.scenario import Scenario

LEAST_PATIENCE_S = 10.0
"""However short the engine's clocks are, our own machine may take a while."""
TOLD_EVERY_S = 10.0
MOST_SHOWN = 3
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


def patience_s(plan: ev.Plan) -> float:
    """How long a canary may wait: what a run would give the target to recover, on the engine's own clocks.

    One that hangs is hung up on only then: on some releases that is itself the fault, and it is already there.
    """
    return max(LEAST_PATIENCE_S, plan.recover_within_s)


async def look(
    found: Discovery, asking: Setup, *, http: httpx.AsyncClient, progress: Callable[[str], None]
) -> list[Row]:
    """One canary on every path; rows for each, and for each log whether it grew."""
    events: list[ev.AnyEvent] = []
    logs = [log for node in found.nodes for log in node.logs]
    log_probe = LogProbe(logs, emit=events.append, clock=asking.clock, run_id=asking.run_id)
    patience = patience_s(asking.plan)
    canaries = CanaryProbe(
        routes(asking, found),
        http=http,
        emit=events.append,
        clock=asking.clock,
        run_id=asking.run_id,
        model=found.model,
        interval_s=asking.plan.canary_interval_s,
        deadline_s=patience,
        headers=found.headers,
    )
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(log_probe.run())
        asked = tasks.create_task(canaries.run())
        telling = tasks.create_task(_tell(found, events, patience, progress))
        await asyncio.sleep(0)
        await canaries.last(patience)
        telling.cancel()
        if logs:
            progress(f"waiting {LOGGED_S:g} s for the logs to tell of them")
        await asyncio.sleep(LOGGED_S)
        await log_probe.finish()
        await canaries.close()
        await asked
        reading.cancel()
    return [*_paths(found, events, patience), *_logs(found, events)]


async def _tell(
    found: Discovery, events: list[ev.AnyEvent], patience: float, progress: Callable[[str], None]
) -> NoReturn:
    """That canaries are waited for, at once and again now and then, until cancelled."""
    asked = [path.id for path in found.seen.paths if path.examined]
    progress(f"sending one canary on {_shown(asked)}; an answer may take up to {patience:g} s")
    waited = 0.0
    while True:
        await asyncio.sleep(TOLD_EVERY_S)
        waited += TOLD_EVERY_S
        ended = {event.path for event in events if isinstance(event, ev.RequestEnded)}
        late = _shown([path for path in asked if path not in ended])
        progress(f"no answer yet on {late} ({waited:g} s of {patience:g} s)")


def _shown(names: list[str]) -> str:
    return ", ".join(names[:MOST_SHOWN]) + (f" and {len(names) - MOST_SHOWN} more" * (len(names) > MOST_SHOWN))


def _paths(found: Discovery, events: list[ev.AnyEvent], patience: float) -> Iterator[Row]:
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
            yield Row(path.id, "canary", State.PROBLEM, _failed(end, patience), fix)


def _failed(end: ev.RequestEnded | None, patience: float) -> str:
    if end is None or end.error == "cancelled":  # by us, who had waited for as long as that
        what = "no answer" if end is None or end.first_ns is None else "no whole answer"
        return f"{what} within {patience:g} s"
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
