"""What a cut of our own way leaves behind: requests that nobody waits for any more, and a target busy with them.

The far end of a connection learns late that it is gone, or never while its host hangs; until then, and until the
engine's own timeouts free the last of them, a target serves whom we lost. Whoever waits behind that, waits for our
doing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.judge.units import ns
from chaos.judge.windows import in_vain_s, load_start

if TYPE_CHECKING:
    from chaos.judge.facts import Facts

CUT = "way"
"""The probe that tells of a server to which our own way was cut."""
AGENTS = ("ssh", "load")
"""The probe and the place of a lost connection to a host that runs the load alone: its sessions end with it."""


@dataclass(frozen=True, slots=True)
class Left:
    """A stretch in which a target may be busy with what one of our ways left."""

    from_ns: int
    until_ns: int
    node: str
    seq: int


def left_behind(facts: Facts) -> tuple[Left, ...]:
    """Those of all cuts that lasted into the load, which alone leaves enough to be busy with; in order, not merged."""
    loaded_ns = load_start(facts)
    if loaded_ns is None:
        return ()
    cuts = [lost for lost in facts.lost if lost.probe == CUT or (lost.probe, lost.node) == AGENTS]
    linger_ns = ns(in_vain_s(facts))
    found = [Left(cut.from_ns, cut.to_ns + linger_ns, cut.node, cut.seq) for cut in cuts if cut.to_ns >= loaded_ns]
    return tuple(sorted(found, key=lambda left: (left.from_ns, left.until_ns, left.seq)))


def covered_ns(lefts: tuple[Left, ...], from_ns: int, until_ns: int) -> int:
    """How much of a stretch of time lies in any of them."""
    covered, at_ns = 0, from_ns
    for left in lefts:  # in the order of their beginnings
        begin_ns, end_ns = max(left.from_ns, at_ns), min(left.until_ns, until_ns)
        if end_ns > begin_ns:
            covered, at_ns = covered + end_ns - begin_ns, end_ns
    return covered
