"""One request on one node: what the client asked, what was generated, how it ended."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.lab.sim.kv import Continuation

FAKE_BOOTSTRAP_HOST = "2.2.2.2"  # requests with this host never touch the transfer path
HEALTH_RID_PREFIX = "HEALTH_CHECK_"


class Api(StrEnum):
    """How the client speaks."""

    GENERATE = "generate"
    CHAT = "chat"
    COMPLETIONS = "completions"


@dataclass(frozen=True, slots=True)
class Finish:
    """Why a request ended. `status` is the HTTP status an abort asks for; None for an abort by the user."""

    kind: str  # length | abort
    message: str = ""
    status: int | None = None

    @property
    def failed(self) -> bool:
        """Whether the client is to get an error."""
        return self.kind == "abort" and self.status is not None


@dataclass(slots=True, eq=False)
class Req:
    """A request as the scheduler and the frontend share it."""

    rid: str
    api: Api
    stream: bool
    tokens: list[bytes]  # of the prompt, see kv.tokenize
    max_new_tokens: int
    bootstrap_room: int
    bootstrap_host: str | None = None
    bootstrap_port: int | None = None
    include_usage: bool = False
    created: float = field(default_factory=time.monotonic)
    continuation: Continuation | None = None
    pending: list[str] = field(default_factory=list)  # token texts not yet taken by the handler
    generated: int = 0
    finish: Finish | None = None
    to_finish: Finish | None = None  # an abort that takes effect at the next step
    retractions: int = 0
    first_token_at: float | None = None
    last_token_at: float = 0.0
    last_event_at: float = field(default_factory=time.monotonic)
    after_leaving: Callable[[], None] | None = None  # called by the next output once the client has left
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def fake(self) -> bool:
        """Whether it takes the fake transfer path."""
        return self.bootstrap_host == FAKE_BOOTSTRAP_HOST

    @property
    def is_health_check(self) -> bool:
        """Whether `/health` made it."""
        return self.rid.startswith(HEALTH_RID_PREFIX)

    @property
    def prompt_len(self) -> int:
        """Prompt tokens."""
        return len(self.tokens)

    @property
    def bootstrap_addr(self) -> str:
        """Where the prefill's bootstrap server is."""
        return f"{self.bootstrap_host}:{self.bootstrap_port}"
