"""When the target last answered anything of ours: whether waiting for its answers can still teach something."""

from __future__ import annotations

from chaos.model import events as ev


class Pulse:
    """A listener that remembers the last sign of life: a request answered, a token received.

    Before there is any, patience counts from when the load began.
    """

    def __init__(self) -> None:
        self.last_ns = 0
        self.users_ns = 0  # of the load alone; a request that was sent counts, for it may yet be answered
        self._tokens: dict[str, int] = {}

    def on_event(self, event: ev.AnyEvent, /) -> None:
        """Take in answers and the agents' token counts."""
        match event:
            case ev.PhaseEntered(phase="load"):  # who has not been asked yet cannot have answered
                self.last_ns = self.users_ns = event.t_ns
            case ev.RequestEnded(kind="canary", ok=True):
                self.last_ns = event.t_ns
            case ev.RequestStarted(kind="load"):
                self.users_ns = event.t_ns
            case ev.RequestEnded(kind="load", ok=True):
                self.last_ns = self.users_ns = event.t_ns
            case ev.HarnessHealth() if event.tokens > self._tokens.get(event.who, 0):
                self.last_ns = self.users_ns = event.t_ns
                self._tokens[event.who] = event.tokens
