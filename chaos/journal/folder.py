"""The folder of one run: its names, and writes that are whole or not there."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.model.errors import HarnessError, UserError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunFolder:
    """`reports/<utc>-<scenario>-<id>/` and what lies in it."""

    root: Path

    @classmethod
    def create(cls, reports: Path, *, utc: str, scenario: str, run_id: str) -> RunFolder:
        """Make a new folder; `utc` is like `20261129T191402Z`. Raises `HarnessError` when it cannot be made."""
        root = reports / f"{utc}-{scenario}-{run_id}"
        try:
            for folder in (root, root / "packs", root / "logs", root / "forensics"):
                folder.mkdir(parents=True, exist_ok=folder is not root)
        except OSError as error:
            raise HarnessError(
                f"{root}: cannot make the run folder: {error.strerror}", hint="choose another place with --reports"
            ) from None
        return cls(root)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The folder of an earlier run, given itself or its journal. Raises `UserError` when there is none."""
        root = path.parent if path.name == "journal.jsonl" else path
        if not (root / "journal.jsonl").is_file():
            raise UserError(f"{path}: no run folder", hint="a run folder holds a journal.jsonl; see `ls reports/`")
        return cls(root)

    @property
    def journal(self) -> Path:
        """The append-only record."""
        return self.root / "journal.jsonl"

    @property
    def logs(self) -> Path:
        """Our own processes' and a lab's logs."""
        return self.root / "logs"

    @property
    def report(self) -> Path:
        """The page to open."""
        return self.root / "report.html"

    def write(self, name: str, data: str | bytes) -> Path:
        """Write one file atomically; raises `HarnessError` when the disk refuses."""
        path = self.root / name
        temporary = path.with_name(f".{path.name}.part")
        try:
            temporary.write_bytes(data.encode() if isinstance(data, str) else data)
            os.replace(temporary, path)  # noqa: PTH105 - Path.replace says the same with a worse error
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise HarnessError(f"{path}: cannot be written: {error.strerror}") from None
        return path

    def discard(self) -> None:
        """Remove the folder of a run that never began; one with a journal stays."""
        if not self.journal.exists():
            shutil.rmtree(self.root, ignore_errors=True)
