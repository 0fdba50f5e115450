"""Which labs there are, and what can be asked of them: `lab:sim@BUILD` and others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.lab.embedded.kind import Embedded
from chaos.lab.kinds import suggest
from chaos.lab.real.dynamo.kind import DYNAMO
from chaos.lab.real.sglang.kind import SGLANG
from chaos.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chaos.lab.kinds import Installer, LabInfo, LabKind, LabSpec

KINDS: dict[str, LabKind] = {kind.name: kind for kind in (Embedded(), SGLANG, DYNAMO)}


def catalogue() -> list[LabInfo]:
    """Every lab there is."""
    return [kind.info() for kind in KINDS.values()]


def parse_lab(text: str, options: Mapping[str, str]) -> LabSpec:
    """A lab from `sim`, `sim@BUILD` and `--set` options; UsageError names the nearest thing that exists."""
    name, _, build = text.partition("@")
    return _kind(name).parse(build, options)


def find_installer(name: str) -> Installer:
    """Who installs a kind of lab; UsageError for a kind that needs no installation."""
    installer = _kind(name).installer
    if installer is None:
        others = [each.name for each in KINDS.values() if each.installer is not None]
        raise UsageError(f"lab {name} needs no installation", hint=f"to be installed: {', '.join(others)}")
    return installer


def _kind(name: str) -> LabKind:
    if name not in KINDS:
        raise UsageError(f"there is no lab {name!r}", hint=suggest(name, list(KINDS)))
    return KINDS[name]
