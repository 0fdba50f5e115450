"""Arms the guard process before anything is stopped: nothing stays stopped when pdchaos dies, not even by SIGKILL."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.engine.faults import guard_main

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.engine.faults.processes import Process

ARMED_S = 10.0
"""Starting Python takes 20 ms; a machine that starves needs longer."""


class NotArmed(Exception):
    """The guard did not start, so nothing may be stopped."""


class Guard:
    """A guard over some processes. It holds the other end of a pipe, so it notices our death at once."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def arm(cls, processes: Sequence[Process], ttl_s: float) -> Guard:
        """Start it; returns once it is ready. Raises NotArmed."""
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                str(Path(guard_main.__file__)),
                f"{ttl_s:.3f}",
                *(f"{one.pid}:{one.start_ticks}" for one in processes),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,  # a Ctrl-C, a closed terminal or a killed group does not reach it
            )
        except OSError as error:
            raise NotArmed(f"the guard process could not be started: {error.strerror}") from error
        guard = cls(process)
        assert process.stdout is not None  # noqa: S101 - for the type checker
        try:
            async with asyncio.timeout(ARMED_S):
                said = await process.stdout.readline()
        except BaseException as error:
            process.kill()
            await process.wait()
            if isinstance(error, TimeoutError):
                raise NotArmed(f"the guard process was not ready within {ARMED_S:g} s") from None
            raise
        if said != b"armed\n":
            await process.wait()
            raise NotArmed("the guard process ended at once")
        return guard

    async def disarm(self) -> None:
        """It is no longer needed."""
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        try:
            self._process.stdin.write(b"done\n")
            await self._process.stdin.drain()
        except OSError:
            pass  # its time was over, and it has ended
        await self._process.wait()
