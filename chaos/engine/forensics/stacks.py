"""Thread names and stacks of a node's Python processes, read on its host by py-spy without stopping them.

py-spy reads the other process's memory while that goes on running, so a snapshot costs the target nothing but memory
bandwidth (`chaos/outpost/stacks.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from chaos.engine.hosts import HostLost, HostTrouble

if TYPE_CHECKING:
    from chaos.engine.hosts import Host
    from chaos.engine.probes.locate import Located

INSTALL = "py-spy is not installed (pip install 'pdchaos[forensics]')"
MARGIN_S = 10.0
"""A look that has begun is let end."""
INSTALL_THERE = "py-spy is not installed on its host"


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


class Stacks(msgspec.Struct):
    """The threads of a node's processes, by pid, and why those of others could not be read."""

    alive: int  # how many processes there are; some may run no Python
    threads: dict[str, list[Thread]]
    failed: dict[str, str]


class NoStacks(Exception):
    """No stack of the node can be read; the text says why."""


async def read(host: Host, root: Located, within_s: float) -> Stacks:
    """The stacks of a process and of all that came of it. Raises NoStacks."""
    if within_s <= 0:
        raise NoStacks("its time was up")
    try:
        told = await host.call(
            "stacks", timeout_s=within_s + MARGIN_S, limit_s=within_s, pid=root.pid, start_ticks=root.start_ticks
        )
        read = msgspec.convert(told, Stacks)
    except HostTrouble as why:
        missing = INSTALL_THERE if host.remote else INSTALL
        raise NoStacks(missing if why.kind == "no-py-spy" else why.text) from None
    except HostLost:
        raise NoStacks("its host did not answer in time") from None
    except msgspec.ValidationError as error:
        raise NoStacks(f"py-spy said something else than expected: {error}") from None
    if not read.alive:
        raise NoStacks("its process is gone")
    return read


def text(threads: list[Thread]) -> str:
    """Stacks for people, innermost call first."""
    lines = []
    for thread in threads:
        state = "holds the GIL" if thread.owns_gil else "active" if thread.active else "idle"
        lines.append(f"{thread.label} (tid {thread.os_thread_id or '?'}, {state})")
        lines += [f"    {frame.name} ({frame.filename}:{frame.line})" for frame in thread.frames]
        lines.append("")
    return "\n".join(lines)
