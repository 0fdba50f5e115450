"""One run from first look to farewell: baseline → (load → waves → recovery → rest)* → teardown → idle → last canaries.

Everything that happens is an event; what it means is the judge's business. The one question asked here, "has every
path recovered?", is answered by the judge's own rule, so the run stops watching exactly when the verdict would.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from chaos import __version__
from chaos.engine.baseline import Baseline
from chaos.engine.bus import Bus
from chaos.engine.cleaning import last_look
from chaos.engine.discretion import discreet
from chaos.engine.faults.kit import Asking, FaultKit
from chaos.engine.forensics import Forensics, Subject, Suspicion
from chaos.engine.hosts.record import recorded
from chaos.engine.leaving import leave
from chaos.engine.load.config import Endpoint
from chaos.engine.load.fleet import Fleet
from chaos.engine.owners import Owners
from chaos.engine.ports import SystemClock
from chaos.engine.probes import Discovery, Probes, discover, make_http
from chaos.engine.probes.follow import asked
from chaos.engine.pulse import Pulse
from chaos.engine.secrets import known_secrets, request_headers
from chaos.engine.timeline import Timeline
from chaos.journal import JournalWriter
from chaos.judge import Facts, floors_settle_ns, in_vain_s, passes_for, recovery, unsettled_floors, workers_known
from chaos.model import events as ev
from chaos.model.errors import HarnessError, PdchaosError, Refused, Unfit
from chaos.model.faults import Kill, Poison, Sham
from chaos.model.outcomes import RunStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from pathlib import Path

    import httpx

    from chaos.engine.bus import Listener
    from chaos.engine.cleaning import Doubt
    from chaos.engine.hosts import Hosts
    from chaos.engine.hosts.lock import TargetLock
    from chaos.engine.ports import Clock, Restarter
    from chaos.engine.safety import Interrupt
    from chaos.journal import RunFolder
    from chaos.model.pack import Pack
    from chaos.model.scenario import Scenario
    from chaos.model.target import Target

T = TypeVar("T")

WARM_S = 90.0
"""How long a target may need until its canaries pass: first requests on a starved CPU took 15 s (real SGLang)."""
POLL_S = 0.1
LOST_DRAIN_S = 3.0
"""Once a target is known not to answer, waiting for its answers teaches nothing."""
LOST_AFTER_S = 5.0
"""Not a token, not an answer for this long, while canaries are overdue: it does not answer any more."""
DRAIN_MARGIN_S = 5.0
USERS_HANG_MARGIN_S = 1.0
FLOORS_PATIENCE_S = 20.0
"""A /metrics that takes seconds to answer may leave an idle phase without a reading after the gauge lag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetup:
    """Everything a run is given."""

    scenario: Scenario
    target: Target
    hosts: Hosts
    target_kind: str  # "lab:sim" or "file": never a build or a host
    packs: Mapping[str, Pack]
    packs_used: tuple[ev.PackUsed, ...]
    plan: ev.Plan
    run_id: str
    utc: str
    folder: RunFolder
    pyz: Path
    interrupt: Interrupt
    close_target: Callable[[], str]  # stops a lab that was started for this run; says what would not go
    restarter: Restarter | None = None
    lock: TargetLock | None = None  # kept alive while the run lasts
    gave_way: tuple[str, ...] = ()  # locks of other runs that gave way to it
    listeners: list[Listener] = field(default_factory=list)
    clock: Clock = field(default_factory=SystemClock)

    @property
    def owners(self) -> Owners:
        """Who may own a codeword."""
        return Owners(tuple(group.name for group in self.scenario.load))


class _Stop(Exception):
    """The run was asked to stop gently, or cannot go on recording."""


class _Leave(Exception):
    """The run was asked to leave at once."""


