"""Makes journals: a run told as a play, second by second, with everything a real run records.

The clocks are short (a canary's deadline is 4 s, the budget 12 s, the engine's own timeouts 40 s) so that a play has
some hundred events. A play starts well and stays well until it is told otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from chaos.model import events as ev

if TYPE_CHECKING:
    from collections.abc import Sequence

SECOND = 1_000_000_000
START = 1_000 * SECOND  # a monotonic clock does not begin at zero

PLAN = ev.Plan(
    scenario="abort-cascade",
    faults=(
        ev.PlannedFault(
            id="wave",
            kind="kill",
            how="sigkill",
            group="agents",
            aim=(ev.Bound(name="waiting", op=">=", value=20), ev.Bound(name="server_aborts", op=">=", value=1)),
        ),
    ),
    groups=("agents",),
    settle_s=2.0,
    rest_s=4.0,
    idle_s=8.0,
    quiet_s=2.0,
    watch_s=40.0,
    recover_within_s=12.0,
    canary_deadline_s=4.0,
    canary_interval_s=1.0,
    canaries_in_a_row=5,
)
ALL_PROBES = ("liveness", "metrics", "log", "process")
METRICS = (
    ev.MetricUse(name="backlog", kind="gauge", use="queue", roles=("prefill", "decode")),
    ev.MetricUse(name="tokens", kind="counter", use="progress"),
    ev.MetricUse(name="aborted", kind="counter", use="aborts", roles=("prefill", "decode")),
    ev.MetricUse(name="taken", kind="counter", use="served", roles=("prefill", "decode")),
)
THREADS = (ev.ThreadUse(name="control", roles=("prefill",), side="prefill", title="its control thread"),)
INSIDE = {"prefill-0": ("MainThread", "Thread-6 (control)"), "decode-0": ("MainThread",)}
FATAL = {
    "signature": "control-thread-died",
    "klass": "fatal",
    "line": "AssertionError: First message should be b'Guard'. Foreign traffic?",
    "title": "the control thread died of an abort frame",
    "side": "prefill",
    "ends": "thread",
    "upstream": "example/engine#1",
    "fixed_in": "2.0",
}


@dataclass(frozen=True)
class Reply:
    """How a canary is answered: after so many seconds, or at a moment of the play, or never."""

    after: float | None = None
    at: float | None = None
    error: str = ""
    content: ev.Content = "unchecked"
    whose: str = ""
    digest: str = ""
    prompt_tokens: int | None = None
    tokens: int = 8
    finish: str = ""
    mute: bool = False

    def when(self, sent: float) -> float | None:
        """The moment of its end."""
        if self.at is not None:
            return max(self.at, sent + 0.4)
        return None if self.after is None else sent + self.after


GOOD = Reply(after=0.4)
HANG = Reply()
REFUSED = Reply(after=0.01, error="refused")


def late(seconds: float) -> Reply:
    """A correct answer after `seconds`."""
    return Reply(after=seconds)


@dataclass
class Play:
    """A run being told. `now` is in seconds since it began."""

    plan: ev.Plan = PLAN
    paths: tuple[ev.Path, ...] = (ev.Path(id="routed", kind="routed"),)
    nodes: tuple[str, ...] = ("router-0", "prefill-0", "decode-0")
    observes: tuple[str, ...] = ALL_PROBES
    metrics: tuple[ev.MetricUse, ...] = METRICS
    timeouts: tuple[ev.EngineTimeout, ...] = ()
    now: float = 0.0
    cycle: int = 0
    reply: Reply = GOOD
    replies: dict[str, Reply] = field(default_factory=dict)  # by path, where they differ
    turns: tuple[Reply, ...] = ()  # canaries are answered by these in turn
    health: int | None = 200
    health_error: str = ""
    backlog: dict[str, float] = field(default_factory=dict)
    backlog_rate: float = 0.0  # change of every backlog per second
    token_rate: float = 0.0  # users' tokens per second, as the servers count them
    received_rate: float = 0.0  # users' tokens per second, as live sessions receive them
    lag_ms: float = 2.0
    cpu_wait: float = 0.0  # share of its time that every node waits for a CPU
    reference_ok: bool = True
    interval: float = 1.0
    threads: dict[str, tuple[str, ...]] = field(default_factory=dict)  # Python threads, where they can be read
    deaf: frozenset[str] = frozenset()  # probes that see nothing, of ALL_PROBES and "canary" "self" "agent"
    uncounted: frozenset[str] = frozenset()  # nodes whose counter of requests cannot be read
    forgotten: frozenset[str] = frozenset()  # workers that the router sends nothing to
    favours: dict[str, int] = field(default_factory=dict)  # turns of a worker in each round of the router; else 1
    taken: dict[str, float] = field(default_factory=dict)  # requests that each worker has counted
    _told: list[tuple[float, ev.AnyEvent]] = field(default_factory=list, repr=False)
    _open: dict[str, tuple[str, float]] = field(default_factory=dict, repr=False)
    _sent: int = 0
    _tokens: float = 0.0
    _received: float = 0.0
    _aborted: float = 0.0
    _pids: dict[str, int] = field(default_factory=dict)
    _states: dict[str, str] = field(default_factory=dict)  # of processes, where they do not sleep
    _routed: int = 0

    # ------------------------------------------------------------------------------------------ acts

    def baseline(self, seconds: float = 10.0) -> Play:
        """Everything before the load."""
        self._pids = {node: 100 + 10 * i for i, node in enumerate(self.nodes)}
        self.backlog = {node: 0.0 for node in self.nodes if not node.startswith("router")} | self.backlog
        self.tell(
            ev.RunStarted(
                t_ns=0,
                format=1,
                run_id="r1",
                tool_version="0",
                utc="2026-11-29T00:00:00Z",
                target="file",
                plan=self.plan,
            )
        )
        self.tell(
            ev.DeploymentSeen(
                t_ns=0,
                nodes=tuple(
                    ev.Node(id=n, role=n.rpartition("-")[0], pid=self._pids[n], observes=self.observes)  # type: ignore[arg-type]
                    for n in self.nodes
                ),
                paths=self.paths,
                timeouts=self.timeouts,
                gauge_lag_s=3.0,
                metrics=self.metrics,
                threads=THREADS if self.threads else (),
            )
        )
        self.phase("baseline")
        return self.go(seconds)

    def load(self, seconds: float = 5.0) -> Play:
        """The next cycle's load, until it waits enough."""
        self.cycle += 1
        self.phase("load")
        return self.go(seconds)

    def wave(self, *, waiting: int = 24, aborts: int = 23, verified: bool = True, fired: bool = True) -> Play:
        """The wave, and what the servers log of it."""
        if not fired:
            self.tell(ev.FaultStep(t_ns=0, fault="wave", kind="kill", stage="applied", ok=False, detail="gave up"))
            self.phase("recovery")
            return self
        phases = {"waiting": waiting, "streaming": 60 - waiting}
        self.tell(ev.WaveCensus(t_ns=0, wave="wave", phases=phases))
        at = self.ns(self.now)
        self.tell(
            ev.WaveFired(
                t_ns=0, wave="wave", how="sigkill", ordered_ns=at, first_ns=at, last_ns=at, sessions=60, sockets=60
            )
        )
        self.tell(ev.FaultStep(t_ns=0, fault="wave", kind="kill", stage="applied", ok=True))
        self.tell(
            ev.FaultStep(t_ns=0, fault="wave", kind="kill", stage="verified", ok=verified, measured={"left": "0"})
        )
        self.aborts(aborts)
        self.phase("recovery")
        return self

    def fault(
        self,
        node: str,
        kind: str = "signal",
        *,
        ends: bool = False,
        stages: tuple[ev.Stage, ...] = ("applied", "verified"),
        ok: bool = True,
        reversal: str = "none",
    ) -> Play:
        """A fault of a node's process at these stages of its life; the last of them is as `ok` says."""
        for stage in stages:
            self.tell(
                ev.FaultStep(
                    t_ns=0,
                    fault="fault",
                    kind=kind,
                    stage=stage,
                    ok=ok or stage != stages[-1],
                    measured={node: "seen"},
                    detail="" if ok or stage != stages[-1] else "measured something else",
                    reversal=reversal,
                    nodes=(node,),
                    pids=(abs(self._pids[node]),),
                    ends=ends,
                )
            )
        return self

    def freeze(self, node: str) -> Play:
        """STOP, verified."""
        self._states[node] = "stopped"
        return self.fault(node, reversal="CONT")

    def thaw(self, node: str) -> Play:
        """CONT, verified."""
        del self._states[node]
        return self.fault(node, reversal="CONT", stages=("reverted", "revert-verified"))

    def part(self, off: Sequence[str], from_: Sequence[str]) -> Play:
        """A partition, verified."""
        return self._partition(off, from_, ("applied", "verified"))

    def mend(self, off: Sequence[str], from_: Sequence[str]) -> Play:
        """It is taken back, verified."""
        return self._partition(off, from_, ("reverted", "revert-verified"))

    def _partition(self, off: Sequence[str], from_: Sequence[str], stages: Sequence[ev.Stage]) -> Play:
        for stage in stages:
            self.tell(
                ev.FaultStep(
                    t_ns=0,
                    fault="fault",
                    kind="partition",
                    stage=stage,
                    ok=True,
                    measured={off[0]: "seen"},
                    reversal="taken back",
                    nodes=tuple(off),
                    cut_off=tuple(off),
                    cut_from=tuple(from_),
                )
            )
        return self

    def aborts(self, number: int, *, after: float = 0.5) -> Play:
        """Abort lines on both sides, twice each as two ranks would log them, and the counters."""
        for room in range(number):
            for node in self.nodes[1:]:
                for _rank in range(2):
                    self.hit(node, "aborted", "abort", key=f"{self.cycle}-{room}", after=after)
        self._aborted += number
        return self

    def hit(self, node: str, signature: str, klass: ev.HitClass, *, after: float = 0.0, **more: str) -> Play:
        """A log line, where a log is read."""
        if "log" not in self.observes:
            return self
        line = more.pop("line", f"a line of {signature}")
        self.tell(
            ev.LogHit(t_ns=0, node=node, stream="log", signature=signature, klass=klass, line=line, **more),  # type: ignore[arg-type]
            self.now + after,
        )
        return self

    def fatal(self, node: str = "prefill-0", after: float = 1.0) -> Play:
        """The line of a control thread's death."""
        return self.hit(node, after=after, **FATAL)  # type: ignore[arg-type]

    def go(self, seconds: float) -> Play:
        """Let time pass with every probe looking."""
        end = self.now + seconds
        step = 0.0
        while self.now < end - 1e-9:
            self._second(step)
            step = min(1.0, end - self.now)
            self.now += step
        return self

    def hang_up(
        self, session: int = 0, *, sent: float | None = None, tokens: int = 0, error: str = "cancelled"
    ) -> Play:
        """We disconnect a user's request that did not end by itself (and was sent a second ago)."""
        return self.tell(
            ev.RequestEnded(
                t_ns=0,
                src_t_ns=0,
                req=f"bystanders-s{session}-r0",
                kind="load",
                path="routed",
                sent_ns=self.ns(self.now - 1 if sent is None else sent),
                tokens=tokens,
                error=error,
                ended_by="harness",
                group="bystanders",
            )
        )

    def quietly(self, seconds: float) -> Play:
        """Let time pass without canaries and health probes."""
        before, self.deaf = self.deaf, self.deaf | {"canary", "liveness"}
        self.go(seconds)
        self.deaf = before
        return self

    def recovered(self, seconds: float = 10.0) -> Play:
        """Watch for a while, and rest where another cycle follows."""
        self.go(seconds)
        if self.cycle < self.plan.cycles:
            self.phase("rest")
            self.go(self.plan.rest_s)
        return self

    def finish(
        self, *, status: str = "completed", cleanup: str = "clean", idle: bool = True, last: Reply | None = None
    ) -> list[ev.AnyEvent]:
        """Teardown, idle time, last canaries, farewell; returns the numbered events."""
        self.phase("teardown")
        self.go(1.0)
        if idle:
            self.phase("idle")
            self.quietly(self.plan.idle_s)
            self.phase("last-canaries")
            if last is not None:
                self.reply = last
            self.interval, before = 100.0, self.interval
            self.go(self.plan.canary_deadline_s + 1.5)
            self.interval = before
        self._observe_log()
        for req, (path, sent) in self._open.items():
            if not any(isinstance(e, ev.RequestEnded) and e.req == req and t <= self.now for t, e in self._told):
                self.tell(
                    ev.RequestEnded(
                        t_ns=0,
                        req=req,
                        kind="canary",
                        path=path,
                        sent_ns=self.ns(sent),
                        error="cancelled",
                        ended_by="harness",
                    )
                )
        self.tell(ev.RunEnded(t_ns=0, status=status, cleanup=cleanup), self.now + 0.5)
        return self.events()

    def cut(self) -> list[ev.AnyEvent]:
        """The journal of a run that was killed now."""
        return self.events()

    def events(self) -> list[ev.AnyEvent]:
        """What was told so far, in order and numbered from 1."""
        told = sorted((pair for pair in self._told if pair[0] <= self.now + 0.5), key=lambda pair: pair[0])
        return numbered([stamped(event, self.ns(at)) for at, event in told])

    # ------------------------------------------------------------------------------------------ parts

    def ns(self, seconds: float) -> int:
        """A moment of the play on the harness's clock."""
        return START + round(seconds * SECOND)

    def tell(self, event: ev.AnyEvent, at: float | None = None) -> Play:
        """Record an event now (or at another moment)."""
        self._told.append((self.now if at is None else at, msgspec.structs.replace(event, cycle=self.cycle)))
        return self

    def phase(self, name: ev.Phase, reason: str = "") -> Play:
        """Enter a phase."""
        return self.tell(ev.PhaseEntered(t_ns=0, phase=name, reason=reason))

    def die(self, node: str, *, state: str = "zombie") -> Play:
        """A process is seen dead from now on."""
        self._pids[node] = -abs(self._pids[node])
        return self.tell(ev.ProcessSeen(t_ns=0, node=node, pid=abs(self._pids[node]), alive=False, state=state))

    def look_inside(self, *nodes: str) -> Play:
        """Somebody reads the names of the threads."""
        for node in nodes or tuple(self.threads):
            self.tell(
                ev.ProcessSeen(
                    t_ns=0,
                    node=node,
                    pid=abs(self._pids[node]),
                    alive=True,
                    children=(ev.Child(pid=abs(self._pids[node]) + 1, name="scheduler", alive=True),),
                    threads=self.threads[node],
                    threads_by="python",
                )
            )
        return self

    def restart(self, node: str) -> Play:
        """A process is another one from now on."""
        self._pids[node] = abs(self._pids[node]) + 1000
        return self

    def _second(self, passed: float) -> None:
        for node in self.backlog:
            self.backlog[node] = max(self.backlog[node] + self.backlog_rate * passed, 0.0)
        self._tokens += self.token_rate * passed
        self._received += self.received_rate * passed
        if "canary" not in self.deaf and (self.now % self.interval < 1e-6 or self.interval > 50):
            for path in self.paths:
                if path.examined and not (self.interval > 50 and passed):
                    self._canary(path.id)
        if "self" not in self.deaf:
            wait = dict.fromkeys(self.nodes, self.cpu_wait) if self.cpu_wait else {}
            self.tell(
                ev.HarnessHealth(
                    t_ns=0, who="harness", lag_max_ms=self.lag_ms, reference_ok=self.reference_ok, cpu_wait=wait
                )
            )
        if "agent" not in self.deaf:
            self.tell(
                ev.HarnessHealth(
                    t_ns=0, who="agent:agents", lag_max_ms=1.0, intended=60, delivered=60, tokens=int(self._received)
                )
            )
        for node in self.nodes:
            self._observe(node)
        if round(self.now) % 10 == 0:
            self._observe_log()

    def _canary(self, path: str) -> None:
        self._sent += 1
        req = f"canary-{self._sent:04d}"
        reply = self.turns[self._sent % len(self.turns)] if self.turns else self.replies.get(path, self.reply)
        sent = self.now
        way = next(one for one in self.paths if one.id == path)
        if way.kind == "routed":
            self._route()
        elif not reply.error and reply.when(sent) is not None:
            for node in way.nodes:
                self.taken[node] = self.taken.get(node, 0.0) + 1
        self._tokens += 10
        started = ev.RequestStarted(
            t_ns=0, req=req, kind="canary", path=path, intended_ns=self.ns(sent), sent_ns=self.ns(sent), words=20
        )
        self.tell(started)
        deadline = self.plan.canary_deadline_s
        end = reply.when(sent)
        if end is None or end - sent > deadline:
            overdue = ev.RequestOverdue(t_ns=0, req=req, kind="canary", path=path, age_s=deadline, deadline_s=deadline)
            self.tell(overdue, sent + deadline)
        self._open[req] = (path, sent)
        if end is not None:
            ended = ev.RequestEnded(
                t_ns=0,
                req=req,
                kind="canary",
                path=path,
                sent_ns=self.ns(sent),
                last_ns=self.ns(end),
                tokens=0 if reply.error else reply.tokens,
                status=None if reply.error else 200,
                error=reply.error,
                content=reply.content,
                whose=reply.whose,
                digest=reply.digest,
                prompt_tokens=reply.prompt_tokens,
                finish=reply.finish,
                mute=reply.mute,
                ended_by="harness" if reply.error == "way" else "error" if reply.error else "server",
            )
            self.tell(ended, end)

    def _route(self) -> None:
        """The router sends a request to the next worker of each role that it knows."""
        self._routed += 1
        for role in ("prefill", "decode"):
            known = [n for n in self.nodes if n.startswith(role) and n not in self.forgotten]
            round_ = [n for n in known for _ in range(self.favours.get(n, 1))]
            if round_:
                node = round_[self._routed % len(round_)]
                self.taken[node] = self.taken.get(node, 0.0) + 1

    def _observe(self, node: str) -> None:
        if "liveness" in self.observes and "liveness" not in self.deaf and round(self.now) % 3 == 0:
            self.tell(
                ev.Liveness(
                    t_ns=0,
                    node=node,
                    endpoint="/health",
                    status=self.health,
                    took_ms=100.0,
                    error=self.health_error,
                )
            )
        if "metrics" in self.observes and "metrics" not in self.deaf:
            samples = [ev.Sample(name="tokens", labels="", value=self._tokens)]
            if node in self.backlog:
                samples.append(ev.Sample(name="backlog", labels="rank=0", value=round(self.backlog[node])))
            zero: tuple[str, ...] = ("aborted",)
            if node not in self.uncounted:
                samples.append(ev.Sample(name="taken", labels="", value=self.taken.get(node, 0.0)))
            if self._aborted:
                samples.append(ev.Sample(name="aborted", labels="", value=self._aborted))
                zero = ()
            self.tell(ev.Scrape(t_ns=0, node=node, ok=True, samples=tuple(samples), zero=zero))
        if "process" in self.observes and "process" not in self.deaf and round(self.now) % 5 == 0:
            pid = self._pids[node]
            child = ev.Child(pid=abs(pid) + 1, name="scheduler", alive=pid > 0)
            self.tell(
                ev.ProcessSeen(
                    t_ns=0,
                    node=node,
                    pid=abs(pid),
                    alive=pid > 0,
                    state=self._states.get(node, "sleeping") if pid > 0 else "zombie",
                    children=(child,) if pid > 0 else (),
                )
            )

    def _observe_log(self) -> None:
        if "log" in self.observes and "log" not in self.deaf:
            for node in self.nodes:
                start = round(self.now) * 100
                self.tell(ev.LogCovered(t_ns=0, node=node, stream="log", start=start, end=start + 100, lines=3))


