"""The way out of a person who cannot wait: hang up on what is open, and look for a few seconds at what that did."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from chaos.judge import cut_short

if TYPE_CHECKING:
    from chaos.engine.faults.kit import FaultKit
    from chaos.engine.safety import Interrupt
    from chaos.judge import Facts

SETTLE_S = 4.0
"""Servers notice a disconnect 2 to 4 s late: what is asked sooner may pass on a deployment that is about to break."""
LOOK_S = 4.0
"""Who cannot wait presses once more if this takes longer."""


async def leave(kit: FaultKit, facts: Facts, interrupt: Interrupt) -> None:
    """Hang up on users, then look once more, unless asked yet again.

    To hang up on a request that waits for its first token is what a wave does, so it may be us who break the target,
    and who leaves should not learn that from the next user. One answer per path does not show that a path serves, and
    none says little of a busy one; but either tells more than nothing, and costs seconds only. It is asked for only
    where a waiting request was hung up on already: we hang up on an unanswered canary, too, and where only streams
    were cut that would be the first disconnect of the kind that breaks. Canaries that are open get the time to end.
    """
    kit.probes.pause_for_idle()
    await kit.fleet.hang_up()
    cut = cut_short(facts)
    if cut is None and not kit.probes.open_canaries:
        return
    looking = asyncio.ensure_future(_look(kit, facts, ask=cut is not None and cut.waiting > 0))
    asked_again = asyncio.ensure_future(interrupt.blindly.wait())
    try:
        await asyncio.wait([looking, asked_again], return_when=asyncio.FIRST_COMPLETED)
    finally:
        looking.cancel()
        asked_again.cancel()
        await asyncio.wait([looking, asked_again])
    if not looking.cancelled():
        looking.result()


async def _look(kit: FaultKit, facts: Facts, *, ask: bool) -> None:
    if ask:
        await kit.clock.sleep(min(facts.plan.settle_s, SETTLE_S))
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK_S):
            await (kit.probes.last(facts.plan.canary_deadline_s) if ask else kit.probes.settled())
