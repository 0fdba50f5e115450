"""Thread names and stacks of a Python process, read from outside by py-spy without stopping it.

py-spy reads the other process's memory while that goes on running (`--nonblocking`), so a snapshot costs the target
nothing but memory bandwidth; the price is that a stack may change under its eyes, and then it is read again.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

TIMEOUT_S = 10.0
"""A process with hundreds of megabytes of libraries takes a second; a starved machine several."""
ATTEMPTS = 3
MOST_FRAMES = 200
INSTALL = "py-spy is not installed (pip install 'pdchaos[forensics]')"
_NUMBERED = re.compile(r"Thread-\d+")
_PERMISSION = re.compile(r"permission denied|operation not permitted", re.IGNORECASE)
_NOT_PYTHON = "failed to find python version"


class Frame(msgspec.Struct):
    """One call."""

    name: str
    filename: str = ""
    line: int = 0


class Thread(msgspec.Struct):
    """One thread of the interpreter."""

    thread_name: str | None = None
    os_thread_id: int | None = None
    active: bool = False
    owns_gil: bool = False
    frames: list[Frame] = []

    @property
    def label(self) -> str:
        """The thread's name, with the function it runs where the name does not tell (Python before 3.10 does not)."""
        name = self.thread_name or f"thread {self.os_thread_id or '?'}"
        called = next((f.name for f in reversed(self.frames) if not f.filename.endswith("/threading.py")), "")
        function = called.rpartition(".")[2]
        if not function or function in name or name == "MainThread":
            return name
        return f"{name} ({function})"


class NoStacks(Exception):
    """The process's stacks cannot be read; the text says why."""


class NotPython(NoStacks):
    """The process runs no Python interpreter: there is nothing that could be missing."""


@dataclass(frozen=True, slots=True)
class PySpy:
    """The tool, where it was found."""

    program: str

    @classmethod
    def find(cls) -> PySpy | None:
        """py-spy beside our interpreter, else on the path; None when there is none."""
        beside = Path(sys.executable).with_name("py-spy")
        program = str(beside) if beside.is_file() else shutil.which("py-spy")
        return cls(program) if program else None

    def threads(self, pid: int) -> list[Thread]:
        """Every thread of a process; raises NoStacks. Blocks for some 20 ms, at most for three times TIMEOUT_S."""
        said = ""
        for _ in range(ATTEMPTS):
            try:
                done = subprocess.run(
                    [self.program, "dump", "--json", "--nonblocking", "--pid", str(pid)],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=TIMEOUT_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise NoStacks(f"py-spy did not answer within {TIMEOUT_S:g} s") from None
            except OSError as error:
                raise NoStacks(f"py-spy cannot be run: {error.strerror}") from None
            if done.returncode == 0:
                return _threads(done.stdout)
            said = done.stderr.decode(errors="replace")
            if _PERMISSION.search(said):
                raise NoStacks("py-spy is not permitted to look at it")
            if _NOT_PYTHON in said.lower():
                raise NotPython("not a Python process")
        raise NoStacks(f"py-spy failed: {said.strip().splitlines()[0][:200] if said.strip() else 'it said nothing'}")


def text(threads: list[Thread]) -> str:
    """Stacks for people, innermost call first."""
    lines = []
    for thread in threads:
        state = "holds the GIL" if thread.owns_gil else "active" if thread.active else "idle"
        lines.append(f"{thread.label} (tid {thread.os_thread_id or '?'}, {state})")
        lines += [f"    {frame.name} ({frame.filename}:{frame.line})" for frame in thread.frames]
        lines.append("")
    return "\n".join(lines)


def _threads(out: bytes) -> list[Thread]:
    try:
        threads = msgspec.json.decode(out, type=list[Thread])
    except msgspec.MsgspecError as error:
        raise NoStacks(f"py-spy said something else than expected: {error}") from None
    for thread in threads:
        del thread.frames[MOST_FRAMES:]
    return sorted(threads, key=lambda thread: thread.os_thread_id or 0)
