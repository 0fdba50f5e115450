"""What was broken: a wave and whom it met, and the stages of any fault."""

from __future__ import annotations

from typing import Literal

from chaos.model.events.envelope import Event, Record, Span

Stage = Literal["planned", "applied", "verified", "reverted", "revert-verified"]


class QueueReading(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A gauge as last scraped before the wave, with its age: gauges freeze in the state we look for."""

    node: str
    name: str
    value: float
    age_s: Span


class AimCheck(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One aim against what was met; `got` is None when nothing could be read (unknown, not zero)."""

    name: str
    op: str
    want: float
    got: float | None = None


class WaveCensus(Event, frozen=True, kw_only=True, omit_defaults=True, tag="wave.census"):
    """In which phase each targeted session was at the moment of the wave."""

    wave: str
    phases: dict[str, int]
    queues: tuple[QueueReading, ...] = ()
    aim: tuple[AimCheck, ...] = ()  # only what can be known at the wave; server_aborts is judged later


class WaveFired(Event, frozen=True, kw_only=True, omit_defaults=True, tag="wave.fired"):
    """One fault against many sessions at once: when it was ordered, and when it reached the first and last of them.

    `router_*` is what the router's own kernel saw: of how many connections, how many ended, and between which two looks
    at them all of these did; `router_closed` is None where nobody could look, and `router_unknown` says why.
    """

    wave: str
    how: str
    ordered_ns: int
    first_ns: int | None = None
    last_ns: int | None = None
    sessions: int = 0
    sockets: int = 0  # open connections hit
    fin: int | None = None  # None: nobody can tell after SIGKILL
    rst: int | None = None
    router_watched: int = 0
    router_closed: int | None = None
    router_first_ns: int | None = None
    router_last_ns: int | None = None
    router_unknown: str = ""


class FaultStep(Event, frozen=True, kw_only=True, omit_defaults=True, tag="fault.step"):
    """One stage of a fault's life; a fault counts only once `verified` with `ok` and a measurement."""

    fault: str
    kind: str
    stage: Stage
    ok: bool
    measured: dict[str, str] = {}
    detail: str = ""
    ttl_s: Span | None = None
    reversal: str = "none"  # what undoes it; "none" for a kill
    nodes: tuple[str, ...] = ()  # nodes whose processes it acts on; none for a fault of our own clients
    pids: tuple[int, ...] = ()  # those processes, where they are known
    ends: bool = False  # it ends these processes on purpose: their death and their replacement are our doing
    cut_off: tuple[str, ...] = ()  # nodes that have no way, or not the one that they need, while it stands
    cut_from: tuple[str, ...] = ()  # to any of these
