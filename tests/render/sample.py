"""Synthetic runs with realistic numbers: one that wedges and one that recovers, as events and as verdicts."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec

from chaos.model import events as ev
from chaos.model.outcomes import Answer, Cleanup, ExitCode, Outcome, RunStatus
from chaos.model.verdict import (
    Cause,
    Evidence,
    Finding,
    Leaving,
    PathVerdict,
    Saved,
    Verdict,
    WaveVerdict,
    Wedge,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

BOOT_NS = 4_210_000_000_000  # a machine that has been up for a while: times do not start at zero
PATHS = ("routed", "prefill-0>decode-0")
FATAL = "AssertionError: First message should be b'NixlMsgGuard'. Foreign traffic?"


FATAL_TITLE = "NIXL prefill's bootstrap thread died on an ABORT it does not handle"
HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\x1b[31mred\x1b[0m\x00\x08 ]]> "
    "\u202egnp.exe <a href='http://evil.example/'>go</a>"
)


class Stream:
    """Collects events at run-relative seconds and numbers them in order of time."""

    def __init__(self, seed: int = 7, cycles: tuple[float, ...] = ()) -> None:
        self._cycles_ns = [self.ns(at_s) for at_s in cycles]  # when each cycle's load began
        self.random = random.Random(seed)
        self._events: list[tuple[int, int, ev.AnyEvent]] = []

    @staticmethod
    def ns(at_s: float) -> int:
        """Monotonic nanoseconds of a moment of the run."""
        return BOOT_NS + round(at_s * 1e9)

    def add(self, event: type[ev.AnyEvent], at_s: float, /, **fields: Any) -> None:
        """Add an event."""
        self._events.append((self.ns(at_s), len(self._events), event(t_ns=self.ns(at_s), **fields)))

    def __iter__(self) -> Iterator[ev.AnyEvent]:
        """In order of time, numbered from 1."""
        for seq, (_, _, event) in enumerate(sorted(self._events, key=lambda item: item[:2]), 1):
            cycle = sum(event.t_ns >= began for began in self._cycles_ns)
            yield msgspec.structs.replace(event, seq=seq, cycle=cycle)

    def canary(self, path: str, at_s: float, took_s: float | None, *, error: str = "", n: int = 0) -> None:
        """A canary; `took_s` None: it never finishes."""
        req = f"canary-{path}-{n:04d}"
        common = {"req": req, "kind": "canary", "path": path}
        self.add(
            ev.RequestStarted, at_s, **common, intended_ns=self.ns(at_s), sent_ns=self.ns(at_s), src="probe:canary"
        )
        if took_s is None or took_s > 2.0:
            self.add(ev.RequestOverdue, at_s + 2.0, **common, age_s=2.0, deadline_s=2.0, src="probe:canary")
        if took_s is None:
            return
        self.add(
            ev.RequestEnded,
            at_s + took_s,
            **common,
            sent_ns=self.ns(at_s),
            first_ns=None if error else self.ns(at_s + took_s * 0.7),
            last_ns=self.ns(at_s + took_s),
            tokens=0 if error else 8,
            status=503 if error else 200,
            finish="" if error else "length",
            error=error,
            src="probe:canary",
        )


def _plan() -> ev.Plan:
    return ev.Plan(
        scenario="abort-cascade",
        about="Kill a 60-session agent twice while most of it waits for a first token.",
        cycles=2,
        faults=(
            ev.PlannedFault(
                id="wave",
                kind="kill",
                how="sigkill",
                group="agents",
                aim=(ev.Bound(name="waiting", op=">=", value=20), ev.Bound(name="server_aborts", op=">=", value=1)),
            ),
        ),
        groups=("agents", "bystanders"),
        settle_s=1.0,
        rest_s=4.0,
        idle_s=6.0,
        quiet_s=1.0,
        watch_s=33.0,
        recover_within_s=6.0,
        canary_deadline_s=2.0,
        time_scale=0.1,
        until="wedged",
    )


def _head(stream: Stream) -> None:
    stream.add(
        ev.RunStarted,
        0,
        format=ev.FORMAT,
        run_id="20261129-193000-abort-cascade-1f3a",
        tool_version="0.1.0",
        utc="2026-11-29T19:30:00Z",
        target="lab:sim",
        plan=_plan(),
        seed=1,
        packs=(ev.PackUsed(name="sglang", engine="sglang", sha256="9f2c" + "0" * 60),),
    )
    stream.add(
        ev.DeploymentSeen,
        0.3,
        nodes=(
            ev.Node(id="router-0", role="router", engine="sglang-router", version="0.3.2", pid=4101,
                    observes=("liveness", "log", "process")),
            ev.Node(id="prefill-0", role="prefill", engine="sglang", version="0.5.14", ranks=("tp0",), pid=4102,
                    observes=("liveness", "metrics", "log", "process")),
            ev.Node(id="decode-0", role="decode", engine="sglang", version="0.5.14", ranks=("tp0",), pid=4103,
                    observes=("liveness", "metrics", "log", "process")),
        ),
        paths=(
            ev.Path(id=PATHS[0], kind="routed", nodes=("router-0",)),
            ev.Path(id=PATHS[1], kind="direct", nodes=("prefill-0", "decode-0")),
        ),
        timeouts=(
            ev.EngineTimeout(name="decode waiting for KV", seconds=30, source="target"),
            ev.EngineTimeout(name="prefill bootstrap", seconds=30, source="target"),
        ),
        gauge_lag_s=3.0,
        not_examined=("content of answers: the engine echoes nothing", "data-parallel ranks: one rank only"),
        metrics=(
            ev.MetricUse(name="prefill_bootstrap_queue", kind="gauge", use="queue", roles=("prefill",)),
            ev.MetricUse(name="prefill_inflight_queue", kind="gauge", use="queue", roles=("prefill",)),
            ev.MetricUse(name="decode_prealloc_queue", kind="gauge", use="queue", roles=("decode",)),
            ev.MetricUse(name="decode_transfer_queue", kind="gauge", use="queue", roles=("decode",)),
            ev.MetricUse(name="generated_tokens", kind="counter", use="progress"),
            ev.MetricUse(name="aborted_requests", kind="counter", use="aborts"),
            *(ev.MetricUse(name=f"stress_queue_{k}", kind="gauge", use="queue") for k in range(4)),
            ev.MetricUse(name=f"queue{HOSTILE}", kind="gauge", use="queue"),
        ),
    )  # fmt: skip


def _gauges(stream: Stream, at_s: float, node: str, queues: dict[str, float], tokens: float, aborts: float) -> None:
    labels = f"engine_type={node.split('-', maxsplit=1)[0]},tp_rank=0"
    samples = [ev.Sample(name=name, labels=labels, value=value) for name, value in queues.items()]
    samples.append(ev.Sample(name="generated_tokens", labels=labels, value=tokens))
    if aborts:
        samples.append(ev.Sample(name="aborted_requests", labels=labels, value=aborts))
    zero = () if aborts else ("aborted_requests",)
    stream.add(ev.Scrape, at_s, node=node, ok=True, took_ms=3.1, samples=tuple(samples), zero=zero, src="probe:metrics")


_NODES = (("router-0", 4101), ("prefill-0", 4102), ("decode-0", 4103))
_PHASES = {
    True: (("baseline", 0.4), ("load", 8.0), ("recovery", 14.1), ("teardown", 49.0), ("idle", 49.5),
           ("last-canaries", 55.6)),
    False: (("baseline", 0.4), ("load", 8.0), ("recovery", 14.1), ("rest", 20.0), ("load", 24.0), ("recovery", 30.1),
            ("teardown", 38.0), ("idle", 38.5), ("last-canaries", 46.0)),
}  # fmt: skip


class _Run:
    """The numbers of one run: when its waves are, how loaded it is, whether it is stuck."""

    def __init__(self, *, wedges: bool) -> None:
        self.wedges = wedges
        self.waves = (14.0,) if wedges else (14.0, 30.0)
        self.end = 62.0 if wedges else 52.0
        self.stream = Stream(cycles=(8.0,) if wedges else (8.0, 24.0))
        self.tokens = 1200.0

    def loaded(self, at_s: float) -> bool:
        return any(start <= at_s < wave for start, wave in zip((8.0, 24.0), self.waves, strict=False))

    def stuck(self, at_s: float) -> bool:
        return self.wedges and at_s >= 14.3

    def idle(self, at_s: float) -> bool:
        return 49.5 < at_s < 55.6 if self.wedges else 38.5 < at_s < 46.0

    def ramp(self, at_s: float) -> float:
        return min(1.0, (at_s - (8.0 if at_s < 20 else 24.0)) / 3.0) if self.loaded(at_s) else 0.0

    def beat(self, tick: int, at_s: float) -> None:
        """What is observed every half second, every second and every five."""
        stream, rnd, into = self.stream, self.stream.random, self.ramp(at_s)
        waiting, streaming = round(43 * into), round(17 * into)
        self.tokens += (400 * into + 10) * 0.5 if not self.stuck(at_s) else 0
        stream.add(ev.HarnessHealth, at_s, who="harness", lag_max_ms=abs(rnd.gauss(2.0, 1.0)), lag_p99_ms=1.1,
                   open_files=40, reference_ok=True, reference_ms=1.2 + rnd.random())  # fmt: skip
        if self.loaded(at_s):
            phases = {"waiting": waiting, "streaming": streaming, "thinking": 60 - waiting - streaming}
            stream.add(ev.HarnessHealth, at_s, who="agent:agents", src="agent:agents", lag_max_ms=1.4, open_files=70,
                       intended=60, delivered=60, tokens=int(self.tokens), phases=phases)  # fmt: skip
        if tick % 2 == 0:
            self.scrapes(at_s, waiting, into)
            for node, _ in _NODES:
                stream.add(ev.Liveness, at_s, node=node, endpoint="/health", status=200, took_ms=110.0 + rnd.random())
        if tick % 10 == 0:
            for node, pid in _NODES:
                children = () if node == "router-0" else (ev.Child(pid=pid + 50, name="scheduler", alive=True),)
                stream.add(ev.ProcessSeen, at_s, node=node, pid=pid, alive=True, state="sleeping", start_time=1.0,
                           children=children)  # fmt: skip

    def scrapes(self, at_s: float, waiting: int, into: float) -> None:
        aborts = 43 * sum(at_s > wave + 0.4 for wave in self.waves)
        kept = 6 if self.stuck(at_s) else 0
        prefill = {"prefill_bootstrap_queue": float(waiting + kept), "prefill_inflight_queue": float(self.loaded(at_s))}
        frozen = 29.0 if self.stuck(at_s) else float(round(29 * into))
        decode = {"decode_prealloc_queue": frozen, "decode_transfer_queue": float(round(14 * into) + kept)}
        _gauges(self.stream, at_s, "prefill-0", prefill, self.tokens, aborts)
        _gauges(self.stream, at_s, "decode-0", decode, self.tokens, aborts)

    def canaries(self) -> None:
        n = 0
        for tick in range(int(self.end) - 2):
            for path in PATHS:
                at_s = 1.0 + tick + (0.3 if path != PATHS[0] else 0)
                if self.idle(at_s):
                    continue
                n += 1
                took = 0.21 + self.stream.random.random() * 0.1
                took += 0.9 * self.stream.random.random() if self.loaded(at_s) else 0
                if not self.wedges and 14 < at_s < 15.5:
                    took = 2.6
                if not self.stuck(at_s):
                    self.stream.canary(path, at_s, took, n=n)
                elif tick % 7 == 0:
                    self.stream.canary(path, at_s, None, n=n)

    def wave(self, at_s: float) -> None:
        stream = self.stream
        queues = (
            ev.QueueReading(node="prefill-0", name="prefill_bootstrap_queue", value=43, age_s=0.4),
            ev.QueueReading(node="decode-0", name="decode_prealloc_queue", value=29, age_s=0.4),
        )
        stream.add(ev.WaveCensus, at_s - 0.01, wave="wave", queues=queues,
                   phases={"connecting": 0, "waiting": 43, "streaming": 17, "thinking": 0},
                   aim=(ev.AimCheck(name="waiting", op=">=", want=20, got=43),))  # fmt: skip
        for stage in ("planned", "applied", "verified"):
            measured = {"sockets left": "0"} if stage == "verified" else {}
            stream.add(ev.FaultStep, at_s, fault="wave", kind="kill", stage=stage, ok=True, measured=measured)
        stream.add(ev.WaveFired, at_s + 0.012, wave="wave", how="sigkill", ordered_ns=stream.ns(at_s),
                   first_ns=stream.ns(at_s + 0.001), last_ns=stream.ns(at_s + 0.009), sessions=60,
                   sockets=60, router_watched=60, router_closed=60, router_first_ns=stream.ns(at_s + 0.002),
                   router_last_ns=stream.ns(at_s + 0.0102))  # fmt: skip
        for room in range(43):
            line = f"[19:30:14] Decode handshake failed for room={room} with exception Aborted by AbortReq."
            for node in ("prefill-0", "decode-0"):
                stream.add(ev.LogHit, at_s + 0.4 + room * 0.004, node=node, stream=f"{node}.log", klass="abort",
                           signature="abort-by-client", title="request aborted", line=line, key=str(room),
                           offset=1000 + room * 120)  # fmt: skip
        if self.wedges:
            stream.add(ev.LogHit, at_s + 0.41, node="prefill-0", stream="prefill-0.log", klass="fatal",
                       signature="nixl-abort-unhandled", title=FATAL_TITLE, line=FATAL, side="prefill", ends="thread",
                       upstream="sgl-project/sglang#30352", fixed_in="0.5.16", offset=9000)  # fmt: skip


def _run(*, wedges: bool) -> Stream:
    run = _Run(wedges=wedges)
    _head(run.stream)
    for phase, at_s in _PHASES[wedges]:
        run.stream.add(ev.PhaseEntered, at_s, phase=phase, reason="")
    for tick in range(int(run.end * 2)):
        run.beat(tick, 0.5 + tick * 0.5)
    run.canaries()
    for at_s in run.waves:
        run.wave(at_s)
    for node, _ in _NODES:
        run.stream.add(ev.LogCovered, run.end - 0.5, node=node, stream=f"{node}.log", start=800, end=48_213, lines=402)
    run.stream.add(ev.RunEnded, run.end, status="completed", cleanup="clean", reason="the watch is over")
    return run.stream


def wedged_events() -> list[ev.AnyEvent]:
    """A run on a deployment that wedges at the first wave."""
    return list(_run(wedges=True))


def healthy_events() -> list[ev.AnyEvent]:
    """A run on a deployment that recovers from both waves."""
    return list(_run(wedges=False))


def many_events(n: int) -> Iterator[ev.AnyEvent]:
    """A long run of about `n` events, for size and speed."""
    stream = Stream()
    _head(stream)
    yield from stream
    seq = 3
    for i in range(n // 5):
        t_ns = stream.ns(1 + i * 0.25)
        common = {"req": f"canary-{i:06d}", "kind": "canary", "path": PATHS[i % 2]}
        yield ev.RequestStarted(t_ns=t_ns, seq=seq, **common, intended_ns=t_ns, sent_ns=t_ns)
        end = t_ns + 200_000_000 + i % 97 * 1_000_000
        yield ev.RequestEnded(
            t_ns=end, seq=seq + 1, **common, sent_ns=t_ns, last_ns=end, tokens=8, status=200,
            error="status" if i % 3 == 0 else "",
        )  # fmt: skip
        samples = tuple(
            ev.Sample(name=f"stress_queue_{k}", labels="tp_rank=0", value=(i * (k + 3)) % 101) for k in range(4)
        )
        yield ev.Scrape(t_ns=end, seq=seq + 2, node=f"prefill-{i % 4}", ok=True, samples=samples)
        yield ev.HarnessHealth(t_ns=end, seq=seq + 3, who="harness", lag_max_ms=i % 7)
        yield ev.LogHit(t_ns=end, seq=seq + 4, node="decode-0", stream="x", signature="abort", klass="abort",
                        line="y" * 2000)  # fmt: skip
        seq += 5


def _finding(name: str, question: str, answer: Answer, text: str, *seqs: int, outcome: Outcome | None = None,
             required: bool = True) -> Finding:  # fmt: skip
    evidence = (Evidence(text=text, seqs=seqs),) if text else ()
    return Finding(id=name, question=question, answer=answer, evidence=evidence, outcome=outcome, required=required)


def wedged_verdict() -> Verdict:
    """What the judge says of the run that wedges."""
    return Verdict(
        format=1,
        judge_version="0.1.0",
        run_id="20261129-193000-abort-cascade-1f3a",
        scenario="abort-cascade",
        target="lab:sim",
        outcome=Outcome.WEDGED,
        status=RunStatus.COMPLETED,
        cleanup=Cleanup.CLEAN,
        exit_code=ExitCode.VIOLATION,
        headline="No path serves fresh requests 47 s after the wave, while every /health stays green.",
        reasons=(
            "14 of 14 canaries begun after the wave never finished, on both paths",
            "watched 33 s past the wave: longer than the engine's own timeouts (30 s)",
            "no user token was generated after 14.3 s, and no process died",
        ),
        findings=(
            _finding("serves", "Do fresh requests complete on every path?", Answer.NO,
                     "14 canaries begun after the wave never finished", 410, 422, 431, outcome=Outcome.WEDGED),
            _finding("progress", "Does user work on the failing path progress?", Answer.NO,
                     "generated_tokens stayed at 4 213 for 47 s", 402, 911),
            _finding("process-alive", "Is every process alive at the end?", Answer.YES,
                     "3 nodes and 2 children alive", 980),
            _finding("health", "Did the health endpoints notice?", Answer.NO, "147 of 147 answers were 200", 52, 990,
                     required=False),
            _finding("landed", "Did every wave meet its aim?", Answer.YES,
                     "43 waiting (aim: >= 20); 43 server aborts", 350),
            _finding("fatal", "Is there fatal evidence in the logs?", Answer.YES, FATAL, 371, required=False),
            _finding("content", "Is the content of answers right?", Answer.NOT_APPLICABLE, "", required=False),
            _finding("floor", "Did every floor come back?", Answer.UNKNOWN, "gauges freeze in a wedge", required=False),
        ),
        paths=(
            PathVerdict(path="routed", serves=Answer.NO, canaries=7, unfinished=7),
            PathVerdict(path="prefill-0>decode-0", serves=Answer.NO, canaries=7, unfinished=7),
        ),
        waves=(
            WaveVerdict(wave="wave", cycle=1, how="sigkill", sessions=60, sockets=60,
                        phases={"connecting": 0, "waiting": 43, "streaming": 17, "thinking": 0},
                        spread_ms=8.0, server_aborts=43, landed=Answer.YES,
                        router_watched=60, router_closed=60, router_spread_ms=8.2),
        ),
        wedge=Wedge(total=True, silent=True, confirmed=True, side="prefill", paths=PATHS),
        causes=(
            Cause(
                signature="nixl-abort-unhandled",
                title=FATAL_TITLE,
                side="prefill",
                upstream="sgl-project/sglang#30352",
                fixed_in="0.5.16",
                line=FATAL,
                seqs=(371,),
            ),
        ),
        not_examined=("content of answers: the engine echoes nothing", "data-parallel ranks: one rank only"),
        saved=(
            Saved(folder="forensics/0-baseline", reason="baseline", detail="", at_s=1.0, files=5, size=4100,
                  shows=("prefill-0: 3 stacks saved",)),
            Saved(folder="forensics/1-fatal-line", reason="fatal-line", detail="prefill-0: the control thread died",
                  at_s=21.5, files=20, size=152_770,
                  shows=("prefill-0: thread Thread-6 (bootstrap_thread) gone, 2 stacks saved",
                         "decode-0: 2 stacks saved"),
                  missing=("router-0: processes: nobody knows where they are",)),
            Saved(folder="forensics/2-not-recovered", reason="not-recovered", detail="routed", at_s=70.0, files=20,
                  size=1_912_470, shows=("prefill-0: thread Thread-6 (bootstrap_thread) gone, 2 stacks saved",)),
        ),
        allow=("healthy",),
        duration_s=62.0,
    )  # fmt: skip


def healthy_verdict() -> Verdict:
    """What the judge says of the run that recovers."""
    wave = wedged_verdict().waves[0]
    return msgspec.structs.replace(
        wedged_verdict(),
        outcome=Outcome.HEALTHY,
        exit_code=ExitCode.AS_EXPECTED,
        headline="Every path served fresh requests again 2.9 s after the last wave.",
        reasons=("44 of 46 canaries begun after the waves passed in time, the last 16 in a row",),
        findings=(
            _finding(
                "serves", "Do fresh requests complete on every path?", Answer.YES, "16 in a row on both paths", 801
            ),
            _finding("landed", "Did every wave meet its aim?", Answer.YES, "43 and 43 waiting (aim: >= 20)", 350, 640),
            _finding(
                "fatal",
                "Is there fatal evidence in the logs?",
                Answer.NO,
                "402 lines read, none lost",
                990,
                required=False,
            ),
        ),
        paths=(
            PathVerdict(path="routed", serves=Answer.YES, canaries=23, passed=22, late=1, recovered_s=2.9),
            PathVerdict(path="prefill-0>decode-0", serves=Answer.YES, canaries=23, passed=22, late=1, recovered_s=2.7),
        ),
        waves=(wave, msgspec.structs.replace(wave, cycle=2)),
        wedge=None,
        causes=(),
        saved=wedged_verdict().saved[:1],
        duration_s=52.0,
    )


def minimal_verdict() -> Verdict:
    """A run that was aborted before anything happened."""
    return Verdict(
        format=1,
        judge_version="0.1.0",
        run_id="r",
        scenario="",
        target="",
        outcome=Outcome.INCONCLUSIVE,
        status=RunStatus.ABORTED,
        cleanup=Cleanup.UNKNOWN,
        exit_code=ExitCode.CLEANUP_INCOMPLETE,
        headline="",
        reasons=(),
        findings=(),
    )


def left_verdict() -> Verdict:
    """A run that a person left at once, under load."""
    base = unknown_verdict()
    hung_up = "38 open requests (18 waiting for the first token, 20 streaming) and 3 open canaries"
    note = "served until we hung up on open requests on leaving; one fresh request 0.5 s later was not answered"
    return msgspec.structs.replace(
        base,
        status=RunStatus.ABORTED,
        exit_code=ExitCode.INTERRUPTED,
        headline="INCONCLUSIVE: interrupted by SIGINT (Ctrl-C) under load, before any fault struck: what the faults "
        f"would have done is unknown; we hung up on {hung_up} ourselves, and what that did to the target is unknown",
        reasons=("wave of cycle 1: never fired",),
        findings=(),
        paths=(
            PathVerdict(
                path="routed", serves=Answer.UNKNOWN, canaries=9, passed=9, after="since load began", note=note
            ),
        ),
        waves=(),
        leaving=Leaving(
            at_once=True,
            waiting=18,
            streaming=20,
            unknown=0,
            canaries=3,
            told=(
                f"asked to leave at once, we ourselves hung up on {hung_up}",
                "that is a disturbance of the same kind as a wave: it may have broken the target",
                "what state it left the paths in is unknown; routed: one fresh request 0.5 s later was not answered",
                "since then prefill-0 logged: the NIXL prefill control thread died",
            ),
            seqs=(371,),
        ),
    )


def unknown_verdict() -> Verdict:
    """Unknown everywhere: nothing could be read."""
    base = wedged_verdict()
    return msgspec.structs.replace(
        base,
        outcome=Outcome.INCONCLUSIVE,
        exit_code=ExitCode.INCONCLUSIVE,
        headline="This run cannot tell: nothing could be read.",
        findings=tuple(
            msgspec.structs.replace(finding, answer=Answer.UNKNOWN, outcome=None, evidence=())
            for finding in base.findings
        ),
        paths=tuple(PathVerdict(path=path, serves=Answer.UNKNOWN) for path in PATHS),
        waves=tuple(
            msgspec.structs.replace(
                wave,
                landed=Answer.UNKNOWN,
                server_aborts=None,
                spread_ms=None,
                phases={},
                router_closed=None,
                router_spread_ms=None,
                router_unknown="its host shows none of these connections",
            )
            for wave in base.waves
        ),
        wedge=None,
        causes=(),
    )


def huge_verdict(findings: int = 1000) -> Verdict:
    """A verdict with very many findings, waves and paths, and names without a blank to break at."""
    base = wedged_verdict()
    long = "prefill-with-a-very-long-name-" * 6
    return msgspec.structs.replace(
        base,
        scenario=long,
        headline=f"No path serves: {long}",
        findings=tuple(
            _finding(f"finding-{i}", f"Question {i} about {long}?", list(Answer)[i % 4], f"evidence {i}", i)
            for i in range(findings)
        ),
        waves=base.waves * 50,
        paths=tuple(PathVerdict(path=f"{long}{i}>decode-{i}", serves=list(Answer)[i % 4]) for i in range(40)),
        not_examined=tuple(f"thing {i} {long}" for i in range(30)),
        reasons=tuple(f"reason {i}" for i in range(30)),
    )


def hostile_events() -> list[ev.AnyEvent]:
    """A run in which everything that comes from logs and targets is hostile text."""
    stream = Stream()
    _head(stream)
    stream.add(ev.PhaseEntered, 0.4, phase="baseline", reason=HOSTILE)
    stream.canary(HOSTILE, 1.0, 0.2, error=HOSTILE)
    stream.canary(HOSTILE, 2.0, None, n=1)
    stream.add(
        ev.LogHit, 2.0, node=HOSTILE, stream=HOSTILE, signature=HOSTILE, klass="fatal", line=HOSTILE, title=HOSTILE
    )
    stream.add(ev.LogHit, 2.0, node=HOSTILE, stream=HOSTILE, signature=HOSTILE, klass="traceback", line=HOSTILE)
    stream.add(ev.Liveness, 2.0, node=HOSTILE, endpoint=HOSTILE, status=None, took_ms=1, error=HOSTILE)
    stream.add(
        ev.Scrape, 2.0, node=HOSTILE, ok=True, samples=(ev.Sample(name=f"queue{HOSTILE}", labels=HOSTILE, value=1.0),)
    )
    stream.add(ev.Scrape, 2.1, node=HOSTILE, ok=False, error=HOSTILE)
    stream.add(ev.WaveCensus, 3.0, wave=HOSTILE, phases={HOSTILE: 3})
    stream.add(ev.WaveFired, 3.0, wave=HOSTILE, how=HOSTILE, ordered_ns=stream.ns(3.0), sessions=3)
    stream.add(ev.ProcessSeen, 3.1, node=HOSTILE, pid=1, alive=False, state=HOSTILE)
    stream.add(
        ev.ForensicsTaken,
        3.2,
        folder=HOSTILE,
        reason=HOSTILE,
        detail=HOSTILE,
        files=(HOSTILE,),
        stacks={HOSTILE: 1},
        missing=(HOSTILE,),
    )
    stream.add(
        ev.EvidenceLost, 3.1, probe=HOSTILE, node=HOSTILE, from_ns=stream.ns(1), to_ns=stream.ns(2), cause=HOSTILE
    )
    stream.add(
        ev.FaultStep,
        3.2,
        fault=HOSTILE,
        kind=HOSTILE,
        stage="applied",
        ok=False,
        detail=HOSTILE,
        measured={HOSTILE: HOSTILE},
    )
    stream.add(ev.HarnessHealth, 3.3, who=HOSTILE, lag_max_ms=1, phases={HOSTILE: 2})
    stream.add(ev.RunEnded, 4.0, status=HOSTILE, cleanup=HOSTILE, reason=HOSTILE)
    return list(stream)


def hostile_verdict() -> Verdict:
    """A verdict that quotes hostile text everywhere it can."""
    base = wedged_verdict()
    return msgspec.structs.replace(
        base,
        scenario=HOSTILE,
        headline=HOSTILE,
        reasons=(HOSTILE,),
        findings=(_finding(HOSTILE, HOSTILE, Answer.NO, HOSTILE, 1, outcome=Outcome.WEDGED),),
        causes=(
            Cause(signature=HOSTILE, title=HOSTILE, side=HOSTILE, upstream=HOSTILE, fixed_in=HOSTILE, line=HOSTILE),
        ),
        paths=(PathVerdict(path=HOSTILE, serves=Answer.NO, note=HOSTILE),),
        waves=(
            msgspec.structs.replace(base.waves[0], wave=HOSTILE, how=HOSTILE, phases={HOSTILE: 2}, unmet=(HOSTILE,)),
        ),
        not_examined=(HOSTILE,),
        saved=(
            Saved(
                folder=HOSTILE,
                reason=HOSTILE,
                detail=HOSTILE,
                at_s=0,
                files=1,
                size=1,
                shows=(HOSTILE,),
                missing=(HOSTILE,),
            ),
        ),
        allow=(HOSTILE,),
    )
