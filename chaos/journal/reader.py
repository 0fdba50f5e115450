"""Reads a journal back, forgiving what a crash does to a file and refusing what it does not understand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from chaos.model import events as ev
from chaos.model.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Journal:
    """The readable events of a journal in file order; `damaged` counts lines that could not be read."""

    events: tuple[ev.AnyEvent, ...]
    damaged: int

    @property
    def started(self) -> ev.RunStarted:
        """The first event."""
        first = self.events[0]
        assert isinstance(first, ev.RunStarted)  # noqa: S101 - read_journal made sure
        return first


class _Head(msgspec.Struct):
    type: str
    format: int = 0


def read_journal(path: Path) -> Journal:
    """Read `path`.

    A torn or garbled line is skipped and counted: its missing `seq` is the judge's business. A file that is no
    journal, or of a newer format, raises `UserError`.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: no journal here", hint="give a run folder or its journal.jsonl") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    lines = [line for line in data.split(b"\n") if line]
    _check_head(path, lines)
    decoder = msgspec.json.Decoder(ev.AnyEvent)
    events: list[ev.AnyEvent] = []
    damaged = 0
    for line in lines:
        try:
            events.append(decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            damaged += 1
    if not events or not isinstance(events[0], ev.RunStarted):
        raise UserError(f"{path}: the first event cannot be read", hint="the file was damaged; nothing can be judged")
    return Journal(tuple(events), damaged)


def _check_head(path: Path, lines: list[bytes]) -> None:
    try:
        head = msgspec.json.decode(lines[0], type=_Head)
    except (IndexError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        head = _Head(type="")
    if head.type != "run.started":
        raise UserError(f"{path}: not a pdchaos journal", hint="its first line must be a run.started event")
    if head.format != ev.FORMAT:
        raise UserError(
            f"{path}: journal format {head.format}, this pdchaos reads format {ev.FORMAT}",
            hint="judge it with the pdchaos version that wrote it",
        )
