"""Where the transcribed incidents lie, and how their observations are read and changed."""

from __future__ import annotations

from pathlib import Path

import yaml

from chaos.model.yamlpos import parse_yaml, plain

CASES = Path(__file__).parents[1] / "cases"
SECTIONS = ("logs", "scrapes", "gauges", "requests", "load", "actions", "health", "processes", "heartbeats")


def observations(folder: Path) -> dict:
    """What a folder's file says, as plain values."""
    path = folder / "observations.yaml"
    told = plain(parse_yaml(path.read_text(), str(path)))
    assert isinstance(told, dict)
    return told


def write(folder: Path, told: dict) -> None:
    """The changed file."""
    (folder / "observations.yaml").write_text(yaml.safe_dump(told))
