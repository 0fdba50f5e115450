"""Units in values: `25s`, `20/s`, `1mbit`, `10%`, `>= 20`. A bare number is refused: nobody knows its unit later.

The types here check a value and say what is wrong in our own words; the same pattern goes into the JSON Schema.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError, core_schema

from chaos.model.events import Bound
from chaos.model.yamltext import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue

FROM_FILE = "from-file"
"""Validation context of the loader: there a bare number is no duration. In Python a float is seconds."""

_BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
# [0-9], not \d: that also takes the digits of other scripts. Bounded, so that no value overflows.
DURATION_PATTERN = r"^([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|min|m|h)$"
RATE_PATTERN = r"^(?!0+(?:\.0+)?/)([0-9]{1,9}(?:\.[0-9]{1,9})?)/(s|m|h)$"
BANDWIDTH_PATTERN = r"^([0-9]{1,6}(?:\.[0-9]{1,6})?)(kbit|mbit|gbit)$"
PERCENT_PATTERN = r"^([1-9][0-9]?(?:\.[0-9]{1,2})?)%$"
COMPARISON_PATTERN = r"^ *(>=|<=|==|>|<) *([0-9]{1,15}(?:\.[0-9]{1,9})?) *$"


def wrong(message: str, hint: str = "") -> PydanticCustomError:
    """A refusal in our own words; the loader shows `hint` in parentheses."""
    return PydanticCustomError("pdchaos", "{message}", {"message": message, "hint": hint})


def shown(value: object) -> str:
    """A value as a message repeats it: on one line, cut when long."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return quoted(value) if isinstance(value, str) else str(value).lower()


def fullmatch(pattern: str, value: object) -> re.Match[str] | None:
    """Match text against an anchored pattern; `$` alone would let a trailing newline pass."""
    return re.fullmatch(pattern.removeprefix("^").removesuffix("$"), value) if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class Matching:
    """Text that matches a pattern: an annotation for pydantic, `Annotated[str, Matching(...)]`."""

    pattern: str
    what: str  # "must be <what>"
    hint: str = ""
    private: bool = False  # what is there instead is not shown

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), "pattern": self.pattern}

    def check(self, value: str) -> str:
        """The value itself; an error when it does not match."""
        if fullmatch(self.pattern, value) is None:
            raise wrong(f"must be {self.what}" + ("" if self.private else f", not {quoted(value)}"), self.hint)
        return value


_A_DURATION = "a duration such as 25s, 300ms or 2m"
_A_RATE = "a rate such as 20/s"
_A_BANDWIDTH = "a rate such as 1mbit (per second: kbit, mbit or gbit)"
_A_PERCENTAGE = "a percentage from 1% to 99.99%"


def parse_duration(value: object) -> float:
    """Seconds of `25s`; ValueError says what is wrong. A float is taken as seconds."""
    if isinstance(value, float):
        return value
    match = fullmatch(DURATION_PATTERN, value)
    if match is None:
        raise _no_unit(value, _A_DURATION, "s")
    return float(match[1]) * _SECONDS[match[2]]


def parse_rate(value: object) -> float:
    """Events per second of `20/s`; ValueError says what is wrong. A float is taken as events per second."""
    if isinstance(value, float):
        return value
    match = fullmatch(RATE_PATTERN, value)
    if match is None:
        raise _no_unit(value, _A_RATE, "/s")
    return float(match[1]) / _SECONDS[match[2]]


def parse_bandwidth(value: object) -> float:
    """Bits per second of `1mbit`; ValueError says what is wrong. A float is taken as bits per second."""
    if isinstance(value, float):
        return value
    match = fullmatch(BANDWIDTH_PATTERN, value)
    if match is None:
        raise _no_unit(value, _A_BANDWIDTH, "mbit")
    return float(match[1]) * _BITS[match[2]]


def parse_percent(value: object) -> float:
    """The number in `10%`; ValueError says what is wrong. A float is taken as that number."""
    if isinstance(value, float):
        return value
    match = fullmatch(PERCENT_PATTERN, value)
    if match is None:
        raise _no_unit(value, _A_PERCENTAGE, "%")
    return float(match[1])


def told_bandwidth(bit_per_s: float) -> str:
    """Bits per second for people: `1 Mbit/s`."""
    for unit, size in (("G", 1e9), ("M", 1e6)):
        if bit_per_s >= size:
            return f"{bit_per_s / size:.4g} {unit}bit/s"
    return f"{bit_per_s / 1e3:.4g} kbit/s"


