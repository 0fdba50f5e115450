"""What people noted, as the events that a run of ours would have written of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.autopsy.scrapes import read_note
from chaos.model import events as ev

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chaos.autopsy.clock import ImportClock
    from chaos.model.observations import ActionNote, Did, Observations, ProcessNote, RequestNote

NOTED = "observations.yaml"
BAD_FINISH = frozenset({"abort", "error"})
OK = 200
_KINDS: dict[Did, str] = {
    "kill-clients": "kill",
    "kill": "signal",
    "terminate": "signal",
    "stop": "signal",
    "restart": "restart",
    "other": "other",
}
_HOWS: dict[Did, str] = {
    "kill-clients": "kill",
    "kill": "KILL",
    "terminate": "TERM",
    "stop": "STOP",
    "restart": "restart",
    "other": "other",
}
_ENDS = frozenset({"kill", "terminate", "restart"})
_STATES = {"Z": "zombie", "X": "dead", "T": "stopped", "t": "tracing-stop", "<": "zombie"}
"""First letters of what `ps` says of a process (`Zl`, `Z+`, `<defunct>`), in the words of the probes."""
_PS_STATE = re.compile(r"[A-Zt][-<NLsl+]{0,5}|<defunct>")
_ERRORS = {"gave-up": "timeout", "refused": "refused", "reset": "reset", "cut": "truncated"}


@dataclass(frozen=True, slots=True)
class Deed:
    """One action with its place among the others. What was done at the same moment belongs to one cycle."""

    note: ActionNote
    id: str
    cycle: int
    at_ns: int
    over_ns: int | None  # when it was over, where somebody noted it

    @property
    def lasted_s(self) -> float | None:
        """How long it stood before it was undone; None for what is not undone, or nobody knows when."""
        return None if self.note.did != "stop" or self.over_ns is None else (self.over_ns - self.at_ns) / 1e9

    @property
    def kind(self) -> str:
        """The kind of fault, as a plan calls it."""
        return _KINDS[self.note.did]

    @property
    def how(self) -> str:
        """What was done, for people."""
        return self.note.how or _HOWS[self.note.did]


def deeds_of(told: Observations, clock: ImportClock) -> list[Deed]:
    """The actions in order of time."""
    ordered = sorted(told.actions, key=lambda note: clock.at(note.at))
    moments = sorted({clock.at(note.at) for note in ordered})
    return [
        Deed(
            note,
            note.id or _name(note),
            moments.index(clock.at(note.at)) + 1,
            clock.at(note.at),
            None if note.done_by is None else clock.at(note.done_by),
        )
        for note in ordered
    ]


def _name(note: ActionNote) -> str:
    return "wave" if note.did == "kill-clients" else "-".join([note.did, *note.nodes])


def events_of(told: Observations, deeds: Sequence[Deed], clock: ImportClock) -> Iterator[ev.AnyEvent]:
    """Everything that was noted, in no order."""
    yield from _phases(told, deeds, clock)
    for deed in deeds:
        yield from _action(deed)
    deadline_s = told.expect.deadline
    for number, request in enumerate(told.requests, 1):
        yield from _request(f"request-{number}", request, deadline_s, clock)
    for load in told.load:
        yield ev.LoadTold(
            t_ns=clock.end if load.until is None else clock.at(load.until),
            src="import:notes",
            from_ns=clock.at(load.since),
            sessions=load.sessions,
            group=load.name,
            completed=load.completed,
            failed=load.failed,
            goodput=load.goodput,
        )
    for gauge in told.gauges:
        yield read_note(gauge, clock)
    for health in told.health:
        yield ev.Liveness(
            t_ns=clock.at(health.at),
            src="import:notes",
            node=health.node,
            endpoint=health.endpoint,
            status=health.status,
            took_ms=health.took * 1000,
        )
    for beat in told.heartbeats:
        yield ev.LevelsTold(
            t_ns=clock.at(beat.at),
            src="import:notes",
            node=beat.node,
            by="hand",
            samples=(ev.Sample(name=HEARTBEAT, labels="", value=clock.at(beat.last) // 1_000_000_000),),
        )
    for process in told.processes:
        yield _process(process, clock)


HEARTBEAT = "noted_heartbeat"


def _phases(told: Observations, deeds: Sequence[Deed], clock: ImportClock) -> Iterator[ev.PhaseEntered]:
    """A cycle begins with the load, as far as its beginning was noted, else with what was done in it."""
    yield ev.PhaseEntered(t_ns=clock.begin, src="import:notes", phase="baseline")
    starts: dict[int, int] = {}
    for deed in deeds:
        starts[deed.cycle] = min(starts.get(deed.cycle, deed.at_ns), deed.at_ns)
    loads = [clock.at(load.since) for load in told.load]
    if loads:
        starts[1] = min([*loads, *([starts[1]] if 1 in starts else [])])
    for cycle, at_ns in starts.items():
        yield ev.PhaseEntered(t_ns=at_ns, src="import:notes", phase="load", cycle=cycle)
    # After everything that was seen: a watch that went on for longer than anything was noted tells, too.
    yield ev.PhaseEntered(t_ns=clock.end + 1, src="import:notes", phase="teardown", reason="the watch ends here")


def _action(deed: Deed) -> Iterator[ev.AnyEvent]:
    note, at_ns = deed.note, deed.at_ns
    over_ns = at_ns if deed.over_ns is None else deed.over_ns
    if note.sessions is not None:
        phases = {phase: number for phase, number in note.sessions.model_dump().items() if number}
        yield ev.WaveCensus(
            t_ns=at_ns, src="import:notes", cycle=deed.cycle, wave=deed.id, phases=phases or {"streaming": 0}
        )
    if note.did == "kill-clients" and not note.failed:
        number = sum(note.sessions.model_dump().values()) if note.sessions else 0
        yield ev.WaveFired(
            t_ns=at_ns,
            src="import:notes",
            cycle=deed.cycle,
            wave=deed.id,
            how=deed.how,
            ordered_ns=at_ns,
            sessions=number,
        )
    yield _step(deed, "applied", at_ns)
    if note.failed:
        return
    stop = note.did == "stop"
    yield _step(deed, "verified", at_ns if stop else over_ns)
    if deed.lasted_s is not None:
        yield _step(deed, "reverted", over_ns)
        yield _step(deed, "revert-verified", over_ns)


def _step(deed: Deed, stage: ev.Stage, t_ns: int) -> ev.FaultStep:
    note = deed.note
    return ev.FaultStep(
        t_ns=t_ns,
        src="import:notes",
        cycle=deed.cycle,
        fault=deed.id,
        kind=deed.kind,
        stage=stage,
        ok=not note.failed,
        measured={"told by": NOTED},
        detail=note.failed,
        reversal="CONT" if note.did == "stop" else "none",
        nodes=tuple(note.nodes),
        ends=note.did in _ENDS,
    )


def _request(req: str, note: RequestNote, deadline_s: float, clock: ImportClock) -> Iterator[ev.AnyEvent]:
    sent_ns = clock.at(note.at)
    yield ev.RequestStarted(
        t_ns=sent_ns, src="import:notes", req=req, kind="canary", path=note.path, intended_ns=sent_ns, sent_ns=sent_ns
    )
    # Of one whose end nobody timed only the first byte is known; of an error not even that.
    took_s = next((span for span in (note.took, note.first_byte) if span is not None), 0.0)
    end_ns = sent_ns + round(took_s * 1e9)
    late_ns = sent_ns + round(deadline_s * 1e9)
    if late_ns < (clock.end if note.ended == "still-open" else end_ns):
        yield ev.RequestOverdue(
            t_ns=late_ns,
            src="import:notes",
            req=req,
            kind="canary",
            path=note.path,
            age_s=deadline_s,
            deadline_s=deadline_s,
        )
    if note.ended == "still-open":
        return
    yield ev.RequestEnded(
        t_ns=end_ns,
        src="import:notes",
        req=req,
        kind="canary",
        path=note.path,
        sent_ns=sent_ns,
        first_ns=None if note.first_byte is None else sent_ns + round(note.first_byte * 1e9),
        last_ns=end_ns,
        tokens=note.tokens or 0,
        status=note.status,
        finish=note.finish,
        error=_error(note),
        content=note.content,
        ended_by="harness" if note.ended == "gave-up" else "server" if note.ended == "complete" else "error",
    )


def _error(note: RequestNote) -> str:
    if note.ended == "complete":
        return "in-band" if note.finish in BAD_FINISH else "no-tokens" if note.tokens == 0 else ""
    if note.ended == "error":
        return "status" if note.status not in (None, OK) else "in-band"
    return _ERRORS[note.ended]


def _process(note: ProcessNote, clock: ImportClock) -> ev.ProcessSeen:
    return ev.ProcessSeen(
        t_ns=clock.at(note.at),
        src="import:notes",
        node=note.node,
        pid=note.pid or 0,
        alive=note.alive,
        state=_state(note.state),
        start_time=None if note.started is None else clock.at(note.started) / 1e9,
        children=tuple(
            ev.Child(pid=child.pid or -number, name=child.name, alive=child.alive)
            for number, child in enumerate(note.children, 1)
        ),
        threads=tuple(note.threads),
        threads_by="python" if note.threads else "kernel",
    )


def _state(told: str) -> str:
    """A process's state in one word; what `ps` writes is letters, and psutil's words are longer."""
    return _STATES.get(told[:1], told) if _PS_STATE.fullmatch(told) else told
