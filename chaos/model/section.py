"""What every section of our YAML files is made of: unknown keys refused, names, references to secrets, the version."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

from chaos.model.units import Matching, shown, wrong

Name = Annotated[
    str,
    Matching(r"^[a-z][a-z0-9_-]{0,62}$", "a name of lower-case letters, digits, - and _ (63 at most)"),
]
SecretRef = Annotated[
    str,
    Matching(
        r"^(?:env:[A-Za-z_][A-Za-z0-9_]*|file:[^\n]+|cmd:[^\n]+)$",
        "a reference env:NAME, file:PATH or cmd:COMMAND",
        "keys are never written here",
        private=True,
    ),
]


Api = Literal["chat", "completions", "generate"]
"""The languages in which requests are made."""


def _version(value: object) -> object:
    if value is True or value != 1:
        raise wrong(f"must be 1, not {shown(value)}", "this pdchaos reads version 1 files")
    return value


Version1 = Annotated[Literal[1], BeforeValidator(_version)]


class Section(BaseModel):
    """Base of every mapping in our YAML: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