def stamped(event: ev.AnyEvent, t_ns: int) -> ev.AnyEvent:
    """The event at a time of the harness's clock."""
    return msgspec.structs.replace(event, t_ns=t_ns)


def numbered(events: list[ev.AnyEvent]) -> list[ev.AnyEvent]:
    """The events numbered from 1, as a journal would have written them."""
    return [msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(events, 1)]


def plan(**changes: object) -> ev.Plan:
    """The plan with some values changed."""
    return msgspec.structs.replace(PLAN, **changes)


def play(**changes: object) -> Play:
    """A play that has seen its baseline."""
    return replace(Play(), **changes).baseline()  # type: ignore[arg-type]


def waved(**changes: object) -> Play:
    """A play up to its first wave."""
    return play(**changes).load().wave()


def faulted(
    *, kind: str = "signal", lasts_s: float | None = None, cycles: int = 1, baseline_s: float = 10.0, **changes: object
) -> Play:
    """A play whose plan has one fault of nodes, up to the load of its first cycle."""
    planned = ev.PlannedFault(id="fault", kind=kind, how="something to a node", lasts_s=lasts_s)
    told = Play(plan=plan(faults=(planned,), cycles=cycles), **changes)  # type: ignore[arg-type]
    return told.baseline(baseline_s).load()
