"""Units in values: `25s`, `300ms`, `2m`, `20/s`. A bare number is refused: nobody knows its unit later."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"^(\d+(?:\.\d+)?)(ms|s|min|m|h)$")
_RATE = re.compile(r"^(\d+(?:\.\d+)?)/(s|m|h)$")


def parse_duration(value: object) -> float:
    """Seconds of `25s`; ValueError says what is wrong."""
    if isinstance(value, float):
        return value
    match = _DURATION.match(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a duration such as 25s, 300ms or 2m")
    return float(match[1]) * _SECONDS[match[2]]


def parse_rate(value: object) -> float:
    """Events per second of `20/s`; ValueError says what is wrong."""
    if isinstance(value, float):
        return value
    match = _RATE.match(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a rate such as 20/s")
    return float(match[1]) / _SECONDS[match[2]]


Duration = Annotated[float, BeforeValidator(parse_duration)]
Rate = Annotated[float, BeforeValidator(parse_rate)]
