"""Connections kept open against the server: clients that stop reading (`stall`), or that vanish without a word.

A hold can be looked at and is released: reading goes on as if nothing had been, or the clients close. What the held
requests come to is the fault's doing.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING

from .phases import STREAMING
from .waves import choose, phases_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .client import Call
    from .report import Report
    from .sessions import Session
    from .waves import Order

HOLDS = ("stall", "blackhole")


class Hold:
    """One order to hold connections. Those that stream are taken first: at them something arrives."""

    def __init__(self, order: Order, sessions: Iterable[Session], report: Report) -> None:
        self._order = order
        self._report = report
        free = [session for session in sessions if session.call is not None and not session.call.held]
        busy = choose(free, order.wanted, first=STREAMING)
        phases = phases_of(busy)
        self._held: list[tuple[Session, Call, int]] = []  # with the segments that had been dropped before
        problem = ""
        begun_ns = monotonic_ns()
        for session in busy:
            call = session.call
            if call is None or not call.connected:
                continue
            try:
                call.hold(order.how)
            except OSError as error:
                problem = error.strerror or str(error)
                continue
            self._held.append((session, call, call.arrived()[2]))
        report.emit(
            "wave",
            {
                "id": order.wave,
                "how": order.how,
                "ordered": order.ordered_ns,
                "first": begun_ns if self._held else None,
                "last": monotonic_ns() if self._held else None,
                "sessions": len(busy),
                "sockets": len(self._held),
                "phases": phases,
                "problem": problem,
            },
        )

    def look(self) -> None:
        """Report what the kernel has of the held connections: how many are open and held, bytes unread, drops."""
        open_ = held = unread = full = dropped = swallowing = 0
        for _, call, before in self._held:
            if not call.connected:
                continue
            is_held, bytes_, drops = call.arrived()
            open_ += 1
            held += is_held
            unread += bytes_
            full += bytes_ > 0
            dropped += drops - before
            swallowing += drops > before
        fields = {"id": self._order.wave, "open": open_, "held": held, "unread": unread, "with_unread": full}
        self._report.emit("held", {**fields, "dropped": dropped, "with_dropped": swallowing})

    def release(self, *, close: bool) -> None:
        """Let the clients go on, or have them close; then report as `look` does."""
        for session, call, _ in self._held:
            call.release()
            if close:
                call.hang_up("cancel", "cancelled", "fault", f"wave {self._order.wave}")
                session.kill()
        self.look()
