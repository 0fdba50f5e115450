"""Worse than it was: some packets are lost, all are slow, or late."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from chaos.engine.faults.network.chance import fits, telling
from chaos.engine.faults.network.kinds import Counted, Kind, Told
from chaos.model.units import told_bandwidth

if TYPE_CHECKING:
    from chaos.engine.faults.network.line import Arrived, Flow, Knocks, Line
    from chaos.model.network import Delay, Loss, RateLimit
    from chaos.model.target import Server

KNOCKS = 9
CLEAR_LOSS = 0.02
"""A network that loses more of its datagrams by itself cannot show how much we lose."""
SOME_PACKETS = 100
"""Packets that a rule must have met for its share of drops to tell something."""
HURRIED_S = 0.1
RATE_SLACK = 1.5
"""What arrives may be so much faster than asked for: whole packets are handed down, and short bursts let by."""
BURST_S = 2.0
BEFORE_S = 1.0
LEAST_BURST, MOST_BURST = 64 * 1024, 64 * 1024 * 1024  # bytes
LEAST_BUFFER, MOST_BUFFER = 4608, 64 * 1024  # bytes; the kernel's own least for a connection
DELAY_SHARE = 0.7
"""Of what a packet must be held up at least, this much must be seen: clocks of timers are coarse."""


@dataclass(frozen=True, slots=True)
class Lost:
    """How many datagrams came in; where nobody can send any, answers that came to connections of our side."""

    inward: Arrived | None
    answers: Knocks | None

    @property
    def text(self) -> str:
        """For people."""
        if self.inward is not None:
            return f"{self.inward.heard} of {self.inward.sent} datagrams arrived"
        return "connections tried from this side only" if self.answers else ""


class LossKind(Kind[Lost]):
    """Some packets are lost."""

    def __init__(self, action: Loss) -> None:
        self._share = action.percent / 100
        self._count = max(200, telling(self._share))

    def order(self, near: tuple[Server, ...]) -> dict[str, Any]:  # noqa: ARG002 - whichever they are
        """The share."""
        return {"kind": "loss", "share": self._share}

    async def look(self, line: Line, *, there: bool) -> Lost:
        """So many datagrams that their loss cannot be chance; else connections, whose answers the rules count."""
        inward = await line.datagrams_in(self._count)
        unheard = there and (inward is None or not inward.heard)
        return Lost(inward, await line.knocks_out(SOME_PACKETS, HURRIED_S) if unheard else None)

    def shown(self, before: Lost, now: Lost, counted: Counted) -> Told:
        """What is lost fits the share that was asked for."""
        was, is_now = before.inward, now.inward
        seen, dropped = counted["seen-in"], counted["dropped-in"]
        if was is None or is_now is None or not was.heard:
            text = f"the rule dropped {dropped} of {seen} packets; nobody could count at both ends"
            if seen < SOME_PACKETS:
                return Told(ok=False, text=text, why="too few packets met the rule")
            ok = fits(dropped, seen, self._share)
            return Told(ok=ok, text=text, why="" if ok else "that is not the share that was asked for")
        text = f"{now.text} (before: {was.heard} of {was.sent}); the rule dropped {dropped} of {seen} packets"
        if was.sent - was.heard > CLEAR_LOSS * was.sent:
            return Told(ok=False, text=text, why="the network lost packets before, too")
        if not dropped:
            return Told(ok=False, text=text, why="no packet met the rule")
        lost = is_now.sent - is_now.heard
        ok = fits(lost, is_now.sent, self._share) or fits(max(lost - was.sent + was.heard, 0), is_now.sent, self._share)
        return Told(ok=ok, text=text, why="" if ok else "that is not the share that was asked for")

    def cleared(self, before: Lost, now: Lost) -> Told:
        """As few are lost as before."""
        was, is_now = before.inward, now.inward
        if was is None or is_now is None or not was.heard:
            return Told(ok=True, text="nobody could count at both ends")
        ok = is_now.sent - is_now.heard <= max(CLEAR_LOSS * is_now.sent, was.sent - was.heard)
        return Told(ok=ok, text=now.text, why="" if ok else "more are lost than before")


@dataclass(frozen=True, slots=True)
class Speed:
    """What arrives of a burst; None where nobody can count it."""

    flow: Flow | None

    @property
    def text(self) -> str:
        """For people."""
        return f"{told_bandwidth(self.flow.bit_per_s)} arrived" if self.flow else "nobody could count at the other end"


class RateKind(Kind[Speed]):
    """What goes to the peers is held to a rate."""

    one_by_one = True

    def __init__(self, action: RateLimit) -> None:
        self._bit_per_s = action.rate

    def order(self, near: tuple[Server, ...]) -> dict[str, Any]:  # noqa: ARG002 - whichever they are
        """The rate."""
        return {"kind": "rate", "bit_per_s": int(self._bit_per_s)}

    async def look(self, line: Line, *, there: bool) -> Speed:
        """A burst: while the limit is there in small packets, as much as should pass in two seconds."""
        per_s = self._bit_per_s / 8
        size = int(min(max(per_s * BURST_S, LEAST_BURST), MOST_BURST))
        if there:
            buffer = int(min(max(per_s / 10, LEAST_BUFFER), MOST_BUFFER))
            return Speed(await line.burst_out(size, BURST_S, buffer))
        return Speed(await line.burst_out(size, BEFORE_S, MOST_BUFFER))

    def shown(self, before: Speed, now: Speed, counted: Counted) -> Told:
        """It was faster before, and is not faster now than was asked for."""
        text = f"{now.text} (before: {before.text}); {counted['bytes']} bytes went through the limit"
        most = RATE_SLACK * self._bit_per_s
        if now.flow is None or before.flow is None:
            ok = bool(counted["held_up"])
            return Told(ok=ok, text=text, why="" if ok else "nothing was held up by it")
        if before.flow.bit_per_s <= most:
            return Told(ok=False, text=text, why="it was no faster before")
        if not now.flow.bytes or not counted["bytes"]:
            return Told(ok=False, text=text, why="nothing went through it")
        ok = now.flow.bit_per_s <= most
        return Told(ok=ok, text=text, why="" if ok else "that is faster than was asked for")

    def cleared(self, before: Speed, now: Speed) -> Told:
        """It is faster again than the limit."""
        ok = before.flow is None or bool(now.flow and now.flow.bit_per_s > RATE_SLACK * self._bit_per_s)
        return Told(ok=ok, text=now.text, why="" if ok else "it is as slow as with the limit")


class DelayKind(Kind["Knocks"]):
    """What goes to the peers arrives later."""

    def __init__(self, action: Delay) -> None:
        self._delay_ms, self._jitter_ms = action.delay * 1e3, action.jitter * 1e3

    def order(self, near: tuple[Server, ...]) -> dict[str, Any]:  # noqa: ARG002 - whichever they are
        """The delay."""
        return {"kind": "delay", "delay_ms": self._delay_ms, "jitter_ms": self._jitter_ms}

    async def look(self, line: Line, *, there: bool) -> Knocks:  # noqa: ARG002 - the same at any time
        """How long connections take."""
        return await line.knocks_out(KNOCKS)

    def shown(self, before: Knocks, now: Knocks, counted: Counted) -> Told:
        """They take longer by the delay."""
        if not before.ms or not now.ms:
            return Told(ok=False, text="no connection was answered", why="nothing shows how long packets take")
        text = f"a connection takes {median(now.ms):.1f} ms (before: {median(before.ms):.1f} ms)"
        if not counted["packets"]:
            return Told(ok=False, text=text, why="no packet was delayed")
        ok = median(now.ms) - median(before.ms) >= DELAY_SHARE * (self._delay_ms - self._jitter_ms)
        return Told(ok=ok, text=text, why="" if ok else "that is less than was asked for")

    def cleared(self, before: Knocks, now: Knocks) -> Told:
        """They take as long as before, give or take half the delay."""
        if not before.ms:
            return Told(ok=True, text="no connection was answered before")
        if not now.ms:
            return Told(ok=False, text="no connection is answered", why="connections are not answered as before")
        text = f"a connection takes {median(now.ms):.1f} ms"
        ok = median(now.ms) < median(before.ms) + self._delay_ms / 2
        return Told(ok=ok, text=text, why="" if ok else "that is longer than before")
