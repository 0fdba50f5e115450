"""Which labs there are, and what can be asked of them: builds, options, `lab:sim@BUILD`."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chaos.lab.sim.builds import BUILDS, HEALTHY
from chaos.lab.sim.config import Settings
from chaos.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

SIM = "sim"


@dataclass(frozen=True, slots=True)
class LabSpec:
    """A lab as asked for on the command line."""

    kind: str
    build: str
    settings: Settings

    @property
    def title(self) -> str:
        """`lab:sim`: what a journal may say; the build is not in it."""
        return f"lab:{self.kind}"


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """A build as listed."""

    name: str
    about: str
    version: str
    upstream: str
    fixed_in: str


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """An option for `--set`."""

    name: str
    default: str
    about: str


@dataclass(frozen=True, slots=True)
class LabInfo:
    """A lab as listed by `pdchaos lab list`."""

    name: str
    kind: str
    about: str
    upstream: str
    builds: tuple[BuildInfo, ...]
    options: tuple[OptionInfo, ...]


def catalogue() -> list[LabInfo]:
    """Every lab there is."""
    return [
        LabInfo(
            name=SIM,
            kind="embedded",
            about="router, prefill and decode as processes on this machine that behave as SGLang PD does; no GPU",
            upstream="sglang 0.5.14 and 0.5.16, sglang-router 0.3.2",
            builds=tuple(
                BuildInfo(build.name, build.about, build.version, build.upstream, build.fixed_in)
                for build in BUILDS.values()
            ),
            options=tuple(
                OptionInfo(option.name, str(option.default), option.metadata["about"])
                for option in dataclasses.fields(Settings)
            ),
        )
    ]


def parse_lab(text: str, options: Mapping[str, str]) -> LabSpec:
    """A lab from `sim` or `sim@BUILD` and `--set` options; UsageError names the nearest thing that exists."""
    name, _, build = text.partition("@")
    build = build or HEALTHY
    if name != SIM:
        raise UsageError(f"there is no lab {name!r}", hint=_suggest(name, [SIM]))
    if build not in BUILDS:
        raise UsageError(f"lab {SIM} has no build {build!r}", hint=_suggest(build, list(BUILDS)))
    known = {option.name: option for option in dataclasses.fields(Settings)}
    values: dict[str, Any] = {}
    for key, value in options.items():
        if key not in known:
            raise UsageError(f"lab {SIM} has no option {key!r}", hint=_suggest(key, list(known)))
        values[key] = _option_value(known[key], value)
    return LabSpec(kind=SIM, build=build, settings=Settings(**values))


def _option_value(option: dataclasses.Field[Any], text: str) -> int | float | str:
    if isinstance(option.default, str):
        if not text:
            raise UsageError(f"option {option.name} must not be empty")
        return text
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


def _suggest(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
