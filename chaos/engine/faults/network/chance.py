"""Whether so many losses among so many packets fit a probability: the exact binomial distribution."""

from __future__ import annotations

import math

DOUBT = 1e-5
"""On each side: a fault that is as it should be is called another one time in fifty thousand."""


def fits(lost: int, of: int, share: float) -> bool:
    """Whether neither so few nor so many losses are all but impossible when each packet is lost with this chance."""
    return _at_most(lost, of, share) > DOUBT and 1 - _at_most(lost - 1, of, share) > DOUBT


def telling(share: float) -> int:
    """How many packets it takes until none at all being lost does not fit."""
    return math.ceil(math.log(DOUBT) / math.log1p(-share)) + 1


def _at_most(lost: int, of: int, share: float) -> float:
    log_p, log_q = math.log(share), math.log1p(-share)
    return sum(
        math.exp(math.lgamma(of + 1) - math.lgamma(n + 1) - math.lgamma(of - n + 1) + n * log_p + (of - n) * log_q)
        for n in range(min(lost, of) + 1)
    )
