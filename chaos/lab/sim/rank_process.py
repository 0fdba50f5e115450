"""The parent's end of its rank processes: every turn of a scheduler is taken by all of its tensor-parallel ranks."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.lab.sim.rank_child import ABORT, DIVERGE, SEGFAULT, TURN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_started: list[subprocess.Popen[bytes]] = []
_CHILD = str(Path(__file__).with_name("rank_child.py"))


class RankProcess:
    """One rank's process. It ends with its parent; when it ends before, `on_end` is called once."""

    def __init__(self, title: str, *, ordinal: int = 0) -> None:
        self.title = title
        self.ordinal = ordinal
        self.on_end: Callable[[RankProcess], None] = lambda _: None
        self._ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [title, "-S", _CHILD, str(theirs.fileno()), title],
                executable=sys.executable,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                # its argv[0] is its title, so Python could not find its own library by it
                env={**os.environ, "PYTHONHOME": sys.base_prefix},
            )
        _started.append(self.process)
        self._writer: asyncio.StreamWriter | None = None
        self._watching: asyncio.Task[None] | None = None
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()

    async def connect(self) -> None:
        """Begin to listen to it."""
        reader, self._writer = await asyncio.open_connection(sock=self._ours)
        self._watching = asyncio.create_task(self._watch(reader))

    async def turn(self, order: bytes = TURN) -> None:
        """Have it take a turn; never returns when it is stopped, stuck or gone."""
        if self._writer is not None:
            self._writer.write(order)
            await self._answers.get()

    async def _watch(self, reader: asyncio.StreamReader) -> None:
        try:
            while answer := await reader.read(1):
                self._answers.put_nowait(answer)
        except ConnectionError:
            pass
        self.on_end(self)


def end_all() -> None:
    """End every rank process of this node; they would end by themselves, a little after it."""
    for process in _started:
        process.kill()
        process.wait()


class RankGroup:
    """The tensor-parallel ranks of one scheduler; without any, a turn costs nothing (tests of parts)."""

    def __init__(self, processes: Sequence[RankProcess] = ()) -> None:
        self.processes = tuple(processes)
        self._one_at_a_time = asyncio.Lock()
        self._orders: dict[int, bytes] = {}

    async def connect(self) -> None:
        """Begin to listen to all of them."""
        for process in self.processes:
            await process.connect()

    async def turn(self) -> None:
        """One turn on every rank: over when the last has taken it, as in any collective operation."""
        async with self._one_at_a_time:
            if self.processes:
                orders = [self._orders.pop(at, TURN) for at in range(len(self.processes))]
                turns = zip(self.processes, orders, strict=True)
                await asyncio.gather(*(process.turn(order) for process, order in turns))

    def diverge(self) -> None:
        """The last rank takes another turn than the others next time: from then on all wait for each other."""
        self._orders[len(self.processes) - 1] = DIVERGE

    def abort(self) -> None:
        """The first rank's process aborts at its next turn."""
        self._orders[0] = ABORT

    def segfault(self) -> None:
        """The first rank's process hits a segmentation fault at its next turn."""
        self._orders[0] = SEGFAULT
