"""A finished run of the command, as its folder tells it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Ran:
    """Its exit code, what it said, and where its only report is."""

    code: int
    output: str
    reports: Path

    @property
    def folder(self) -> Path:
        (folder,) = [path for path in self.reports.iterdir() if path.is_dir()]
        return folder

    @property
    def verdict(self) -> dict:
        return json.loads((self.folder / "verdict.json").read_text())

    @property
    def events(self) -> list[dict]:
        return [json.loads(line) for line in (self.folder / "journal.jsonl").read_text().splitlines()]

    def of(self, kind: str) -> list[dict]:
        """The events of one kind."""
        return [event for event in self.events if event["type"] == kind]

    def complains_of_nothing(self) -> None:
        """It showed nobody its insides."""
        assert "Traceback" not in self.output
        assert "Warning" not in self.output
