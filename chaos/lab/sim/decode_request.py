"""A request while decode waits for its KV: in the prealloc queue, then in the transfer queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chaos.lab.sim.rooms import KVPoll

if TYPE_CHECKING:
    from chaos.lab.sim.peers import PrefillPeer
    from chaos.lab.sim.request import Req


@dataclass(slots=True, eq=False)
class DecodeReq:
    """A request on its way to the running batch, with its receiver's state."""

    req: Req
    peer: PrefillPeer | None = None
    poll: KVPoll = KVPoll.BOOTSTRAPPING
    reason: str = ""
    kv: bytes = field(default=b"", repr=False)
    sent_at: float = 0.0  # when the metadata went out: the waiting timeout counts from here

    @property
    def room(self) -> int:
        """The bootstrap room."""
        return self.req.bootstrap_room

    def fail(self, reason: str) -> bool:
        """Mark as failed; False when it was already."""
        if self.poll is KVPoll.FAILED:
            return False
        self.poll, self.reason = KVPoll.FAILED, reason
        return True
