"""What the scenario language has words for and this version cannot do: refused by name, never silently accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.model.yamlpos import Mapping, Node, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterable

_FAULTS = (
    "signal", "restart", "rate", "loss", "partition", "port-block", "delay", "foreign-frame", "abort-frame",
    "http-garbage", "flush-cache", "abort-all", "pause", "continue", "slow-down", "poison",
)  # fmt: skip
_STEP_KEYS = ("where", "for", "until")
_TOP_KEYS = ("sweep", "matrix", "suite")
_HOWS = ("timeout", "abort-api", "stall", "blackhole")
_NOT_YET = "this version cannot do it yet"


def in_place_of(missing: str, keys: Iterable[str]) -> bool:
    """Whether one of these keys is a word for later that stands where `missing` should."""
    return missing == "kill" and any(key in _FAULTS for key in keys)


def unsupported_key(where: tuple[str, ...]) -> tuple[str, str] | None:
    """Message and hint when the key at the end of `where` is a word for later."""
    match where:
        case ("timeline", key) if key in _FAULTS:
            return f"the fault `{key}` is not supported: {_NOT_YET}", "supported: kill"
        case ("timeline", key) if key in _STEP_KEYS:
            return f"`{key}` is not supported: {_NOT_YET}", "a kill needs no undoing"
        case (key,) if key in _TOP_KEYS:
            return f"`{key}` is not supported: {_NOT_YET}", ""
    return None


def unsupported_value(where: tuple[str, ...], node: Node) -> tuple[str, str] | None:
    """Message (after the key's name) and hint when a value is a form for later."""
    match where, node:
        case ("load", "prompt_tokens"), Mapping() | Scalar(value=str()):
            return f"must be a number of tokens (no distribution or trace: {_NOT_YET})", ""
        case ("timeline", "kill", "how"), Scalar(value=str() as how) if how in _HOWS:
            return f"cannot be {how}: {_NOT_YET}", "supported: sigkill, rst, fin, cancel"
        case ("trials", "count"), Scalar(value=int()):
            return "must be 1: one run has one trial", "run it several times"
    return None