def format_bandwidth(bit_per_s: float) -> str:
    """Bits per second as a file has them."""
    for unit in ("gbit", "mbit"):
        if bit_per_s >= _BITS[unit] and bit_per_s % (_BITS[unit] / 1e6) == 0:
            return f"{_decimal(bit_per_s / _BITS[unit])}{unit}"
    return f"{_decimal(bit_per_s / 1e3)}kbit"


def format_percent(percent: float) -> str:
    """A percentage as a file has it."""
    return f"{_decimal(percent)}%"


def format_duration(seconds: float) -> str:
    """Seconds as a file has them: what was loaded can be written and loaded again."""
    return f"{_decimal(seconds)}s"


def format_rate(per_second: float) -> str:
    """A rate as a file has it."""
    return f"{_decimal(per_second)}/s"


def _decimal(value: float) -> str:
    return f"{value:.9f}".rstrip("0").rstrip(".")


def parse_comparison(value: object) -> tuple[str, float]:
    """Operator and number of `>= 20`; ValueError says what is wrong."""
    match = fullmatch(COMPARISON_PATTERN, value)
    if match is None:
        hint = f'write ">= {value}"' if _is_number(value) else ""
        raise wrong(f'must be a comparison such as ">= 20", not {shown(value)}', hint)
    return match[1], float(match[2])


def bounds(conditions: Mapping[str, str]) -> tuple[Bound, ...]:
    """The conditions of a `when` or `aim` as bounds, in file order."""
    parsed = ((name, *parse_comparison(text)) for name, text in conditions.items())
    return tuple(Bound(name=name, op=op, value=value) for name, op, value in parsed)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _no_unit(value: object, what: str, unit: str) -> PydanticCustomError:
    bare = _is_number(value) or fullmatch(r"^[0-9]+(\.[0-9]+)?$", value) is not None
    number = (value.lstrip("0") or "0") if isinstance(value, str) else value
    return wrong(f"must be {what}, not {shown(value)}", f"write {number}{unit}" if bare else "")


def read_duration(value: object, info: ValidationInfo) -> float:
    """As `parse_duration`, except that a file cannot give a float."""
    if info.context == FROM_FILE and isinstance(value, float):
        raise _no_unit(value, _A_DURATION, "s")
    return parse_duration(value)


def read_rate(value: object, info: ValidationInfo) -> float:
    """As `parse_rate`, except that a file cannot give a float."""
    if info.context == FROM_FILE and isinstance(value, float):
        raise _no_unit(value, _A_RATE, "/s")
    return parse_rate(value)


def read_bandwidth(value: object, info: ValidationInfo) -> float:
    """As `parse_bandwidth`, except that a file cannot give a float."""
    if info.context == FROM_FILE and isinstance(value, float):
        raise _no_unit(value, _A_BANDWIDTH, "mbit")
    return parse_bandwidth(value)


def read_percent(value: object, info: ValidationInfo) -> float:
    """As `parse_percent`, except that a file cannot give a float."""
    if info.context == FROM_FILE and isinstance(value, float):
        raise _no_unit(value, _A_PERCENTAGE, "%")
    return parse_percent(value)


def _comparison(value: object) -> str:
    op, number = parse_comparison(value)
    return f"{op} {_decimal(number)}"


Duration = Annotated[
    float,
    BeforeValidator(read_duration),
    PlainSerializer(format_duration, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "examples": ["25s"]}),
]
"""Seconds, written with a unit."""

Rate = Annotated[
    float,
    BeforeValidator(read_rate),
    PlainSerializer(format_rate, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": RATE_PATTERN, "examples": ["20/s"]}),
]
"""Events per second, written with a unit."""

Bandwidth = Annotated[
    float,
    BeforeValidator(read_bandwidth),
    PlainSerializer(format_bandwidth, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": BANDWIDTH_PATTERN, "examples": ["1mbit"]}),
]
"""Bits per second, written with a unit."""

Percent = Annotated[
    float,
    BeforeValidator(read_percent),
    PlainSerializer(format_percent, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": PERCENT_PATTERN, "examples": ["10%"]}),
]
"""Per cent, written with their sign."""

Comparison = Annotated[
    str,
    BeforeValidator(_comparison),
    WithJsonSchema({"type": "string", "pattern": COMPARISON_PATTERN, "examples": [">= 20"]}),
]
"""A comparison with a number, in the form `>= 20`."""
