"""`check`, `schema`, `scenarios`: files, and nothing but files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from chaos import library
from chaos.launch.telling import complain, tell
from chaos.model.errors import UsageError, UserError
from chaos.model.loading import TARGET_KEYS, parse_observations, parse_pack, parse_scenario, parse_target
from chaos.model.outcomes import ExitCode
from chaos.model.schema import KINDS, json_schema
from chaos.model.yamlpos import parse_yaml, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from chaos.model.known import Known
    from chaos.model.schema import Kind
    from chaos.model.target import Target

OBSERVATIONS_KEYS = {"watched", "deployment", "requests", "scrapes"}
PACK_KEYS = {"signatures", "metrics", "endpoints", "gauge_lag"}


def check_files(files: Sequence[Path]) -> int:
    """Check every file; 0 when all are fine, 2 when any is not."""
    failed = 0
    known = library.known()
    for path in _targets_first(files):
        try:
            kind, target = _check(path, known)
            known = known.on(target) if target is not None else known
        except UserError as error:
            failed += 1
            tell(error)
        else:
            print(f"{path}: {'' if kind == 'observations' else 'a '}valid {kind}")  # noqa: T201
    if failed and len(files) > 1:
        complain(f"{failed} of {len(files)} files are wrong")
    return int(ExitCode.USAGE if failed else ExitCode.AS_EXPECTED)


def _targets_first(files: Sequence[Path]) -> list[Path]:
    """Targets first: scenarios beside one are checked against what it can do."""

    def is_target(path: Path) -> bool:
        try:
            return _kind(plain(parse_yaml(library.read(path), str(path)))) == "target"
        except UserError:
            return False  # told of in its turn

    return sorted(files, key=lambda path: not is_target(path))


def _check(path: Path, known: Known) -> tuple[Kind, Target | None]:
    text = library.read(path)
    kind = _kind(plain(parse_yaml(text, str(path))))
    target = None
    match kind:
        case "target":
            target = parse_target(text, str(path), known=known)
        case "pack":
            parse_pack(text, str(path))
        case "observations":
            parse_observations(text, str(path), known=library.known())
        case "scenario":
            parse_scenario(text, str(path), known=known)
    return kind, target


def _kind(tree: object) -> Kind:
    """What a file means to be, by the keys that only one kind has."""
    keys = set(tree) if isinstance(tree, dict) else set()
    if keys & OBSERVATIONS_KEYS:
        return "observations"
    if keys & TARGET_KEYS:
        return "target"
    return "pack" if keys & PACK_KEYS else "scenario"


def show_schema(kind: str) -> None:
    """Print one JSON Schema."""
    known: Mapping[str, Kind] = {name: name for name in KINDS}
    if kind not in known:
        raise UsageError(f"there is no schema for {kind!r}", hint=f"one of: {', '.join(known)}")
    print(json.dumps(json_schema(known[kind]), indent=2))  # noqa: T201


def list_scenarios() -> None:
    """Print the library's scenarios."""
    table = Table("scenario", "about", box=None, pad_edge=False)
    for name in library.names("scenarios"):
        table.add_row(name, library.load_scenario(name).value.about)
    Console().print(table)
