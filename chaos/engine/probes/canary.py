"""Canaries: fresh small requests of our own, the only liveness that counts.

A waiting canary is never hung up while a run watches: on vulnerable releases the disconnect of a request that waits
for its first token is itself the fatal ABORT (DESIGN §5). So there is no client timeout at all. One that passes its
deadline is reported overdue and stays open while later ones start beside it, ever more slowly: with n of them open
since the last `mark` the next starts `interval * 2**(n-1)` after the one before (never more than a deadline apart),
and with `MAX_OPEN` open none starts until one ends. A deployment that answers gets one per interval; one that hangs
still gets fresh ones over more than a minute, also after the recovery budget, without being flooded.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chaos.engine.probes.answers import Answer
from chaos.engine.probes.exchange import exchange, request_body
from chaos.engine.probes.pace import Pace
from chaos.model.events import EndedBy, RequestEnded, RequestOverdue, RequestStarted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx

    from chaos.engine.ports import Clock, Emit
    from chaos.model.events import RequestKind
    from chaos.model.scenario import Api

MAX_OPEN = 8
"""Open canaries per path, of those begun since the last mark: each holds a slot of the deployment it observes."""
_FAILED_ON_THE_WAY = frozenset({"connect", "refused", "reset", "protocol", "timeout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A path of the deployment that canaries take."""

    path: str
    url: str
    api: Api


@dataclass(slots=True, kw_only=True, eq=False)
class _Canary:
    """One request in flight."""

    req: str
    route: Route
    sent_ns: int
    deadline_s: float
    epoch: int
    answer: Answer = field(default_factory=Answer)
    ended: bool = False
    overdue: bool = False
    settled: asyncio.Event = field(default_factory=asyncio.Event)  # ended, or known to be overdue


