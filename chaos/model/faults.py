"""What a step may do: the actions of a scenario's timeline, and which nodes they are meant for."""

from __future__ import annotations

import math
import re
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from chaos.model.events import Role
from chaos.model.section import Api, Name, Section
from chaos.model.units import Duration, shown, wrong

FaultKind = Literal["kill", "signal", "restart", "network", "protocol", "request"]
"""What a target may permit."""


def _sessions(value: object) -> object:
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 20000):
        return value
    raise wrong(f"must be all or a number of sessions from 1 to 20000, not {shown(value)}")


Hold = Literal["stall", "blackhole"]
HOLDS = ("stall", "blackhole")
"""Ways of `kill` that keep connections open against the server for a time."""
HOWS = ("sigkill", "rst", "fin", "cancel", "timeout", "abort-api", *HOLDS)


class Kill(Section):
    """Break many sessions of a group at once: `sigkill` kills whole client processes, the others hit chosen sessions.

    `rst`, `fin` and `cancel` hang up at once. `timeout` gives each open request up `deadline` after it was sent, so one
    after the other. `abort-api` leaves the clients waiting and has the engine abort their requests, by the endpoint
    that its pack names. `stall` stops reading, so that the receive window closes; `blackhole` takes nothing from the
    network any more and answers nothing, not even a farewell. Those two last as long as the step's `for`, and `then`
    the clients go on or close.
    """

    group: Name
    sessions: Annotated[
        Literal["all"] | int,
        BeforeValidator(_sessions),
        WithJsonSchema({"anyOf": [{"const": "all"}, {"type": "integer", "minimum": 1, "maximum": 20000}]}),
    ] = "all"
    how: Literal["sigkill", "rst", "fin", "cancel", "timeout", "abort-api", "stall", "blackhole"] = "sigkill"
    deadline: Duration | None = None
    then: Literal["resume", "close"] = "resume"

    kind: ClassVar[str] = "kill"
    permission: ClassVar[FaultKind] = "kill"

    @property
    def told(self) -> str:
        """What it does, in two words."""
        after = "" if self.deadline is None else f", each {self.deadline:g} s after it was sent"
        return f"{self.how} of {self.sessions} {self.group}{after}"


def _mode(value: object) -> object:
    if value in ("one", "all") or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_NODES):
        return value
    if isinstance(value, str) and _PERCENT.fullmatch(value):
        return value
    raise wrong(f"must be one, all, a number of nodes or a share such as 50%, not {shown(value)}")


MOST_NODES = 10000
_PERCENT_PATTERN = r"^(?:100|[1-9][0-9]?)%$"
_PERCENT = re.compile(_PERCENT_PATTERN.strip("^$"))

Mode = Annotated[
    int | str,
    BeforeValidator(_mode),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["one", "all"]},
                {"type": "integer", "minimum": 1, "maximum": MOST_NODES},
                {"type": "string", "pattern": _PERCENT_PATTERN},
            ]
        }
    ),
]


class Where(Section):
    """Which nodes: selector (`role`, `node`) + `mode`. Of several, cycles take turns, beginning with the first."""

    role: Role
    node: Name | None = None
    mode: Mode = "one"

    @property
    def told(self) -> str:
        """The selector in words."""
        return self.node or f"{self.mode} {self.role}"

    def number(self, of: int) -> int:
        """How many of `of` nodes are meant: a share is rounded up."""
        if self.mode == "all":
            return of
        if isinstance(self.mode, str):
            return 1 if self.mode == "one" else math.ceil(of * int(self.mode[:-1]) / 100)
        return self.mode


class ProcessWhere(Where):
    """As `where`, and on those nodes one process: a rank's scheduler, or children by name or a part of their title.

    `rank` counts as the engine does, data-parallel ranks first: with dp_size 2 and tp_size 2 rank 2 is DP1 TP0.
    """

    rank: int | None = Field(default=None, ge=0, le=4095)
    child: str | None = Field(default=None, min_length=1, max_length=200)

    @property
    def told(self) -> str:
        """The selector in words."""
        of = super().told
        one = self.child if self.rank is None else f"rank {self.rank}"
        return f"{one} of {of}" if one else of


class PrefillWhere(Where):
    """As `where`, of prefill nodes: only they have a control socket that can be found."""

    role: Literal["prefill"] = "prefill"


class Signal(Section):
    """Send a signal to the processes of nodes: KILL, STOP and CONT to all of a node's, TERM to its main one."""

    where: ProcessWhere
    send: Literal["STOP", "KILL", "TERM", "CONT"]

    kind: ClassVar[str] = "signal"
    permission: ClassVar[FaultKind] = "signal"

    @property
    def told(self) -> str:
        """What it does, in two words."""
        return f"{self.send} to {self.where.told}"


class Restart(Section):
    """Replace nodes' processes, as the target says how; after `timeout` a node that does not serve is given up.

    `as` names a variant of the node that the target knows how to start, say one with another transfer backend; a
    plain restart undoes it.
    """

    where: Where
    variant: Name | None = Field(default=None, alias="as")
    timeout: Duration = 120.0

    kind: ClassVar[str] = "restart"
    permission: ClassVar[FaultKind] = "restart"

    @property
    def told(self) -> str:
        """What it does, in two words."""
        variant = f" as {self.variant}" if self.variant else ""
        return f"restart of {self.where.told}{variant}"


class ForeignFrame(Section):
    """One message that means nothing, to the control socket of a prefill's first rank."""

    where: PrefillWhere = PrefillWhere()

    kind: ClassVar[str] = "foreign-frame"
    permission: ClassVar[FaultKind] = "protocol"

    @property
    def told(self) -> str:
        """What it does, in two words."""
        return f"foreign frame to {self.where.told}"


class AbortFrame(Section):
    """One ABORT for a room that nobody knows, to the control socket of a prefill's first rank."""

    where: PrefillWhere = PrefillWhere()

    kind: ClassVar[str] = "abort-frame"
    permission: ClassVar[FaultKind] = "protocol"

    @property
    def told(self) -> str:
        """What it does, in two words."""
        return f"abort frame to {self.where.told}"


PoisonKind = Literal["over-context", "n2", "empty", "tiny", "huge"]


class Poison(Section):
    """Requests that some engines do not survive: each must be answered or refused, and everybody else be served.

    `over-context` is a prompt longer than the context, `n2` asks for two answers at once, `empty` has no text, `tiny`
    is one word (less than a page of KV), `huge` a body of some megabytes. One that has not ended after `wait` hangs,
    and stays open.
    """

    what: PoisonKind = Field(alias="kind")
    count: int = Field(default=1, ge=1, le=100)
    api: Api = "chat"
    wait: Duration = 20.0

    kind: ClassVar[str] = "poison"
    permission: ClassVar[FaultKind] = "request"

    @property
    def told(self) -> str:
        """What it does, in two words."""
        return f"{self.count} x {self.what} ({self.api})"


class Sham(Section):
    """Nothing, at the moment a fault would have come: what a control arm does in its place.

    Sessions that a wave would have killed leave by themselves: those of `group` end their open requests and send no
    more, so that the load is the same afterwards.
    """

    group: Name | None = None

    kind: ClassVar[str] = "sham"
    permission: ClassVar[None] = None

    @property
    def told(self) -> str:
        """What it does, in two words."""
        return f"{self.group} leave by themselves" if self.group else "nothing, in a fault's place"
