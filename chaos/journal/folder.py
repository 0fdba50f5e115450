"""The folder of one run or of a campaign: its names, and writes that are whole or not there."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.model.errors import HarnessError, UsageError, UserError

if TYPE_CHECKING:
    from pathlib import Path


_WRONG_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG)


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder under `reports/` and what lies in it."""

    root: Path
    above: tuple[Path, ...] = ()  # folders that had to be made for it, the innermost first

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

    def remove(self) -> None:
        """Remove it with all that is in it, and what was made above it; that stays where others use it by now."""
        shutil.rmtree(self.root, ignore_errors=True)
        for path in self.above:
            with suppress(OSError):
                path.rmdir()


def make_folder(root: Path, *inside: str) -> tuple[Path, ...]:
    """Make a new folder with folders inside; returns the folders above it that were not there, the innermost first.

    Raises `UsageError` where none can be made at that place, `HarnessError` when the disk refuses.
    """
    above = tuple(path for path in root.parents if not os.path.lexists(path))
    try:
        root.mkdir(parents=True)
        for name in inside:
            (root / name).mkdir()
    except OSError as error:
        hint = "choose another place with --reports"
        no_folder = next((path for path in root.parents if os.path.lexists(path) and not path.is_dir()), None)
        if no_folder is not None:
            raise UsageError(f"{no_folder} is no folder, so {root} cannot be made in it", hint=hint) from None
        kind = UsageError if error.errno in _WRONG_PLACE else HarnessError
        raise kind(f"{root}: cannot make the folder: {error.strerror}", hint=hint) from None
    return above


@dataclass(frozen=True, slots=True)
class RunFolder(Folder):
    """`reports/<utc>-<scenario>-<id>/`, or `runs/<number>/` of a campaign."""

    @classmethod
    def create(cls, reports: Path, *, utc: str, scenario: str, run_id: str) -> RunFolder:
        """Make a new folder; `utc` is like `20261129T191402Z`. As `make_folder`."""
        return cls.make(reports / f"{utc}-{scenario}-{run_id}")

    @classmethod
    def make(cls, root: Path) -> RunFolder:
        """Make a new folder at a given place. As `make_folder`."""
        return cls(root, make_folder(root, "packs", "logs", "forensics"))

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

    def discard(self) -> None:
        """Remove the folder of a run that never began; one with a journal stays."""
        if not self.journal.exists():
            self.remove()

    def discard_empty(self) -> None:
        """Remove it where it holds no file: nothing that tells anybody anything."""
        if not any(path.is_file() for path in self.root.rglob("*")):
            self.remove()