class CanaryProbe:
    """Fires canaries on every route while `run` runs. `kind` also serves the reference canary."""

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        http: httpx.AsyncClient,
        emit: Emit,
        clock: Clock,
        run_id: str,
        model: str,
        interval_s: float,
        deadline_s: float,
        max_tokens: int = 8,
        headers: Mapping[str, str] | None = None,
        kind: RequestKind = "canary",
    ) -> None:
        self._routes = tuple(routes)
        self._http = http
        self._emit = emit
        self._clock = clock
        self._run_id = run_id
        self._model = model
        self._interval_s = interval_s
        self._deadline_s = deadline_s
        self._max_tokens = max_tokens
        self._headers = {**(headers or {}), "content-type": "application/json", "x-pdchaos-run": run_id}
        self._kind: RequestKind = kind
        self._numbers = itertools.count(1)
        self._open: dict[_Canary, asyncio.Task[None]] = {}
        self._last_start_ns: dict[str, int] = {}
        self._epoch = 0
        self._paused = False
        self._stopping = False
        self._group: asyncio.TaskGroup | None = None
        self._closed = asyncio.Event()
        self.started = 0

    # ------------------------------------------------------------------------------------------ life

    async def run(self) -> None:
        """Fire canaries until `close`; a cancelled run hangs up what is open and says so in the journal."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            firing = group.create_task(self._fire())
            await self._closed.wait()
            firing.cancel()
            self._group = None

    def pause(self) -> None:
        """Start no more canaries until `resume`; those open stay open."""
        self._paused = True

    def resume(self) -> None:
        """Start canaries again, as on a deployment not yet asked."""
        self._paused = False
        self.mark()

    def mark(self) -> None:
        """Something happened (a wave): the next canary is due at once, whatever still hangs from before."""
        self._epoch += 1
        self._last_start_ns.clear()

    async def stop(self) -> None:
        """Start no more, and wait until each open one has ended or passed its deadline."""
        self._stopping = True
        await self._settle(list(self._open))

    async def last(self, deadline_s: float) -> None:
        """Fire one canary on every path and no other after it; wait as `stop` does. None is hung up."""
        self._stopping = True
        for route in self._routes:
            self._start(route, self._clock.now_ns(), deadline_s)
        await self._settle(list(self._open))

    async def close(self) -> None:
        """Hang up what is still open, each journaled as ended by the harness, and let `run` return."""
        self._stopping = True
        tasks = list(self._open.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._closed.set()

    @property
    def open_count(self) -> int:
        """Canaries sent and not ended."""
        return len(self._open)

    @property
    def overdue_count(self) -> int:
        """Open canaries past their deadline."""
        return sum(canary.overdue for canary in self._open)

    # ------------------------------------------------------------------------------------------ firing

    async def _fire(self) -> None:
        pace = Pace(self._clock, self._interval_s)
        while not self._stopping:
            intended_ns = await pace.next()
            if self._paused or self._stopping:
                continue
            for route in self._routes:
                if self._due(route, intended_ns):
                    self._start(route, intended_ns, self._deadline_s)

    def _due(self, route: Route, now_ns: int) -> bool:
        """Whether the path gets another canary now: sooner the fewer of this epoch still wait on it."""
        waiting = sum(canary.route == route and canary.epoch == self._epoch for canary in self._open)
        last_ns = self._last_start_ns.get(route.path)
        if last_ns is None or waiting == 0:
            return True
        if waiting >= MAX_OPEN:
            return False
        gap_s = min(self._interval_s * 2 ** (waiting - 1), max(self._deadline_s, self._interval_s))
        return now_ns - last_ns >= int(gap_s * 1e9)

    def _start(self, route: Route, intended_ns: int, deadline_s: float) -> _Canary:
        if self._group is None:
            raise RuntimeError("canaries need `run` to be running")
        canary = _Canary(
            req=f"{self._kind}-{next(self._numbers):06d}",
            route=route,
            sent_ns=self._clock.now_ns(),
            deadline_s=deadline_s,
            epoch=self._epoch,
        )
        self._last_start_ns[route.path] = intended_ns
        self.started += 1
        self._emit(
            RequestStarted(
                t_ns=canary.sent_ns,
                src=f"probe:{self._kind}",
                req=canary.req,
                kind=self._kind,
                path=route.path,
                intended_ns=intended_ns,
                sent_ns=canary.sent_ns,
                api=route.api,
            )
        )
        watch = self._group.create_task(self._watch(canary))
        task = self._group.create_task(self._exchange(canary))
        self._open[canary] = task

        def over(task: asyncio.Task[None]) -> None:
            # A callback, not a `finally`: a task cancelled before its first step never enters its own body.
            watch.cancel()
            if task.cancelled():
                canary.answer.fail("cancelled", "hung up by the harness")
            self._end(canary)

        task.add_done_callback(over)
        return canary

    async def _settle(self, canaries: list[_Canary]) -> None:
        for canary in canaries:
            await canary.settled.wait()

    # ------------------------------------------------------------------------------------------ one canary

    async def _watch(self, canary: _Canary) -> None:
        await self._clock.sleep(canary.deadline_s)
        now_ns = self._clock.now_ns()
        canary.overdue = True
        canary.settled.set()
        self._emit(
            RequestOverdue(
                t_ns=now_ns,
                src=f"probe:{self._kind}",
                req=canary.req,
                kind=self._kind,
                path=canary.route.path,
                age_s=(now_ns - canary.sent_ns) / 1e9,
                deadline_s=canary.deadline_s,
            )
        )

    async def _exchange(self, canary: _Canary) -> None:
        """One request from sending to the end of its response."""
        await exchange(
            self._http,
            canary.route.url,
            request_body(canary.route.api, self._run_id, canary.req, model=self._model, max_tokens=self._max_tokens),
            headers=self._headers,
            answer=canary.answer,
            clock=self._clock,
            answered=lambda: self._end(canary),
        )

    def _end(self, canary: _Canary) -> None:
        if canary.ended:
            return
        canary.ended = True
        canary.settled.set()
        self._open.pop(canary, None)
        answer = canary.answer
        self._emit(
            RequestEnded(
                t_ns=self._clock.now_ns(),
                src=f"probe:{self._kind}",
                req=canary.req,
                kind=self._kind,
                path=canary.route.path,
                sent_ns=canary.sent_ns,
                first_ns=answer.first_ns,
                last_ns=answer.last_ns or self._clock.now_ns(),
                tokens=answer.tokens,
                gaps=answer.gaps,
                status=answer.status,
                finish=answer.finish,
                error=answer.error,
                detail=answer.detail,
                ended_by=_ended_by(answer.error),
            )
        )


def _ended_by(error: str) -> EndedBy:
    if error == "cancelled":
        return "harness"
    return "error" if error in _FAILED_ON_THE_WAY else "server"