class _Fold:
    """Feeds the judge's fold as the run goes."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def on_event(self, event: ev.AnyEvent, /) -> None:
        self._facts.feed(event)


class Run:
    """One run. `execute` does not raise for what happens to the target: the journal tells it all."""

    def __init__(self, setup: RunSetup) -> None:
        self._setup = setup
        self._plan = setup.plan
        self._clock = setup.clock
        self._interrupt = setup.interrupt
        self._facts = Facts()
        self._baseline = Baseline(setup.plan.canary_deadline_s)
        self._pulse = Pulse()
        self._suspicion = Suspicion()
        self._left = False  # at once, since a person could not wait
        self._leftovers: list[str] = []  # what could not be undone
        self._doubts: list[Doubt] = []
        self._journal = JournalWriter(setup.folder.journal)
        self._bus = Bus(
            self._journal,
            [_Fold(self._facts), self._baseline, self._pulse, self._suspicion, *setup.listeners],
            discreet(setup.target),
        )

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
                status, reason = await self._staged()
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

    # ------------------------------------------------------------------------------------------ stages

    async def _staged(self) -> tuple[RunStatus, str]:
        setup = self._setup
        async with (
            make_http(setup.target.tls, setup.hosts.relays) as http,
            recorded(setup.hosts, self._bus.emit),
        ):
            try:
                found = await self._or_stop(
                    discover(
                        self._setup.target,
                        self._setup.packs,
                        self._plan,
                        http=http,
                        clock=self._clock,
                        hosts=self._setup.hosts,
                        headers=request_headers(self._setup.target),
                    )
                )
            except (_Stop, _Leave) as stop:
                return RunStatus.ABORTED, str(stop)
            self._bus.emit(found.seen)
            async with asyncio.TaskGroup() as tasks:
                background = [tasks.create_task(self._bus.keep_synced())]
                if self._setup.lock is not None:
                    background.append(tasks.create_task(self._setup.lock.keep(self._interrupt.request)))
                probes = Probes(
                    self._setup,
                    found,
                    http=http,
                    emit=self._bus.emit,
                    gaps=lambda last: self._setup.hosts.relays.gaps(last=last),
                )
                await probes.start(tasks)
                forensics = self._make_forensics(found, probes, http)
                background.append(forensics.start(tasks))
                fleet = self._fleet(found, tasks)
                kit = FaultKit(
                    fleet=fleet,
                    probes=probes,
                    emit=self._bus.emit,
                    clock=self._clock,
                    run_id=self._setup.run_id,
                    servers=self._setup.target.servers,
                    hosts=self._setup.hosts,
                    router_pid=found.router.node.pid,
                    health={node.node.id: node.health for node in found.nodes if node.health},
                    http=http,
                    headers=found.headers,
                    abort_urls=found.abort_urls,
                    asking=self._asking(found),
                    rank_process={node.node.id: node.pack.rank_process for node in found.nodes},
                    restarter=self._setup.restarter,
                    seed=self._setup.scenario.seed,
                    time_scale=self._plan.time_scale,
                    leftovers=self._leftovers,
                    doubts=self._doubts,
                    before_restart=partial(forensics.save, "before-restart"),
                )
                try:
                    async with kit.standing:
                        ended = await self._acts(kit, forensics)
                    if self._left:
                        await leave(kit, self._facts, self._interrupt)
                    return ended
                finally:
                    await fleet.hang_up()
                    await forensics.close()
                    await probes.close()
                    for task in background:
                        task.cancel()

    async def _acts(self, kit: FaultKit, forensics: Forensics) -> tuple[RunStatus, str]:
        """Baseline, cycles and the way out; a gentle stop takes the way out, too."""
        recovered, stopped = True, ""
        try:
            try:
                forensics.look("baseline")
                await self._stand_baseline()
                recovered = await self._play_cycles(kit)
            except _Stop as stop:
                stopped = str(stop)
            stopped = await self._way_out(kit, forensics, recovered=recovered, stopped=stopped)
        except _Leave as why:
            if self._facts.phase_start("teardown") is None:
                self._enter("teardown", str(why))
            self._enter("leaving", str(why))
            self._left = True
            return RunStatus.ABORTED, str(why)
        return (RunStatus.ABORTED, stopped) if stopped else (RunStatus.COMPLETED, "")

    async def _stand_baseline(self) -> None:
        """Wait until every path serves and all workers took part; `Unfit` when a path never serves."""
        self._enter("baseline")
        scenario = self._setup.scenario
        in_a_row = {path.id: passes_for(path, self._plan) for path in self._facts.paths()}
        started_ns = self._clock.now_ns()
        at_least_s = scenario.observe.baseline * self._plan.time_scale
        while not (self._baseline.warm(in_a_row) and self._since(started_ns) >= at_least_s and self._workers_known()):
            if self._since(started_ns) > WARM_S:
                if self._baseline.warm(in_a_row):
                    return  # which workers take part stays unknown, and the judge says so
                cold = ", ".join(f"{in_a_row[path]} on {path}" for path in self._baseline.cold(in_a_row))
                raise Unfit(
                    f"the target does not serve before anything was broken: canaries in a row never passed ({cold}) "
                    f"within {WARM_S:g} s (last: {self._baseline.last_error or 'nothing came back'})",
                    hint="mend the deployment first; the probe log in the journal shows every canary",
                )
            await self._or_stop(self._clock.sleep(POLL_S))

    def _workers_known(self) -> bool:
        return workers_known(self._facts, self._clock.now_ns())

    async def _play_cycles(self, kit: FaultKit) -> bool:
        """Play the cycles; False when one did not recover (then no further wave is fired)."""
        count = self._plan.cycles
        for cycle in range(1, count + 1):
            self._bus.cycle = cycle
            self._enter("load")
            kit.probes.hurry(on=False)
            await self._or_stop(kit.fleet.start_groups())
            all_fired = await self._or_stop(self._play_steps(kit, cycle))
            self._enter("recovery" if recovery(self._facts, self._clock.now_ns()).disrupted else "watching")
            kit.probes.hurry(on=True)
            if not await self._or_stop(self._watch()):
                return False
            if not all_fired:
                return True  # a trigger that never came once teaches nothing twice
            if cycle < count:
                self._enter("rest")
                await self._or_stop(self._clock.sleep(self._plan.rest_s))
        if self._plan.measure_s:
            self._enter("measuring")
            kit.probes.hurry(on=False)
            await self._or_stop(self._clock.sleep(self._plan.measure_s))
        return True

    async def _play_steps(self, kit: FaultKit, cycle: int) -> bool:
        steps = self._setup.scenario.timeline
        if not steps:
            await kit.fleet.finished()
            return True
        return await Timeline(steps, kit, cycle=cycle).play()

    async def _watch(self) -> bool:
        """Watch until every path has recovered by the judge's rule, or the engine's own timeouts have gone by.

        Behind a fault that may still stand, nothing recovers that could be judged.
        """
        started_ns = self._clock.now_ns()
        await self._clock.sleep(self._plan.settle_s)
        while not recovery(self._facts, self._clock.now_ns()).recovered:
            if self._leftovers or self._doubts or self._since(started_ns) > self._plan.watch_s:
                return False
            await self._clock.sleep(POLL_S)
        return True

    async def _way_out(self, kit: FaultKit, forensics: Forensics, *, recovered: bool, stopped: str) -> str:
        """Drain, an idle minute without probes, one last canary per path. Returns why it was cut short, if it was."""
        if not (recovered or stopped):
            seen = recovery(self._facts, self._clock.now_ns())
            forensics.request("not-recovered" if seen.disrupted else "not-serving", ", ".join(seen.lacking))
        self._enter("teardown", stopped)
        for give_up in kit.before_rest:
            await give_up()
        patience_s = self._patience_s(recovered=recovered)
        if self._interrupt.gentle.is_set() and not kit.fleet.over:
            self._interrupt.waits(patience_s)
        hung_up = await self._or_leave(kit.fleet.drain(patience_s, hopeless=self._users_hang))
        if not stopped and recovered and hung_up:
            await self._or_leave(self._clear_up(kit))
        if not stopped and recovered and (hung_up or not recovery(self._facts, self._clock.now_ns()).recovered):
            # Requests that never ended had to be hung up on, which is a disturbance of our own: show once more, past
            # the aborts that it made, that every path serves.
            await self._or_leave(self._watch())
        if not stopped:
            self._enter("idle")
            kit.probes.pause_for_idle()
            if recovered:
                forensics.look("end")
            try:
                await self._or_stop(self._stay_idle(for_floors=recovered))
            except _Stop as stop:
                stopped = str(stop)
        self._enter("last-canaries", stopped if self._facts.phase_start("idle") else "")
        kit.probes.resume()
        await self._or_leave(kit.probes.last(self._plan.canary_deadline_s))
        await self._or_leave(forensics.settle())
        await self._or_leave(kit.probes.finish())
        return stopped

    def _patience_s(self, *, recovered: bool) -> float:
        """How long open requests may take to end before we hang up, which is a fault of its own.

        Not having recovered is not the same as not answering: a busy target still gets its time. Where some requests
        hang for good beside others that pass, they get as long as the engine's own timeouts would need to end them.
        """
        patience_s = max((group.timeout for group in self._setup.scenario.load), default=0.0) + DRAIN_MARGIN_S
        if recovered and not recovery(self._facts, self._clock.now_ns()).failing:
            return patience_s
        silent = self._since(self._pulse.last_ns) > LOST_AFTER_S
        return LOST_DRAIN_S if silent else min(patience_s, self._plan.watch_s)

    def _users_hang(self) -> bool:
        """Whether every open request of users waits in vain for longer than the engine's own timeouts allow."""
        return self._since(self._pulse.users_ns) > in_vain_s(self._facts) + USERS_HANG_MARGIN_S

    async def _clear_up(self, kit: FaultKit) -> None:
        """After hanging up on users: leave nothing of ours open that hangs, too, and have every gauge written anew.

        What a queue still holds then is not ours. Paths that lead over what we took down are asked no more.
        """
        await kit.probes.give_up([path.path for path in recovery(self._facts, self._clock.now_ns()).paths])
        await self._clock.sleep(self._plan.quiet_s + self._plan.canaries_in_a_row * self._plan.canary_interval_s)

    async def _stay_idle(self, *, for_floors: bool) -> None:
        """Be idle as long as planned, and longer while queues have not shown floors that tell something.

        A starved machine may not have answered yet, a queue may still drain, and what is above its floor may be
        something that the engine's own timeout frees. Where a path is stuck no floor tells anything.
        """
        await self._clock.sleep(self._plan.idle_s)
        settled_ns = max(self._clock.now_ns(), floors_settle_ns(self._facts))
        while for_floors and unsettled_floors(self._facts) and self._since(settled_ns) < FLOORS_PATIENCE_S:
            await self._clock.sleep(POLL_S)

    # ------------------------------------------------------------------------------------------ inside

    def _fleet(self, found: Discovery, tasks: asyncio.TaskGroup) -> Fleet:
        setup, relays = self._setup, self._setup.hosts.relays
        return Fleet(
            setup.scenario.load,
            Endpoint.of(setup.target, found.model, relays.clients_door),
            run_id=setup.run_id,
            seed=setup.scenario.seed,
            pyz=setup.pyz,
            folder=setup.folder.logs,
            emit=self._bus.emit,
            clock=self._clock,
            tasks=tasks,
            named={step.kill.group for step in setup.scenario.timeline if step.kill and step.kill.how == "abort-api"},
            owners=setup.owners if setup.plan.content != "unchecked" else None,
            load=setup.hosts.load,
            broke=relays.clients_broke,
            away=relays.clients_away,
        )

    def _asking(self, found: Discovery) -> Asking:
        setup, router = self._setup, found.router
        endpoints = router.pack.endpoints
        return Asking(
            model=found.model,
            urls={api: router.base_url + getattr(endpoints, api) for api in endpoints.speaks},
            models_url=router.base_url + endpoints.models if endpoints.models else "",
            named=router.pack.rid,
            owners=setup.owners,
        )

    def _make_forensics(self, found: Discovery, probes: Probes, http: httpx.AsyncClient) -> Forensics:
        setup = self._setup
        return Forensics(
            [
                Subject(
                    node=node.node.id,
                    host=setup.hosts.at(node.node.id),
                    metrics_url=node.metrics.url if node.metrics else "",
                    info_url=node.base_url + node.pack.endpoints.info if node.pack.endpoints.info else "",
                    logs=tuple((log.stream, log.log.file) for log in node.logs if log.log.file),
                    printed=tuple((log.stream, asked(log.log)) for log in node.logs if not log.log.file),
                )
                for node in found.nodes
            ],
            watched=probes.processes,
            wanted=[thread.name for thread in found.seen.threads],
            http=http,
            headers=found.headers,
            emit=self._bus.emit,
            clock=self._clock,
            folder=setup.folder,
            suspicion=self._suspicion,
            secrets=known_secrets(),
        )

    def _enter(self, phase: ev.Phase, reason: str = "") -> None:
        self._bus.emit(ev.PhaseEntered(t_ns=self._clock.now_ns(), phase=phase, reason=reason))

    def _since(self, then_ns: int) -> float:
        return (self._clock.now_ns() - then_ns) / 1e9

    async def _or_stop(self, work: Coroutine[None, None, T]) -> T:
        """Await `work` unless the run is asked to stop or cannot record any more."""
        return await self._race(work, gentle=True)

    async def _or_leave(self, work: Coroutine[None, None, T]) -> T:
        """Await `work` unless the run is asked to leave at once."""
        return await self._race(work, gentle=False)

    async def _race(self, work: Coroutine[None, None, T], *, gentle: bool) -> T:
        task = asyncio.ensure_future(work)
        signals = [asyncio.ensure_future(self._interrupt.now.wait())]
        if gentle:
            signals += [asyncio.ensure_future(e.wait()) for e in (self._interrupt.gentle, self._bus.broken)]
        try:
            await asyncio.wait([task, *signals], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in signals:
                waiting.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        if task.cancelled():
            if self._interrupt.now.is_set():
                raise _Leave(self._interrupt.reason)
            raise _Stop(self._interrupt.reason or "the journal cannot be written")
        return task.result()


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
