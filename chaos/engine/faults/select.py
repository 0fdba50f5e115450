"""Which nodes a `where` means: selector and mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.model.faults import Where
    from chaos.model.target import Server


def matching(where: Where, servers: Sequence[Server]) -> tuple[Server, ...]:
    """Every node that fits the selector, in the target's order."""
    return tuple(one for one in servers if one.role == where.role and where.node in (None, one.id))


def choose(where: Where, servers: Sequence[Server], *, turn: int) -> tuple[Server, ...]:
    """As many of them as the mode says. `turn` rotates, so that cycles hit one after the other, repeatably."""
    found = matching(where, servers)
    if not found:
        return ()
    first = turn % len(found)
    turned = (*found[first:], *found[:first])[: where.number(len(found))]
    return tuple(one for one in found if one in turned)
