"""Arms a guard on a host before anything is broken there: it takes the fault back when we are gone, even by SIGKILL.

The guard is a process on that host, with a time-to-live and one end of a pipe (`chaos/outpost/guard.py`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from chaos.engine.hosts import HostLost, HostTrouble

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.engine.hosts import Host

ARMED_S = 20.0
"""Starting Python takes 50 ms; a machine that starves needs longer, and the host itself gives it ten seconds."""
UNDONE_S = 70.0
"""A handful of commands, each tried three times; the host itself gives them a minute."""

TTL_MARGIN_S = 15.0
STANDING_TTL_S = 3600.0
"""A fault without an end of its own outlives us by this much at most (the guard notices our death at once, too)."""


class NotArmed(Exception):
    """The guard did not start, so nothing may be broken."""


class Undone(msgspec.Struct, frozen=True):
    """One step that a guard took: what was `done`, whether that is `ok`, and what was `said` or measured."""

    done: str
    ok: bool
    said: str = ""


class Guard:
    """A guard of one fault on one host."""

    def __init__(self, host: Host, name: str) -> None:
        self._host = host
        self._name = name

    @classmethod
    async def arm(cls, host: Host, *, run: str, fault: str, ttl_s: float, undo: Sequence[dict[str, Any]]) -> Guard:
        """Start one; from then on `undo` (see `chaos/outpost/undo.py`) will be done. Raises NotArmed."""
        try:
            armed = await host.call("guard.arm", timeout_s=ARMED_S, run=run, fault=fault, ttl_s=ttl_s, undo=list(undo))
        except HostTrouble as why:
            raise NotArmed(why.text) from None
        except HostLost:
            raise NotArmed("nobody knows whether the guard is armed, for its host did not answer") from None
        return cls(host, str(armed["name"]))

    async def disarm(self) -> bool:
        """It is no longer needed; whether it was there up to now. Raises HostTrouble, HostLost."""
        return bool((await self._host.call("guard.disarm", timeout_s=UNDONE_S, name=self._name))["stood"])

    async def release(self) -> list[Undone] | None:
        """Have it undo the fault now, and say what it measured; None when it did so before. HostTrouble, HostLost."""
        told = await self._host.call("guard.release", timeout_s=UNDONE_S, name=self._name)
        return msgspec.convert(told["undone"], list[Undone] | None)


class Guards:
    """The guards of one fault, one on each of its hosts, for a fault that we take back ourselves while we can."""

    def __init__(self) -> None:
        self._armed: list[Guard] = []

    async def arm(
        self, undo: Sequence[tuple[Host, Sequence[dict[str, Any]]]], *, run: str, fault: str, ttl_s: float
    ) -> None:
        """Arm one for each host's steps; where one cannot be armed, none is. Raises NotArmed."""
        for host, steps in undo:
            try:
                self._armed.append(await Guard.arm(host, run=run, fault=fault, ttl_s=ttl_s, undo=steps))
            except NotArmed:
                await self.dismiss()
                raise

    async def dismiss(self) -> None:
        """They are no longer needed. One that cannot be told so finds nothing left to undo, and ends."""
        armed, self._armed = self._armed, []
        for guard in armed:
            with suppress(HostLost, HostTrouble):
                await guard.disarm()
