"""Cut off: no packet passes, none in one direction, or none to one port."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chaos.engine.faults.network.ends import port_of
from chaos.engine.faults.network.kinds import Counted, Kind, Told

if TYPE_CHECKING:
    from chaos.engine.faults.network.line import Arrived, Knocks, Line
    from chaos.model.network import Partition, PortBlock
    from chaos.model.target import Server

DATAGRAMS = 20


@dataclass(frozen=True, slots=True)
class Passing:
    """What passes both ways, one way and the other."""

    inward: Arrived | None
    outward: Arrived | None
    calls: Knocks
    called: Knocks | None

    @property
    def both(self) -> bool:
        """Whether any connection gets an answer."""
        return self.calls.answered or bool(self.called and self.called.answered)

    @property
    def text(self) -> str:
        """For people."""
        answers = {True: "answered", False: "silent"}
        parts = [
            f"datagrams {way} {arrived.heard} of {arrived.sent}"
            for way, arrived in (("in", self.inward), ("out", self.outward))
            if arrived
        ]
        parts += [f"connections {way} {answers[k.answered]}" for way, k in (("out", self.calls),)]
        return ", ".join([*parts, *([f"in {answers[self.called.answered]}"] if self.called else [])])


class PartitionKind(Kind[Passing]):
    """No packet passes, or none in one direction."""

    def __init__(self, action: Partition) -> None:
        self._shut = {"both": ("in", "out"), "in": ("in",), "out": ("out",)}[action.direction]
        self._direction = action.direction

    def order(self, near: tuple[Server, ...]) -> dict[str, Any]:  # noqa: ARG002 - whichever they are
        """The direction."""
        return {"kind": "partition", "direction": self._direction}

    async def look(self, line: Line, *, there: bool) -> Passing:  # noqa: ARG002 - the same at any time
        """Datagrams each way, and connections."""
        inward, outward, calls, called = await asyncio.gather(
            line.datagrams_in(DATAGRAMS),
            line.datagrams_out(DATAGRAMS),
            line.knocks_out(),
            line.knocks_in(port_of(line.near)),
        )
        return Passing(inward, outward, calls, called)

    def shown(self, before: Passing, now: Passing, counted: Counted) -> Told:
        """Nothing passes that is cut off, and in a one-way partition datagrams still do the other way."""
        text = f"{now.text} (before: {before.text})"
        for way, was, is_now in (("in", before.inward, now.inward), ("out", before.outward, now.outward)):
            if was is None or is_now is None or not was.heard:
                continue
            if way in self._shut and is_now.heard:
                return Told(ok=False, text=text, why=f"datagrams still come {way}")
            if way not in self._shut and not is_now.heard:
                return Told(ok=False, text=text, why=f"datagrams do not come {way} either")
        if now.both:
            return Told(ok=False, text=text, why="connections are still answered")
        datagrams = {"in": before.inward, "out": before.outward}
        if not before.both and not any((arrived := datagrams[way]) and arrived.heard for way in self._shut):
            return Told(ok=False, text=text, why="nothing passed before either, so nothing shows that it is cut off")
        if not any(counted[f"dropped-{way}"] for way in self._shut):
            return Told(ok=False, text=text, why="no packet met the rules")
        return Told(ok=True, text=text)

    def cleared(self, before: Passing, now: Passing) -> Told:
        """All passes again."""
        for was, is_now in ((before.inward, now.inward), (before.outward, now.outward)):
            if was and was.heard and not (is_now and is_now.heard):
                return Told(ok=False, text=now.text, why="datagrams do not pass as before")
        if before.both and not now.both:
            return Told(ok=False, text=now.text, why="connections are not answered as before")
        return Told(ok=True, text=now.text)


@dataclass(frozen=True, slots=True)
class Ports:
    """What answers the peer: the port in question, and another one."""

    port: Knocks | None
    other: Knocks | None

    @property
    def text(self) -> str:
        """For people."""
        if self.port is None or self.other is None:
            return "nobody could try from the peer"
        of = {True: "answered", False: "silent"}
        return f"the port is {of[self.port.answered]}, another one {of[self.other.answered]}"


class PortBlockKind(Kind[Ports]):
    """One port does not answer."""

    def __init__(self, action: PortBlock) -> None:
        self._action = action

    def order(self, near: tuple[Server, ...]) -> dict[str, Any]:
        """The ports of the nodes."""
        return {"kind": "port-block", "ports": sorted({self.port(server) for server in near})}

    def port(self, server: Server) -> int:
        """The port of a node."""
        match self._action.port:
            case "http":
                return port_of(server)
            case "bootstrap":
                assert server.spec.bootstrap_port is not None  # noqa: S101 - permission sees to it
                return server.spec.bootstrap_port
            case number:
                return int(number)

    async def look(self, line: Line, *, there: bool) -> Ports:  # noqa: ARG002 - the same at any time
        """The port, and that of the ear beside it."""
        port, other = await asyncio.gather(line.knocks_in(self.port(line.near)), line.knocks_at_ear())
        return Ports(port, other)

    def shown(self, before: Ports, now: Ports, counted: Counted) -> Told:
        """The port is silent, another one is not, and the rule counted what was dropped."""
        text = f"{now.text} (before: {before.text})"
        if not counted["dropped-in"]:
            return Told(ok=False, text=text, why="no packet met the rule")
        if before.port is None or now.port is None or now.other is None or before.other is None:
            return Told(ok=True, text=f"{text}; the rule dropped {counted['dropped-in']} packets")
        if not before.port.answered:
            return Told(ok=False, text=text, why="the port did not answer before either")
        if now.port.answered:
            return Told(ok=False, text=text, why="the port still answers")
        if before.other.answered and not now.other.answered:
            return Told(ok=False, text=text, why="another port does not answer either")
        return Told(ok=True, text=text)

    def cleared(self, before: Ports, now: Ports) -> Told:
        """The port answers again; a refusal is an answer."""
        ok = not (before.port and before.port.answered) or bool(now.port and now.port.answered)
        return Told(ok=ok, text=now.text, why="" if ok else "the port does not answer as before")
