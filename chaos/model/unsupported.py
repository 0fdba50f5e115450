"""What the scenario language has words for and this version cannot do: refused by name, never silently accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.model.actions import ACTIONS
from chaos.model.yamlpos import Mapping, Scalar

if TYPE_CHECKING:
    from chaos.model.yamlpos import Node

_FAULTS = ("http-garbage", "flush-cache", "abort-all", "pause", "continue", "slow-down")
_TOP_KEYS = ("matrix", "suite")
_NOT_YET = "this version cannot do it yet"


def unsupported_key(where: tuple[str, ...]) -> tuple[str, str] | None:
    """Message and hint when the key at the end of `where` is a word for later."""
    match where:
        case ("timeline", key) if key in _FAULTS:
            return f"the fault `{key}` is not supported: {_NOT_YET}", f"supported: {', '.join(ACTIONS)}"
        case ("timeline", "until"):
            return f"`until` is not supported: {_NOT_YET}", "for: 20s undoes a fault after a time"
        case ("timeline", "where"):
            return "`where` belongs into the fault", "such as signal: {where: {role: decode}, send: STOP}"
        case (key,) if key in _TOP_KEYS:
            return f"`{key}` is not supported: {_NOT_YET}", ""
    return None


def unsupported_value(where: tuple[str, ...], node: Node) -> tuple[str, str] | None:
    """Message (after the key's name) and hint when a value is a form for later."""
    match where, node:
        case ("load", "prompt_tokens"), Mapping() | Scalar(value=str()):
            return f"must be a number of tokens (no distribution or trace: {_NOT_YET})", ""
    return None
