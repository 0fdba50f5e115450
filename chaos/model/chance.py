"""How many tries it takes until an absence says something."""

from __future__ import annotations

import math

DOUBT = 0.01
"""How likely a run may be to accuse a worker that was only unlucky; shared among all workers that are looked at."""


def by_chance(share: float, tries: int) -> float:
    """How likely it is that something which gets this share of the tries (0 to 1) got none of them."""
    return (1.0 - share) ** tries if share < 1.0 else float(tries == 0)


def tries_that_tell(share: float, doubt: float) -> int:
    """How many tries make an absence less likely than `doubt`; `share` is above 0."""
    return 1 if share >= 1.0 else max(1, math.ceil(math.log(doubt) / math.log(1.0 - share)))
