"""`--set` options of a lab, read from the fields of its settings dataclass.

A field's default gives its type; its metadata say `about`, and `least` and `most` (numbers) or `choices` (words).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from chaos.lab.kinds import OptionInfo, suggest
from chaos.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_Settings = TypeVar("_Settings")


def number(default: float, about: str, *, least: float = 0, most: float = 1_000_000) -> Any:
    """A field that takes whole numbers, or any when its default is a float."""
    return dataclasses.field(default=default, metadata={"about": about, "least": least, "most": most})


def word(default: str, about: str, choices: tuple[str, ...]) -> Any:
    """A field that takes one of some words."""
    return dataclasses.field(
        default=default, metadata={"about": f"{about}: {' or '.join(choices)}", "choices": choices}
    )


def list_options(settings: type[Any]) -> tuple[OptionInfo, ...]:
    """The options as listed."""
    return tuple(
        OptionInfo(option.name, str(option.default), option.metadata["about"])
        for option in dataclasses.fields(settings)
    )


def read_options(lab: str, settings: type[_Settings], options: Mapping[str, str]) -> _Settings:
    """Settings with the given options; UsageError names the nearest option, or what its value may be."""
    known = {option.name: option for option in dataclasses.fields(settings)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in options.items():
        if key not in known:
            raise UsageError(f"lab {lab} has no option {key!r}", hint=suggest(key, list(known)))
        values[key] = _value(known[key], value)
    return settings(**values)


def _value(option: dataclasses.Field[Any], text: str) -> int | float | str:
    if isinstance(option.default, str):
        return _word(option, text)
    kind = int if isinstance(option.default, int) else float
    least, most = option.metadata["least"], option.metadata["most"]
    try:
        value: int | float = kind(text)
    except ValueError:
        word = "a whole number" if kind is int else "a number"
        raise UsageError(f"option {option.name}={text!r} is not {word}", hint=str(option.metadata["about"])) from None
    if not least <= value <= most:
        raise UsageError(f"option {option.name}={text} is out of range", hint=f"from {least:g} to {most:g}")
    return value


def _word(option: dataclasses.Field[Any], text: str) -> str:
    if not text:
        raise UsageError(f"option {option.name} must not be empty")
    choices = option.metadata.get("choices")
    if choices and text not in choices:
        raise UsageError(f"option {option.name} cannot be {text!r}", hint=suggest(text, list(choices)))
    return text
