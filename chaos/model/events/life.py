"""Whether a node lives: by its health endpoint, and by its processes."""

from __future__ import annotations

from typing import Literal

from chaos.model.events.envelope import Event, Record, Span


class Liveness(Event, frozen=True, kw_only=True, omit_defaults=True, tag="liveness"):
    """What a health endpoint said: recorded, never trusted."""

    node: str
    endpoint: str
    status: int | None
    took_ms: Span
    error: str = ""


class Child(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A child process of a node. Who saw it but not its pid numbers it from -1 down."""

    pid: int
    name: str
    alive: bool
    start_time: Span = 0.0


class ProcessSeen(Event, frozen=True, kw_only=True, omit_defaults=True, tag="process.seen"):
    """The state of a node's process. `state` is psutil's word (running, sleeping, stopped, zombie, dead).

    A `pid` of 0 is one that nobody noted.

    `threads` are names as `threads_by` gave them: the kernel, counted over the whole process tree; or the interpreter
    (`python`), one entry per thread, complete for every living Python process of the tree.
    """

    node: str
    pid: int
    alive: bool
    state: str = ""
    start_time: Span | None = None
    children: tuple[Child, ...] = ()
    threads: tuple[str, ...] = ()  # names, where they can be read
    threads_by: Literal["kernel", "python"] = "kernel"
