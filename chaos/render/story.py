"""The run told as a list of moments: what the plain lines print as it happens and the report lists in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from chaos.model import events as ev
from chaos.model.failures import failure_words
from chaos.render import words

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_MEMORY = 4096  # keys remembered to tell a first time from the next; beyond it, first times are told again

Tone = Literal["plain", "good", "warn", "bad"]


@dataclass(frozen=True, slots=True)
class Moment:
    """Something worth a line."""

    t_ns: int
    seq: int
    what: str
    text: str
    tone: Tone = "plain"


@dataclass(slots=True)
class Story:
    """Turns events into moments; remembers only what tells news from repetition."""

    _state: dict[tuple[str, str], str] = field(default_factory=dict)
    _overdue: set[str] = field(default_factory=set)
    _census: dict[str, str] = field(default_factory=dict)
    _seq: int = 0
    _imported: bool = False

    def feed(self, event: ev.AnyEvent) -> list[Moment]:
        """The moments that this event makes; usually none."""
        at_ns = event.by_ns if isinstance(event, ev.LogHit) else event.t_ns
        told = [
            Moment(at_ns, event.seq, what, words.one_line(text, 400), tone) for what, text, tone in self._tell(event)
        ]
        if event.seq and self._seq and event.seq > self._seq + 1:
            lost = event.seq - self._seq - 1
            told.insert(
                0, Moment(event.t_ns, event.seq, "journal", f"{words.count(lost, 'event')} missing before this", "warn")
            )
        self._seq = event.seq or self._seq
        return told

    def _tell(self, event: ev.AnyEvent) -> Iterable[tuple[str, str, Tone]]:  # noqa: C901, PLR0912 - one case per event
        match event:
            case ev.RunStarted():
                self._imported = event.origin == "imported"
                name = words.run_name(event.plan.scenario, event.target)
                yield "run", f"{name}, run {event.run_id}, seed {event.seed}, {event.utc}", "plain"
                for gave_way in event.gave_way:
                    yield "lock", gave_way, "plain"
            case ev.DeploymentSeen():
                yield "target", deployment(event), "plain"
            case ev.PhaseEntered():
                yield "phase", f"{event.phase}{f': {event.reason}' if event.reason else ''}", "plain"
            case ev.WaveCensus() | ev.WaveFired() | ev.FaultStep():
                yield from self._fault(event)
            case ev.LogHit():
                yield from self._hit(event)
            case ev.RequestOverdue() | ev.RequestEnded() if event.kind == "canary":
                yield from self._canary(event)
            case ev.RequestEnded() if (
                event.kind == "load" and event.ended_by == "harness" and self._news("hang-up", "", event.error)
            ):
                yield "load", f"a request ended by our doing, no fault planned it: {failure_words(event.error)}", "warn"
            case ev.LoadTold():
                yield "load", whole_load(event), "warn" if event.failed else "plain"
            case ev.Liveness():
                yield from self._liveness(event)
            case ev.Scrape():
                if self._news("scrape", event.node, "ok" if event.ok else "failed", quiet="ok"):
                    text = "answers again" if event.ok else f"unreadable: {event.error}"
                    yield "metrics", f"{event.node} {text}", "plain" if event.ok else "warn"
            case ev.ProcessSeen():
                yield from self._process(event)
            case ev.ForensicsTaken() if event.reason not in words.ROUTINE_LOOKS:
                why = f"{event.reason}: {event.detail}" if event.detail else event.reason
                kept = f"{words.count(len(event.files), 'file')}, {words.size(event.size)}"
                yield "saved", f"{event.folder} ({kept}) because of {why}", "plain"
            case ev.EvidenceLost():
                for_s = words.span((event.to_ns - event.from_ns) / 1e9)
                where = f"{event.probe} {event.node}".strip()
                yield "evidence", f"{where} could not look for {for_s}: {event.cause}", "warn"
            case ev.RunEnded() if self._imported:
                yield "end", "the evidence ends here", "plain"
            case ev.RunEnded():
                detail = "; ".join(part for part in (event.reason, event.cleanup_detail) if part)
                fine = (event.status, event.cleanup) == ("completed", "clean")
                text = f"{event.status}, cleanup {event.cleanup}{f': {detail}' if detail else ''}"
                yield "end", text, "plain" if fine else "warn"
            case _:
                return

    def _news(self, topic: str, about: str, state: str, *, quiet: str = "") -> bool:
        """Whether this state differs from the last; the first time, `quiet` is no news."""
        before = self._state.get((topic, about), quiet)
        if len(self._state) < MOST_MEMORY or (topic, about) in self._state:
            self._state[topic, about] = state
        return before != state

    def _fault(self, event: ev.WaveCensus | ev.WaveFired | ev.FaultStep) -> Iterable[tuple[str, str, Tone]]:
        match event:
            case ev.WaveCensus():
                if len(self._census) < MOST_MEMORY or event.wave in self._census:
                    self._census[event.wave] = words.census(event.phases)
                for aim in event.aim:
                    if not _met(aim):
                        got = "unknown" if aim.got is None else words.number(aim.got)
                        yield "aim", f"{event.wave}: {aim.name} {aim.op} {words.number(aim.want)} met {got}", "warn"
            case ev.WaveFired():
                yield "wave", wave(event, self._census.get(event.wave, "census unknown")), "bad"
            case ev.FaultStep() if not event.ok:
                yield "fault", f"{event.fault} not {event.stage}: {event.detail or 'no reason given'}", "warn"
            case ev.FaultStep() if event.kind == "poison" and event.stage == "verified":
                ends = [f"{number} {how}" for how, number in event.measured.items() if number != "0"]
                hang = event.measured.get("hanging", "0") != "0"
                yield "poison", f"{event.fault}: {', '.join(ends)}", "warn" if hang else "plain"
            case ev.FaultStep() if event.nodes and event.stage != "planned":
                yield (
                    "fault",
                    f"{event.fault} {event.stage}: {node_fault(event)}",
                    _STAGE_TONES.get(event.stage, "plain"),
                )
            case _:
                return

    def _hit(self, event: ev.LogHit) -> Iterable[tuple[str, str, Tone]]:
        if event.klass == "benign" or not self._news("hit", f"{event.node} {event.signature}", "seen"):
            return
        tone: Tone = "bad" if event.klass in ("fatal", "crash") else "warn"
        word = event.klass.upper() if tone == "bad" else event.klass
        yield "log", f"{word} {event.node}: {event.title or event.signature}: {event.line}", tone

    def _canary(self, event: ev.RequestOverdue | ev.RequestEnded) -> Iterable[tuple[str, str, Tone]]:
        if isinstance(event, ev.RequestOverdue):
            if len(self._overdue) < MOST_MEMORY:
                self._overdue.add(event.req)
            if self._news("canary", event.path, "red"):
                yield "canary", f"{event.path} RED: no answer in {words.span(event.deadline_s)}, left open", "bad"
            return
        if event.req in self._overdue:  # told when it became overdue; younger ones may have passed since
            self._overdue.discard(event.req)
            return
        took = words.span(((event.last_ns or event.t_ns) - (event.sent_ns or event.t_ns)) / 1e9)
        if self._news("canary", event.path, "green" if event.ok else "red"):
            why = failure_words(event.error) or f"ended by {event.ended_by}"
            good, bad = f"green: answered in {took}", f"RED after {took}: {why} {event.detail}"
            yield "canary", f"{event.path} {good if event.ok else bad}", "good" if event.ok else "bad"

    def _liveness(self, event: ev.Liveness) -> Iterable[tuple[str, str, Tone]]:
        state = "no answer" if event.status is None else str(event.status)
        if self._news("liveness", f"{event.node} {event.endpoint}", state, quiet="200"):
            good = event.status is not None and event.status < 400
            text = f"{event.node} {event.endpoint} answers {state} {event.error}"
            yield "liveness", text.replace("answers no answer", "does not answer"), "good" if good else "warn"

    def _process(self, event: ev.ProcessSeen) -> Iterable[tuple[str, str, Tone]]:
        state = "alive" if event.alive and event.state not in ("zombie", "dead", "stopped") else event.state or "dead"
        if self._news("process", event.node, state, quiet="alive"):
            pid = f" (pid {event.pid})" if event.pid > 0 else ""
            yield "process", f"{event.node}{pid} is {state}", "good" if state == "alive" else "bad"
        started = "" if event.start_time is None else f"{event.pid} {event.start_time}"
        first = ("start", event.node) not in self._state
        if started and self._news("start", event.node, started) and not first:
            yield "process", f"{event.node} is another process now (pid {event.pid})", "bad"
        for child in event.children:
            if not child.alive and self._news("child", f"{event.node} {child.pid}", "dead"):
                yield (
                    "process",
                    f"{event.node}: child {child.name}{f' (pid {child.pid})' if child.pid > 0 else ''} is dead",
                    "bad",
                )


def _met(aim: ev.AimCheck) -> bool:
    if aim.got is None:
        return False
    try:
        return ev.Bound(name=aim.name, op=aim.op, value=aim.want).met_by(aim.got)
    except ValueError:  # a comparison that a newer format knows
        return False


def deployment(event: ev.DeploymentSeen) -> str:
    """What answered: nodes by role with engine and version, and the paths between them."""
    roles: dict[str, int] = {}
    engines: dict[str, None] = {}
    for node in event.nodes:
        roles[node.role] = roles.get(node.role, 0) + 1
        if node.engine:
            engines[f"{node.engine} {node.version}".strip()] = None
    nodes = ", ".join(f"{n} {role}" for role, n in roles.items()) or "no node"
    examined = [path.id for path in event.paths if path.examined]
    shown = ", ".join(examined[:4]) + (f" and {len(examined) - 4} more" if len(examined) > 4 else "")
    return f"{nodes} ({', '.join(engines) or 'engine unknown'}); paths: {shown or 'none examined'}"


def whole_load(event: ev.LoadTold) -> str:
    """How a load fared of which nobody recorded the single requests."""
    parts = [] if event.sessions is None else [words.count(event.sessions, "session")]
    parts += [f"{n} {what}" for n, what in ((event.completed, "completed"), (event.failed, "failed")) if n is not None]
    if event.goodput is not None:
        parts.append(f"{event.goodput:.0%} of what the same load got through before")
    return f"{event.group}: {', '.join(parts) or 'nobody counted'} in {words.span((event.t_ns - event.from_ns) / 1e9)}"


_STAGE_TONES: dict[ev.Stage, Tone] = {"applied": "bad", "reverted": "good"}


def node_fault(event: ev.FaultStep) -> str:
    """What was done to nodes, or measured there."""
    return "; ".join(f"{what}: {got}" for what, got in sorted(event.measured.items())) or ", ".join(event.nodes)


def wave(event: ev.WaveFired, census: str) -> str:
    """What a wave hit, and how simultaneously."""
    spread = ""
    if event.first_ns is not None and event.last_ns is not None:
        spread = f" within {(event.last_ns - event.first_ns) / 1e6:.1f} ms"
    sockets = f", {words.count(event.sockets, 'socket')}" if event.sockets else ""
    router_ms = None
    if event.router_first_ns is not None and event.router_last_ns is not None:
        router_ms = (event.router_last_ns - event.router_first_ns) / 1e6
    router = words.router_words(event, router_ms)
    hit = f"{event.wave}: {event.how} of {words.count(event.sessions, 'session')}{sockets}{spread}: {census}"
    return f"{hit}; {router}" if router else hit
