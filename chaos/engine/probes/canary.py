"""Canaries: fresh small requests of our own, the only liveness that counts.

A waiting canary is never hung up while a run watches, unless users had to be first: on vulnerable releases the
disconnect of a request that waits for its first token is itself the fatal ABORT. So there is no client timeout at all.
One that passes its deadline is reported overdue and stays open while later ones start beside it, ever more slowly: with
n of them open since the last `mark` the next starts `interval * 2**(n-1)` after the one before (never more than a
deadline apart), and with `MAX_OPEN` open none starts until one ends. A deployment that answers gets one per interval;
one that hangs still gets fresh ones over more than a minute, also after the recovery budget, without being flooded.

There are as many direct paths as pairs, so these come more gently: at most `PAIRS_PER_TURN` of them start in an
interval, those first that waited longest, and on a path that hangs only a few start soon: all of them, the routed ones
and the users' requests hold slots of the same decode nodes, and slots that we fill are a wedge of our making. While
nobody waits for what they say they come half as often, one at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chaos.agent import codeword
from chaos.engine.owners import Owners
from chaos.engine.probes.answers import Answer
from chaos.engine.probes.exchange import SAME_PROMPT, Meeting, exchange, exchange_pair, fresh_prompt, request_body
from chaos.engine.probes.http import OUR_WAY
from chaos.engine.probes.pace import Pace
from chaos.model.events import EndedBy, RequestEnded, RequestOverdue, RequestStarted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import httpx

    from chaos.engine.ports import Clock, Emit
    from chaos.engine.probes.pairs import Rendezvous
    from chaos.model.events import Content, ContentMode, RequestKind
    from chaos.model.section import Api

MAX_OPEN = 8
"""Open canaries per path, of those begun since the last mark: each holds a slot of the deployment it observes."""
SOON_BESIDE_PAIRS = 5
"""Where pairs are asked by themselves, so many routed canaries hang before the next one waits for `LATER`."""
PAIRS_SOON = 6
"""As that, for the pairs of one decode node together: each prefill node's has its share, one to `MOST_SOON`."""
MOST_SOON = 3
MORE_LATER = 3
LATER = 3
"""The next canary of a path on which enough hang comes so many deadlines later: has it healed meanwhile?"""
PAIRS_PER_TURN = 4
"""Direct canaries that may start in one interval, over all pairs."""
UNHURRIED = 2
"""How many times slower direct canaries come while nobody waits for them."""
_FAILED_ON_THE_WAY = frozenset({"connect", "refused", "reset", "protocol", "timeout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The prefill side of a direct path: where it takes the same body, where decode finds it, and rooms to meet in."""

    url: str
    at: Rendezvous
    rooms: Iterator[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A path of the deployment that canaries take; `url` is the server that answers (decode, where it is a pair)."""

    path: str
    url: str
    api: Api
    pair: Pair | None = None
    named: bool = True  # chat and completions may carry the id of the request
    soon: int = MAX_OPEN  # canaries that may hang before the next one waits for `LATER`

    @property
    def max_open(self) -> int:
        """How many canaries begun since the last mark may be open on it."""
        return min(self.soon + MORE_LATER, MAX_OPEN)


def pair_soon(prefill_nodes: int) -> int:
    """How many canaries may soon hang on one of a decode node's pairs."""
    return min(max(PAIRS_SOON // prefill_nodes, 1), MOST_SOON)


@dataclass(slots=True, kw_only=True, eq=False)
class _Canary:
    """One request in flight."""

    req: str
    route: Route
    prompt: str
    owner: str  # of the codeword in it
    sent_ns: int
    deadline_s: float
    epoch: int
    meeting: Meeting | None
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
        content: ContentMode = "unchecked",
        owners: Owners | None = None,
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
        self._content = content
        self._owners = owners or Owners(())
        self._asked: Counter[str] = Counter()  # canaries begun by path
        self._numbers = itertools.count(1)
        self._open: dict[_Canary, asyncio.Task[None]] = {}
        self._last_start_ns: dict[str, int] = {}
        self._epoch = 0
        self._paused = False
        self._only: frozenset[str] | None = None  # the paths that are asked; None: all of them
        self._hurried = True
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
        """Start canaries again on every path, as on a deployment not yet asked."""
        self._paused, self._only = False, None
        self.mark()

    def hurry(self, *, on: bool) -> None:
        """Whether somebody waits for passes in a row on every path (baseline, recovery)."""
        self._hurried = on

    def mark(self) -> None:
        """Something happened (a wave): the next canary is due at once, whatever still hangs from before."""
        self._epoch += 1
        self._last_start_ns.clear()

    async def give_up(self, only: Collection[str]) -> None:
        """Hang up what is overdue or not on these paths, each journaled so, and until `resume` ask on no others.

        For when users were hung up on, too: then these are no more than further disconnects of the same kind.
        """
        self._only = frozenset(only)
        tasks = [task for canary, task in self._open.items() if canary.overdue or canary.route.path not in self._only]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

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
            for route in self._turn(intended_ns):
                self._start(route, intended_ns, self._deadline_s)

    def _turn(self, now_ns: int) -> list[Route]:
        """The paths that get a canary now."""
        asked = [route for route in self._routes if self._only is None or route.path in self._only]
        due = [route for route in asked if self._due(route, now_ns)]
        pairs = [route for route in due if route.pair]
        pairs.sort(key=lambda route: self._last_start_ns.get(route.path, 0))
        most = PAIRS_PER_TURN if self._hurried else PAIRS_PER_TURN // UNHURRIED
        return [route for route in due if not route.pair] + pairs[:most]

    def _due(self, route: Route, now_ns: int) -> bool:
        """Whether the path gets another canary now: sooner the fewer of this epoch still wait on it."""
        waiting = sum(canary.route == route and canary.epoch == self._epoch for canary in self._open)
        last_ns = self._last_start_ns.get(route.path)
        if last_ns is None:
            return True
        if waiting >= (1 if route.pair and not self._hurried else route.max_open):
            return False
        # Turns come an interval apart; half of one is no reason to wait for the next.
        return now_ns - last_ns >= int((self._gap_s(route, waiting) - self._interval_s / 2) * 1e9)

    def _gap_s(self, route: Route, waiting: int) -> float:
        """How long after the one before the next canary of a path starts while `waiting` of them hang."""
        slow = UNHURRIED if route.pair and (waiting or not self._hurried) else 1
        if waiting == 0:
            return slow * self._interval_s
        if waiting >= route.soon:
            return LATER * self._deadline_s
        return min(slow * self._interval_s * (1 << (waiting - 1)), max(self._deadline_s, slow * self._interval_s))

    def _start(self, route: Route, intended_ns: int, deadline_s: float) -> _Canary:
        if self._group is None:
            raise RuntimeError("canaries need `run` to be running")
        pair = route.pair
        number = next(self._numbers)
        req = f"{self._kind}-{number:06d}"
        prompt, owner = self._prompt(route, number, req)
        canary = _Canary(
            req=req,
            route=route,
            prompt=prompt,
            owner=owner,
            sent_ns=self._clock.now_ns(),
            deadline_s=deadline_s,
            epoch=self._epoch,
            meeting=Meeting(host=pair.at.host, port=pair.at.port, room=next(pair.rooms)) if pair else None,
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
                room=canary.meeting.room if canary.meeting else None,
                words=prompt.count(" ") + 1,
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

    def _prompt(self, route: Route, number: int, req: str) -> tuple[str, str]:
        """What a canary asks, and the owner of its codeword.

        Where the target need not be able to repeat a codeword, every other canary of a path asks what was asked
        before: such answers can be compared.
        """
        self._asked[route.path] += 1
        if self._content == "unchecked":
            return fresh_prompt(self._run_id, req), ""
        if self._content != "echo" and self._asked[route.path] % 2 == 0:
            return SAME_PROMPT, ""
        owner = self._owners.of_canary(number)
        return fresh_prompt(self._run_id, req, codeword.request(self._run_id, owner)), owner

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
        """One request from sending to the end of its response, or of both responses."""
        route, answer = canary.route, canary.answer
        body = request_body(
            route.api,
            self._run_id,
            canary.req,
            model=self._model,
            max_tokens=self._max_tokens,
            prompt=canary.prompt,
            meeting=canary.meeting,
            named=route.named,
        )

        def answered() -> None:
            self._end(canary)

        if route.pair is None:
            await exchange(
                self._http, route.url, body, headers=self._headers, answer=answer, clock=self._clock, answered=answered
            )
        else:
            urls = (route.pair.url, route.url)
            await exchange_pair(
                self._http, urls, body, headers=self._headers, answer=answer, clock=self._clock, answered=answered
            )

    def _end(self, canary: _Canary) -> None:
        if canary.ended:
            return
        canary.ended = True
        canary.settled.set()
        self._open.pop(canary, None)
        answer = canary.answer
        content, whose = self._check(canary)
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
                content=content,
                whose=whose,
                digest=_digest(answer.text) if canary.prompt == SAME_PROMPT and not answer.error else "",
                prompt_tokens=answer.prompt_tokens,
                mute=answer.mute,
                ended_by=_ended_by(answer.error),
            )
        )

    def _check(self, canary: _Canary) -> tuple[Content, str]:
        """What the answer holds of codewords. One that failed cannot lack anything, but may hold somebody else's."""
        if self._content == "unchecked":
            return "unchecked", ""
        found, whose = codeword.check(self._run_id, canary.owner, canary.answer.text)
        if found == "corrupted":
            return "corrupted", self._owners.request(whose)
        if canary.answer.error or not canary.owner:
            return "unchecked", ""
        return ("ok" if found == "ok" else "missing"), ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]


def _ended_by(error: str) -> EndedBy:
    if error in ("cancelled", OUR_WAY):
        return "harness"
    return "error" if error in _FAILED_ON_THE_WAY else "server"
