"""Nanoseconds and the words for them."""

from __future__ import annotations

SECOND = 1_000_000_000
MS = 1_000_000


def ns(seconds: float) -> int:
    """Nanoseconds of `seconds`."""
    return round(seconds * SECOND)


def span(seconds: float) -> str:
    """A duration for people: `0.4 s`, `33 s`, `331 s`."""
    return f"{seconds:.1f} s" if abs(seconds) < 10 else f"{seconds:.0f} s"


def between(start_ns: int, end_ns: int) -> str:
    """The time from one moment to another, for people."""
    return span((end_ns - start_ns) / SECOND)


def count(number: int, thing: str) -> str:
    """`1 canary`, `2 canaries`, `0 events`."""
    if number == 1:
        return f"1 {thing}"
    return f"{number} {thing[:-1]}ies" if thing.endswith("y") and thing[-2] not in "aeo" else f"{number} {thing}s"


def listed(names: list[str] | tuple[str, ...]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    names = list(names)
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
