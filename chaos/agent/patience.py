"""Clients that lose patience: each chosen request is given up a while after it was sent, unless it ended before.

Requests that were sent one after the other are so given up one after the other, as real timeouts do.
"""

from __future__ import annotations

import asyncio
from time import monotonic_ns
from typing import TYPE_CHECKING

from .waves import Blow, all_closed, choose, phases_of, tell

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .client import Call
    from .report import Report
    from .sessions import Session
    from .waves import Order
    from .wire import Farewell


async def lose_patience(order: Order, sessions: Iterable[Session], report: Report) -> None:
    """Give up the requests that the order chooses, each when its time has come, and report when all is over."""
    chosen = [session for session in choose(sessions, order.wanted) if session.call is not None]
    blow = Blow(order, phases_of(chosen), [])
    waiting = [_give_up(session, session.call, order) for session in chosen if session.call is not None]
    blow.farewells.extend(farewell for farewell in await asyncio.gather(*waiting) if farewell is not None)
    await all_closed(blow.farewells)
    tell(blow, report)


async def _give_up(session: Session, call: Call, order: Order) -> Farewell | None:
    sent_ns = call.sent_ns or monotonic_ns()
    left_s = order.deadline_s - (monotonic_ns() - sent_ns) / 1e9
    if await call.ended_within(max(left_s, 0.0)):
        return None
    farewell = call.hang_up("cancel", "cancelled", "fault", f"wave {order.wave}: no end within {order.deadline_s:g} s")
    session.kill()
    return farewell
