"""What a scenario says of running it more than once, each time on a freshly started deployment.

`trials` repeats it, `sweep` does so for each of several doses of something. `cycles` are another thing: repetitions
within one deployment's life.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from chaos.model.section import Section
from chaos.model.units import Matching, fullmatch, shown, wrong

MOST_RUNS = 500
"""Of one campaign; at two minutes each that is a long night."""
MOST_DOSES = 50


class Trials(Section):
    """Runs on freshly started deployments, for each dose of a sweep. `until: wedged` stops at the first that broke."""

    count: int = Field(default=1, ge=1, le=MOST_RUNS)
    until: Literal["wedged"] | None = None


_DOSE_TEXT = r"^[\x21-\x7e](?:[\x20-\x7e]{0,98}[\x21-\x7e])?$"


def _dose(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise wrong(f"must be a number or text, not {shown(value)}")
    return Matching(_DOSE_TEXT, "a value of up to 100 printable characters").check(value)


DoseValue = Annotated[
    int | float | str,
    BeforeValidator(_dose),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "pattern": _DOSE_TEXT}]}),
]
DoseKey = Annotated[
    str,
    Matching(
        r"^[A-Za-z0-9_-]{1,100}(?:\.[A-Za-z0-9_-]{1,100}){1,10}$",
        "the place of a value as in --with, such as load.agents.sessions",
    ),
]
Sweep = Annotated[
    dict[DoseKey, Annotated[list[DoseValue], Field(min_length=1, max_length=MOST_DOSES)]], Field(min_length=1)
]
"""Values by their place in the scenario; several places change together, first value with first value."""


FEWEST_TRIALS = 4
"""With three runs of each arm even the clearest difference may be chance: one in twenty."""


def _percent(value: object) -> object:
    if isinstance(value, float) or fullmatch(_PERCENT_PATTERN, value) is None:
        raise wrong(f"must be a share such as 25%, not {shown(value)}", "10% is the least that can be told")
    return value


_PERCENT_PATTERN = r"^[1-9][0-9]{1,2}%$"
Percent = Annotated[str, BeforeValidator(_percent), WithJsonSchema({"type": "string", "pattern": _PERCENT_PATTERN})]


class Control(Section):
    """Trials of the same load without the fault, between the others: what is slower than these is degraded.

    `slower_by`: a median that is worse by less is no degradation, however certain the difference is.
    """

    count: int | None = Field(default=None, ge=FEWEST_TRIALS, le=MOST_RUNS)  # default: as many as trials
    slower_by: Percent = "25%"

    @property
    def factor(self) -> float:
        """By how much of itself a median must grow: 0.25 for `25%`."""
        return int(self.slower_by[:-1]) / 100


def _control(value: object) -> object:
    if isinstance(value, bool):
        return {} if value else None
    return value


ControlArm = Annotated[Control | None, BeforeValidator(_control, json_schema_input_type=bool | Control)]
"""`true` is a control arm with every default."""
