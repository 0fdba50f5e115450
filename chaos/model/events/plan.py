"""What a run intends: its faults with their aims, and every duration as it holds for this deployment."""

from __future__ import annotations

from typing import Literal

from chaos.model.events.envelope import Record, Span

ContentMode = Literal["echo", "known-answer", "unchecked", "auto"]


class Bound(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One condition on a count: `op` is one of `>= > <= < ==`."""

    name: str
    op: str
    value: float

    def met_by(self, got: float) -> bool:
        """Whether `got` satisfies the bound."""
        match self.op:
            case ">=":
                return got >= self.value
            case ">":
                return got > self.value
            case "<=":
                return got <= self.value
            case "<":
                return got < self.value
            case "==":
                return got == self.value
            case other:
                raise ValueError(f"unknown comparison {other!r}")


class PlannedFault(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One step of the timeline as resolved before the run.

    `aim` names census phases (`connecting waiting streaming thinking`), canonical gauges, or `server_aborts` (distinct
    requests whose abort the servers themselves logged or counted after the wave).
    """

    id: str
    kind: str  # kill | signal | restart | foreign-frame | abort-frame | sham
    how: str = ""  # for people: what it does to whom
    group: str = ""  # whose sessions a kill ends
    aim: tuple[Bound, ...] = ()
    disruptive: bool = True  # False: a step that breaks nothing
    lasts_s: Span | None = None  # undone by us after this long; None: at the end of the run, or never
    cycles: tuple[int, ...] = ()  # those that it belongs to; none named: every one


class Plan(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What the run intends, with every duration already multiplied by the deployment's time scale (seconds)."""

    scenario: str
    about: str = ""
    cycles: int = 1
    faults: tuple[PlannedFault, ...] = ()
    groups: tuple[str, ...] = ()
    settle_s: Span = 10.0
    rest_s: Span = 0.0
    idle_s: Span = 60.0
    quiet_s: Span = 10.0  # canaries count only when begun this long after the last abort evidence
    watch_s: Span = 330.0  # how long a wedge is watched after the last wave
    recover_within_s: Span = 60.0
    canary_deadline_s: Span = 20.0
    canary_interval_s: Span = 1.0
    canaries_in_a_row: int = 5
    allow: tuple[str, ...] = ("healthy",)
    time_scale: float = 1.0
    until: str = ""  # "wedged": stop cycling at the first violation
    measure_s: Span = 0.0  # how long load goes on after the last recovery, to see how fast it is served
    content: ContentMode = "unchecked"  # what answers can be held to, as the target's owner says
