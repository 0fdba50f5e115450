"""One snapshot on the disk: bounded, without secrets, with an index that says what is there and what is not."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from chaos.model.errors import HarnessError

if TYPE_CHECKING:
    from chaos.engine.forensics.redact import Redactor
    from chaos.journal import RunFolder

FORMAT = 1
INDEX = "index.json"
MOST_BYTES = 24 << 20
MOST_FILE_BYTES = 4 << 20


class Entry(msgspec.Struct, omit_defaults=True):
    """One file of a snapshot."""

    name: str
    what: str
    node: str = ""
    size: int = 0
    cut: bool = False


class Missing(msgspec.Struct, omit_defaults=True):
    """What could not be saved, and why."""

    what: str
    why: str
    node: str = ""

    def __str__(self) -> str:
        return f"{self.node}: {self.what}: {self.why}" if self.node else f"{self.what}: {self.why}"


class Index(msgspec.Struct):
    """`index.json`."""

    format: int
    number: int
    reason: str
    detail: str
    monotonic_ns: int
    took_s: float
    files: list[Entry]
    missing: list[Missing]


@dataclass(slots=True)
class Snapshot:
    """A snapshot while it is being taken. Writing never raises: what does not fit is listed as missing."""

    run: RunFolder
    number: int
    reason: str
    redactor: Redactor
    until: float  # on the monotonic clock, in seconds: when its time is up
    files: list[Entry] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Relative to the run folder."""
        return f"forensics/{self.number}-{self.reason}"

    def left_s(self) -> float:
        """How much of its time is left."""
        return self.until - time.monotonic()

    def over(self) -> bool:
        """Whether its time is up."""
        return self.left_s() < 0

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return sum(entry.size for entry in self.files)

    def save(self, name: str, what: str, data: str | bytes, *, node: str = "") -> None:
        """Write one file, redacted as text."""
        text = data if isinstance(data, str) else data.decode(errors="replace")
        raw = self.redactor.text(text).encode()
        # The index lists a bounded number of files, and without it nobody knows what is missing.
        room = MOST_BYTES if name == INDEX else min(MOST_FILE_BYTES, MOST_BYTES - self.size)
        if room <= 0:
            self.lacks(what, f"the snapshot is full ({MOST_BYTES >> 20} MiB)", node=node)
            return
        try:
            (self.run.root / self.name).mkdir(parents=True, exist_ok=True)
            self.run.write(f"{self.name}/{name}", raw[:room])
        except (HarnessError, OSError) as error:
            self.lacks(what, str(error), node=node)
            return
        self.files.append(Entry(name=name, what=what, node=node, size=min(len(raw), room), cut=len(raw) > room))

    def lacks(self, what: str, why: str, *, node: str = "") -> None:
        """Note that something could not be saved."""
        missing = Missing(what=what, why=why, node=node)
        if missing not in self.missing:
            self.missing.append(missing)

    def close(self, *, detail: str, began_ns: int, took_s: float) -> None:
        """Write the index."""
        index = Index(
            format=FORMAT,
            number=self.number,
            reason=self.reason,
            detail=detail,
            monotonic_ns=began_ns,
            took_s=round(took_s, 3),
            files=list(self.files),
            missing=list(self.missing),
        )
        self.save(INDEX, "what is here", msgspec.json.format(msgspec.json.encode(index), indent=2))
