"""JSON in and out: orjson where it is importable, else the standard library, with the same values and bytes from both.

orjson refuses half of a surrogate pair, which servers do send when they cut a character between two events; the
standard library takes over then.
"""

from __future__ import annotations

import json
from typing import Callable

__all__ = ["NAME", "as_list", "as_mapping", "as_text", "dumps", "loads"]


def _std_dumps(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


NAME: str
_dumps: Callable[[object], bytes]
_loads: Callable[[bytes], object]

try:
    import orjson
except ImportError:
    NAME, _dumps, _loads = "json", _std_dumps, json.loads
else:
    NAME, _dumps, _loads = "orjson", orjson.dumps, orjson.loads


def dumps(value: object) -> bytes:
    """Compact JSON; text that UTF-8 cannot hold comes escaped."""
    try:
        return _dumps(value)
    except (TypeError, UnicodeEncodeError):
        return json.dumps(value, separators=(",", ":")).encode()


def loads(data: bytes) -> object:
    """The value of a JSON text; ValueError for anything else, hostile nesting included."""
    try:
        return _loads(data)
    except (ValueError, RecursionError):
        try:
            return json.loads(data)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


def as_mapping(value: object) -> dict[str, object]:
    """`value` when it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    """`value` when it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: object) -> str:
    """`value` when it is a string, else an empty one."""
    return value if isinstance(value, str) else ""
