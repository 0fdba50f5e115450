"""One run from first look to farewell: what it works with is made, its acts are played, and all is taken down again.

Everything that happens is an event; what it means is the judge's business.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chaos import __version__
from chaos.engine.acts import Played, play
from chaos.engine.bus import Bus
from chaos.engine.cleaning import last_look
from chaos.engine.discretion import discreet
from chaos.engine.equipment import make_fleet, make_forensics, make_kit
from chaos.engine.hosts.record import recorded
from chaos.engine.leaving import leave
from chaos.engine.probes import Discovery, Probes, discover, make_http
from chaos.engine.scene import Scene
from chaos.engine.secrets import request_headers
from chaos.engine.seen import Seen
from chaos.engine.stopping import Leave, Stop, Stopping
from chaos.journal import JournalWriter
from chaos.model import events as ev
from chaos.model.errors import HarnessError, PdchaosError, Refused, Unfit
from chaos.model.faults import Kill, Poison, Sham
from chaos.model.outcomes import RunStatus

if TYPE_CHECKING:
    import httpx

    from chaos.engine.cleaning import Doubt
    from chaos.engine.setup import RunSetup


class Run:
    """One run. `execute` does not raise for what happens to the target: the journal tells it all."""

    def __init__(self, setup: RunSetup) -> None:
        self._setup = setup
        self._clock = setup.clock
        self._seen = Seen(setup.plan.canary_deadline_s)
        self._leftovers: list[str] = []  # what could not be undone
        self._doubts: list[Doubt] = []
        self._journal = JournalWriter(setup.folder.journal)
        self._bus = Bus(self._journal, [*self._seen.listeners, *setup.listeners], discreet(setup.target))
        self._stopping = Stopping(setup.interrupt, self._bus.broken)

    @property
    def dropped_listeners(self) -> list[str]:
        """Views that raised and were dropped."""
        return self._bus.dropped

    async def execute(self) -> PdchaosError | None:
        """Run to the end. Returns the error that ended it, if one did; any other exception is a defect of ours."""
        setup = self._setup
        self._bus.emit(
            ev.RunStarted(
                t_ns=self._clock.now_ns(),
                format=ev.FORMAT,
                run_id=setup.run_id,
                tool_version=__version__,
                utc=setup.utc,
                target=setup.target_kind,
                plan=setup.plan,
                seed=setup.scenario.seed,
                packs=setup.packs_used,
                gave_way=setup.gave_way,
            )
        )
        status, reason = RunStatus.HARNESS_ERROR, "ended by an error of pdchaos itself"
        failure: PdchaosError | None = None
        try:
            with setup.interrupt.installed():
                played = await self._staged()
                status, reason = played.status, played.reason
        except* PdchaosError as group:
            failure = _first(group)
            status, reason = _status_of(failure), failure.message
        finally:
            closing = await asyncio.to_thread(setup.close_target)
            locked = [] if setup.lock is None else await asyncio.to_thread(setup.lock.release)
            cleanup, left = await last_look(
                setup.run_id,
                setup.hosts,
                known=[*self._leftovers, *([closing] if closing else [])],
                doubts=self._doubts,
                look=any(not isinstance(step.action, Kill | Poison | Sham) for step in setup.scenario.timeline),
                locked=locked,
            )
            if self._bus.failure is not None:
                failure = HarnessError(
                    f"the journal cannot be written any more: {self._bus.failure.strerror}",
                    hint="free some space; what was recorded before can be judged",
                )
                status, reason = RunStatus.HARNESS_ERROR, failure.message
            self._bus.farewell(
                ev.RunEnded(
                    t_ns=self._clock.now_ns(),
                    status=status,
                    reason=reason,
                    cleanup=cleanup,
                    cleanup_detail=left,
                )
            )
            self._journal.close()
        return failure

    async def _staged(self) -> Played:
        """Find the target and play on it, with its record of hosts and our HTTP client open."""
        setup = self._setup
        async with (
            make_http(setup.target.tls, setup.hosts.relays) as http,
            recorded(setup.hosts, self._bus.emit),
        ):
            try:
                found = await self._stopping.or_stop(
                    discover(
                        setup.target,
                        setup.packs,
                        setup.plan,
                        http=http,
                        clock=self._clock,
                        hosts=setup.hosts,
                        headers=request_headers(setup.target),
                    )
                )
            except (Stop, Leave) as stop:
                return Played(RunStatus.ABORTED, str(stop))
            self._bus.emit(found.seen)
            return await self._played(found, http)

    async def _played(self, found: Discovery, http: httpx.AsyncClient) -> Played:
        """Set up whatever looks, loads and breaks; play; take it down, whatever the way out."""
        setup, emit = self._setup, self._bus.emit
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(self._bus.keep_synced())]
            if setup.lock is not None:
                background.append(tasks.create_task(setup.lock.keep(setup.interrupt.request)))
            probes = Probes(setup, found, http=http, emit=emit, gaps=lambda last: setup.hosts.relays.gaps(last=last))
            await probes.start(tasks)
            forensics = make_forensics(
                setup, found, probes=probes, http=http, emit=emit, suspicion=self._seen.suspicion
            )
            background.append(forensics.start(tasks))
            fleet = make_fleet(setup, found, emit=emit, tasks=tasks)
            kit = make_kit(
                setup,
                found,
                fleet=fleet,
                probes=probes,
                forensics=forensics,
                http=http,
                emit=emit,
                leftovers=self._leftovers,
                doubts=self._doubts,
            )
            scene = Scene(
                setup=setup, bus=self._bus, seen=self._seen, kit=kit, forensics=forensics, stopping=self._stopping
            )
            try:
                async with kit.standing:
                    played = await play(scene)
                if played.at_once:
                    await leave(kit, self._seen.facts, setup.interrupt)
                return played
            finally:
                await fleet.hang_up()
                await forensics.close()
                await probes.close()
                for task in background:
                    task.cancel()


def _first(group: BaseExceptionGroup[PdchaosError]) -> PdchaosError:
    """The first error of a (nested) group."""
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def _status_of(error: PdchaosError) -> RunStatus:
    match error:
        case Refused():
            return RunStatus.REFUSED
        case Unfit():
            return RunStatus.UNFIT
        case _:
            return RunStatus.HARNESS_ERROR
