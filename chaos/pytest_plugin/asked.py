"""What a test asks to be survived: by its marker, by its own call, and by whoever runs the suite."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaos.launch.run import Launch
from chaos.launch.targets import LAB_PREFIX
from chaos.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pytest

TARGET_VARIABLE = "PDCHAOS_TARGET"


@dataclass(frozen=True, slots=True)
class Asked:
    """A run as one side wishes it; what is empty is left to the other."""

    scenario: str = ""
    target: str = ""
    set_: tuple[tuple[str, Any], ...] = ()
    with_: tuple[tuple[str, Any], ...] = ()

    def before(self, other: Asked) -> Asked:
        """Both together: what this one says goes first."""
        return Asked(
            self.scenario or other.scenario,
            self.target or other.target,
            tuple({**dict(other.set_), **dict(self.set_)}.items()),
            tuple({**dict(other.with_), **dict(self.with_)}.items()),
        )


def order(item: pytest.Item, marker: str, args: Sequence[Any], given: Mapping[str, Any]) -> Launch:
    """The run that a test asks for. Raises `UsageError` for what it does not say, or says twice."""
    config = item.config
    here = config.invocation_params.dir
    suite = config.inipath.parent if config.inipath else here  # pytest's rootdir is a guess where there is no ini-file
    asked = _words("wedge_run", args, given).before(_of_marker(item, marker))
    asked = replace(asked, scenario=_anchored(asked.scenario, suite, _is_file(asked.scenario)))
    own = asked.target or config.getini("pdchaos_target")
    own = _anchored(own, suite, not own.startswith(LAB_PREFIX))
    said = config.getoption("--pdchaos-target") or os.environ.get(TARGET_VARIABLE, "")
    said = _anchored(said, here, not said.startswith(LAB_PREFIX))
    if not asked.scenario:
        raise UsageError("the test names no scenario", hint=f'for example @pytest.mark.{marker}("abort-cascade")')
    if not (said or own):
        raise UsageError(
            "the test names no target",
            hint="target=... in its marker, pdchaos_target in the ini-file, or --pdchaos-target=TARGET",
        )
    # Options of the lab that a test names mean nothing to the file that is to take the lab's place.
    options = asked.set_ if not said or said.startswith(LAB_PREFIX) else ()
    reports = config.getoption("--pdchaos-reports")
    return Launch(
        scenario=asked.scenario,
        target=said or own,
        overrides=tuple(f"{key}={_text(value)}" for key, value in asked.with_),
        lab_options=tuple(f"{key}={_text(value)}" for key, value in options),
        reports=here / reports if reports else suite / config.getini("pdchaos_reports"),
        plain=True,
        aside=True,
    )


def _of_marker(item: pytest.Item, name: str) -> Asked:
    if sum(mark.name == name for mark in item.own_markers) > 1:
        raise UsageError(
            f"the test has the marker {name} twice", hint="one test is one run: pytest.mark.parametrize makes more"
        )
    mark = item.get_closest_marker(name)
    return Asked() if mark is None else _words(f"marker {name}", mark.args, mark.kwargs)


def _words(where: str, args: Sequence[Any], given: Mapping[str, Any]) -> Asked:
    try:
        return _asked(*args, **given)
    except (TypeError, ValueError) as error:
        why = str(error).removeprefix("_asked() ")
        raise UsageError(
            f"{where}: {why}", hint="(scenario, target=..., set_={...}, with_={...}, allow=[...])"
        ) from None


def _asked(
    scenario: str | os.PathLike[str] | None = None,
    *,
    target: str | os.PathLike[str] | None = None,
    set_: Mapping[str, Any] | None = None,
    with_: Mapping[str, Any] | None = None,
    allow: Sequence[str] | None = None,
) -> Asked:
    allowed = {} if allow is None else {"expect.allow": list(allow)}
    return Asked(
        os.fspath(scenario or ""),
        os.fspath(target or ""),
        tuple(dict(set_ or {}).items()),
        tuple({**dict(with_ or {}), **allowed}.items()),
    )


def _is_file(scenario: str) -> bool:
    return "/" in scenario or scenario.endswith((".yaml", ".yml"))


def _anchored(path: str, folder: Path, is_file: bool) -> str:
    return str(folder / Path(path).expanduser()) if path and is_file else path


def _text(value: Any) -> str:
    """As it is typed on a command line."""
    return value if isinstance(value, str) else json.dumps(value)
