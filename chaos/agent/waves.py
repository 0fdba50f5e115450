"""One fault against many sessions at once: take the census, hang up, measure when and how each socket really ended."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

from .codec import as_list, as_text
from .phases import CENSUS, PHASE_NAMES, WAITING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .report import Report
    from .sessions import Session
    from .wire import Farewell

HOWS = ("rst", "fin", "cancel", "timeout", "abort-api", "stall", "blackhole")
_PATIENCE_S = 5.0  # for the last socket to close, before the wave is reported without it

Wanted = Union[None, int, "frozenset[int]"]  # None: all


class BadWave(Exception):
    """A wave command that cannot be carried out; nothing was hung up."""


@dataclass(frozen=True)
class Order:
    """A wave as ordered. `wanted` is None for all sessions, a number of sessions, or their numbers."""

    wave: str
    how: str
    wanted: Wanted
    ordered_ns: int
    deadline_s: float = 0.0  # of `timeout`: how long after it was sent a request is given up


def parse_order(command: dict[str, object], ordered_ns: int) -> Order:
    """The order in a command; BadWave when it is none."""
    how = as_text(command.get("how"))
    if how not in HOWS:
        raise BadWave(f"how: wanted one of {', '.join(HOWS)}, got {command.get('how')!r}")
    given = command.get("sessions", "all")
    wanted: Wanted
    if given == "all":
        wanted = None
    elif isinstance(given, int) and not isinstance(given, bool):
        wanted = given
    elif isinstance(given, list) and all(isinstance(number, int) for number in given):
        wanted = frozenset(number for number in as_list(given) if isinstance(number, int))
    else:
        raise BadWave(f'sessions: wanted "all", a number or a list of numbers, got {given!r}')
    deadline = command.get("deadline_s", 0.0)
    if not isinstance(deadline, (int, float)) or isinstance(deadline, bool) or deadline < 0:
        raise BadWave(f"deadline_s: wanted a number that is not negative, got {deadline!r}")
    return Order(as_text(command.get("id")), how, wanted, ordered_ns, float(deadline))


def choose(sessions: Iterable[Session], wanted: Wanted, *, first: int = WAITING) -> list[Session]:
    """The sessions to hit: all, those named, or N with an open request, those in the phase `first` first."""
    if wanted is None:
        return list(sessions)
    if isinstance(wanted, frozenset):
        return [session for session in sessions if session.number in wanted]
    busy = [session for session in sessions if session.call is not None]
    busy.sort(key=lambda session: (session.phase != first, session.number))
    return busy[:wanted]


@dataclass(frozen=True)
class Blow:
    """A wave that was fired: the census of the moment before, and every socket it hit."""

    order: Order
    phases: dict[str, int]
    farewells: list[Farewell]


def strike(order: Order, sessions: Iterable[Session]) -> Blow:
    """Take the census and hit the sessions; nothing comes between the two."""
    targets = choose(sessions, order.wanted)
    phases = phases_of(targets)
    farewells: list[Farewell] = []
    calls = [session.call for session in targets if session.call is not None]
    for call in calls:
        farewell = call.cut(order.how)
        if farewell is not None:
            farewells.append(farewell)
    for call in calls:
        call.settle("cancelled", f"wave {order.wave}", "fault")
    for session in targets:
        session.kill()
    return Blow(order, phases, farewells)


def phases_of(sessions: Iterable[Session]) -> dict[str, int]:
    """How many of the sessions are in each phase of a census."""
    phases = dict.fromkeys(CENSUS, 0)
    for session in sessions:
        if PHASE_NAMES[session.phase] in phases:
            phases[PHASE_NAMES[session.phase]] += 1
    return phases


def hand_over(order: Order, sessions: Iterable[Session], report: Report) -> None:
    """Name the requests that somebody else is to abort through the engine's API; what they end in is the fault's."""
    chosen = [session for session in choose(sessions, order.wanted) if session.call is not None]
    calls = [session.call for session in chosen if session.call is not None]
    blow = Blow(order, phases_of(chosen), [])
    for call in calls:
        call.blame()
    for session in chosen:
        session.kill()
    tell(blow, report, rids=[call.rid for call in calls if call.connected])


async def follow(blow: Blow, report: Report) -> None:
    """Wait until the sockets are closed, and report."""
    await all_closed(blow.farewells)
    tell(blow, report)


def tell(blow: Blow, report: Report, *, rids: list[str] | None = None) -> None:
    """Report a wave that is over; `rids` are the requests that are left for others to end."""
    order, farewells = blow.order, blow.farewells
    stamps = [farewell.at_ns for farewell in farewells if farewell.at_ns is not None]
    kinds = [farewell.kind for farewell in farewells]
    report.emit(
        "wave",
        {
            "id": order.wave,
            "how": order.how,
            "ordered": order.ordered_ns,
            "first": min(stamps, default=None),
            "last": max(stamps, default=None),
            "sessions": sum(blow.phases.values()),
            "sockets": len(farewells) if rids is None else len(rids),
            "fin": kinds.count("fin"),
            "rst": kinds.count("rst"),
            "phases": blow.phases,
            "rids": rids or [],
        },
    )


async def all_closed(farewells: list[Farewell]) -> None:
    """Wait until each socket is closed, for a while."""
    left = sum(farewell.at_ns is None for farewell in farewells)
    if not left:
        return
    closed = asyncio.get_running_loop().create_future()

    def one_less() -> None:
        nonlocal left
        left -= 1
        if not left and not closed.done():
            closed.set_result(None)

    for farewell in farewells:
        farewell.on_closed = one_less
    await asyncio.wait([closed], timeout=_PATIENCE_S)
