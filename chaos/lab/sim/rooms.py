"""States of bootstrap rooms, with the engine's own rules (KVPoll, `update_status` in disaggregation/common/conn.py)."""

from __future__ import annotations

from enum import IntEnum

ABORTED_BY_REQUEST = "Aborted by AbortReq."
ABORTED_BY_DECODE = "Aborted by decode-side abort notification."  # NIXL prefill from 0.5.16 on


class KVPoll(IntEnum):
    """What polling a room gives."""

    FAILED = 0
    BOOTSTRAPPING = 1
    WAITING_FOR_INPUT = 2
    TRANSFERRING = 3
    SUCCESS = 4


def transfer_error(room: int, reason: str) -> str:
    """How the engine prints a KVTransferError."""
    return f"KVTransferError(bootstrap_room={room}): {reason}"


class Rooms:
    """Status by room. Failure overwrites, other moves only go forward, and an entry once cleared stays cleared."""

    def __init__(self) -> None:
        self._status: dict[int, KVPoll] = {}
        self._reasons: dict[int, str] = {}

    def move(self, room: int, to: KVPoll) -> None:
        """Move a room forward; it is created by its first move."""
        now = self._status.get(room)
        self._status[room] = to if now is None else max(now, to)

    def fail(self, room: int, reason: str) -> bool:
        """Mark a room as failed; False when it is unknown, and then nothing happens."""
        if room not in self._status:
            return False
        if self._status[room] is not KVPoll.FAILED:
            self._status[room] = KVPoll.FAILED
            self._reasons[room] = reason
        return True

    def known(self, room: int) -> bool:
        """Whether the room has an entry."""
        return room in self._status

    def poll(self, room: int) -> KVPoll:
        """The status; an unknown room reads as waiting for input, as in NIXL."""
        return self._status.get(room, KVPoll.WAITING_FOR_INPUT)

    def reason(self, room: int) -> str:
        """Why the room failed."""
        return self._reasons.get(room, "")

    def forget(self, room: int) -> None:
        """Clear a concluded room."""
        self._status.pop(room, None)
        self._reasons.pop(room, None)
