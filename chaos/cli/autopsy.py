"""`pdchaos autopsy`: the judge on evidence that people have collected of an incident."""

from __future__ import annotations

import secrets
import shlex
from typing import TYPE_CHECKING

from chaos import library
from chaos.autopsy import FILE, import_folder
from chaos.cli.outputs import show
from chaos.journal import JournalWriter, RunFolder
from chaos.launch.outputs import conclude
from chaos.launch.telling import complain
from chaos.model.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.autopsy import Imported, LogRead


def autopsy(folder: Path, reports: Path, out: Path | None) -> int:
    """Import a folder, judge it, write and show the report; the exit code is that of `pdchaos judge`."""
    imported = import_folder(folder)
    for log in imported.logs:
        _say(log)
    made = _make(imported, reports, out)
    writer = JournalWriter(made.journal)
    for event in imported.events:
        writer.write(event)
    writer.close()
    if writer.failure is not None:
        complain(f"harness error: {made.journal}: {writer.failure.strerror}")
    made.write(FILE, imported.text)
    for name, pack in imported.packs.items():
        made.write(f"packs/{name}.yaml", pack.text)
    verdict = conclude(made, shlex.join(["pdchaos", "autopsy", str(folder)]))
    show(verdict, made)
    return int(verdict.exit_code)


def _make(imported: Imported, reports: Path, out: Path | None) -> RunFolder:
    if out is not None:
        if out.exists():
            raise UsageError(f"{out} exists already; nothing was written", hint="choose a folder that is not there yet")
        return RunFolder.make(out)
    utc = imported.utc.replace("-", "").replace(":", "")
    return RunFolder.create(reports, utc=utc, scenario=imported.told.name, run_id=secrets.token_hex(4))


def _say(log: LogRead) -> None:
    """What was read of a log, and what was not: nobody should have to guess whether a file was understood."""
    print(log.counted)  # noqa: T201
    if log.told:
        complain(log.told)


def begin_autopsy(folder: Path) -> None:
    """Write a commented observations file to start from."""
    path = folder / FILE
    if path.exists():
        raise UsageError(f"{path} exists already; nothing was written", hint="edit it, then: pdchaos autopsy DIR")
    text = library.read(library.folder("templates") / FILE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    print(f"wrote {path}")  # noqa: T201
    print(f"put logs and metrics beside it, edit it, then: pdchaos autopsy {shlex.quote(str(folder))}")  # noqa: T201
