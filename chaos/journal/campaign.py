"""The folder of a campaign and its record: a line for its beginning, one for every run that failed, one for its end.

What the runs were is in their own journals; nothing is kept twice, so a campaign can be judged again from its folder.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from chaos.journal.folder import Folder, RunFolder, make_folder
from chaos.model.campaign import FORMAT, AnyEntry, Begun, Ended, Failed
from chaos.model.errors import HarnessError, UserError

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.model.campaign import Entry, PlannedRun

RECORD = "campaign.jsonl"


@dataclass(frozen=True, slots=True)
class Record:
    """What was planned, what could not begin, and how it ended (None: it was cut off)."""

    begun: Begun
    failed: tuple[Failed, ...]
    ended: Ended | None


@dataclass(frozen=True, slots=True)
class CampaignFolder(Folder):
    """`reports/<utc>-<scenario>-<id>/` of a campaign; its runs lie in `runs/<number>/`."""

    @classmethod
    def create(cls, reports: Path, *, utc: str, scenario: str, campaign_id: str) -> CampaignFolder:
        """Make a new folder, named as a run's. Raises `HarnessError` when it cannot be made."""
        root = reports / f"{utc}-{scenario}-{campaign_id}"
        return cls(root, make_folder(root, "runs"))

    @classmethod
    def find(cls, path: Path) -> CampaignFolder | None:
        """The folder of an earlier campaign, given itself or its record; None when it is none."""
        root = path.parent if path.name == RECORD else path
        return cls(root) if (root / RECORD).is_file() else None

    def run(self, planned: PlannedRun) -> RunFolder:
        """The folder of one of its runs, whether it is there or not."""
        return RunFolder(self.root / planned.folder)

    def note(self, entry: Entry) -> None:
        """Add a line to the record, on the disk when this returns; raises `HarnessError` when the disk refuses."""
        path = self.root / RECORD
        try:
            with path.open("ab") as file:
                file.write(msgspec.json.encode(entry, order="deterministic") + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise HarnessError(f"{path}: cannot be written: {error.strerror}") from None

    def read(self) -> Record:
        """The record; a torn line is as if it had not been written. Raises `UserError` when it is none."""
        path = self.root / RECORD
        decoder = msgspec.json.Decoder(AnyEntry)
        entries: list[AnyEntry] = []
        for line in path.read_bytes().splitlines():
            try:
                entries.append(decoder.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
        if not entries or not isinstance(entries[0], Begun):
            raise UserError(f"{path}: not the record of a campaign", hint="its first line must be campaign.begun")
        begun = entries[0]
        if begun.format != FORMAT:
            raise UserError(f"{path}: format {begun.format}, this pdchaos reads format {FORMAT}")
        failed = tuple(entry for entry in entries if isinstance(entry, Failed))
        return Record(begun, failed, next((entry for entry in entries if isinstance(entry, Ended)), None))

    def discard(self) -> None:
        """Remove the folder of a campaign of which no run began."""
        if not any((self.root / "runs").glob("*/journal.jsonl")):
            self.remove()
