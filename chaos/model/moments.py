"""Moments as people write them: `2026-06-20T14:02:40Z`, or only `14:02:40Z` where the file gives the date once.

The zone is always said: engines log local time, routers UTC, and nobody remembers later which it was.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from chaos.model.units import fullmatch, wrong
from chaos.model.yamltext import quoted

_DAY = r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
_ZONE = r"[-+](?:0[0-9]|1[0-4]):[0-5][0-9]"
DAY_PATTERN = f"^{_DAY}$"
OFFSET_PATTERN = f"^{_ZONE}$"
MOMENT_PATTERN = f"^(?:{_DAY}T)?{_TIME}(?:Z|{_ZONE})$"
_PARTS = re.compile(r"(?:(.{10})T)?(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(Z|.{6})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _moment(value: str) -> str:
    if fullmatch(MOMENT_PATTERN, value) is None:
        zone = "" if re.search(r"(?:Z|[-+]\d\d:\d\d)$", value) else "say the zone: Z, or +02:00"
        raise wrong(f"must be a moment such as 14:02:40Z or 2026-06-20T14:02:40Z, not {quoted(value)}", zone)
    return value


def _day(value: str) -> str:
    if fullmatch(DAY_PATTERN, value) is None:
        raise wrong(f"must be a date such as 2026-06-20, not {quoted(value)}")
    return value


def _offset(value: str) -> str:
    if fullmatch(OFFSET_PATTERN, value) is None:
        raise wrong(f"must be an offset such as +00:00 or -07:00, not {quoted(value)}", "the log's clock minus UTC")
    return value


def _schema(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern})


Moment = Annotated[str, AfterValidator(_moment), _schema(MOMENT_PATTERN)]
Day = Annotated[str, AfterValidator(_day), _schema(DAY_PATTERN)]
Offset = Annotated[str, AfterValidator(_offset), _schema(OFFSET_PATTERN)]


def parse_offset(text: str) -> timezone:
    """The zone that `+02:00` means; `Z` is UTC."""
    if text == "Z":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    return timezone((-1 if text[0] == "-" else 1) * timedelta(hours=hours, minutes=minutes))


def parse_moment(text: str, day: str | None) -> int:
    """Nanoseconds since the epoch. ValueError for a day that no calendar has, or a time without a day."""
    match = _PARTS.fullmatch(text)
    if match is None:
        raise ValueError(text)
    told = match[1] or day
    if told is None:
        raise ValueError("no date")
    on = date.fromisoformat(told)
    hour, minute, second = int(match[2]), int(match[3]), int(match[4])
    whole = datetime(on.year, on.month, on.day, hour, minute, second, tzinfo=parse_offset(match[6]))
    return since_epoch_ns(whole) + int((match[5] or "0").ljust(9, "0"))


def since_epoch_ns(moment: datetime) -> int:
    """Nanoseconds since the epoch of a moment with a zone, without the rounding of a float."""
    passed = moment - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000_000 + passed.microseconds * 1000


def utc_text(epoch_ns: int) -> str:
    """`2026-06-20T14:01:20Z`, for people and for folder names."""
    return f"{_EPOCH + timedelta(seconds=epoch_ns // 1_000_000_000):%Y-%m-%dT%H:%M:%SZ}"
