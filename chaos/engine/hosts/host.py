"""A host as everything else speaks to it: operations and streams of the outpost, wherever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

PATIENCE_S = 10.0
"""How long an operation may take where its caller says nothing else."""


class HostTrouble(Exception):
    """The operation was carried out and said no; `kind` is a short word, the text is for people."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class HostLost(Exception):
    """Nobody answered: the connection is down, or the answer came too late. What was ordered may have happened."""


class Host(Protocol):
    """One machine."""

    @property
    def label(self) -> str:
        """For people (`this machine`, `ops@gpu1`); never in a journal."""

    @property
    def remote(self) -> bool:
        """Whether it is another machine than ours."""

    @property
    def offset_ns(self) -> int:
        """What to add to its CLOCK_MONOTONIC to get ours, in nanoseconds."""

    async def call(self, op: str, /, *, timeout_s: float = PATIENCE_S, **args: Any) -> Any:
        """Carry out an operation. Raises HostTrouble or HostLost."""

    def call_now(self, op: str, /, *, timeout_s: float = PATIENCE_S, **args: Any) -> Any:
        """As `call`, for whoever has no event loop; blocks."""

    def stream(self, name: str, /, **args: Any) -> AsyncGenerator[Any, None]:
        """What a stream sends; closing the generator ends it on the host. Raises HostTrouble or HostLost."""

    def close(self) -> None:
        """Let go of it; blocks, a few seconds at most. May be called twice."""
