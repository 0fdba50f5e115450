"""The JSON lines that an agent writes on its stdout, typed. `chaos.agent` documents them; this is the other end."""

from __future__ import annotations

import msgspec

from chaos.model.events import Content, EndedBy, Gaps


class _Message(msgspec.Struct, tag_field="e", frozen=True, kw_only=True):
    t: int


class Hello(_Message, tag="hello", frozen=True, kw_only=True):
    """The agent runs; which of its fast libraries it found."""

    pid: int
    py: str = ""
    parser: str = ""
    json: str = ""
    loop: str = ""
    sockets: list[str] = []  # inodes of those that go to no server


class Start(_Message, tag="start", frozen=True, kw_only=True):
    """A request was sent."""

    req: str
    session: int
    round: int
    path: str
    intended: int
    sent: int | None = None
    local_port: int = 0
    api: str = ""
    words: int = 0


class End(_Message, tag="end", frozen=True, kw_only=True):
    """A request ended."""

    req: str
    session: int
    round: int
    path: str
    sent: int | None = None
    first: int | None = None
    last: int | None = None
    tokens: int = 0
    gaps: Gaps | None = None
    status: int | None = None
    finish: str = ""
    error: str = ""
    detail: str = ""
    ended_by: EndedBy = "server"
    prompt_tokens: int | None = None
    mute: bool = False
    content: Content = "unchecked"
    whose: str = ""  # the owner of a codeword that is not this request's


class Wave(_Message, tag="wave", frozen=True, kw_only=True):
    """A wave that the agent fired at its own sockets."""

    id: str
    how: str
    ordered: int
    first: int | None = None
    last: int | None = None
    sessions: int = 0
    sockets: int = 0
    fin: int | None = None
    rst: int | None = None
    phases: dict[str, int] = {}
    rids: list[str] = []  # requests left for the engine's API to abort
    problem: str = ""  # why some connection could not be held


class Held(_Message, tag="held", frozen=True, kw_only=True):
    """What the kernel has of connections that are held: how many, bytes nobody read, segments that were dropped."""

    id: str
    open: int
    held: int
    unread: int
    with_unread: int  # connections
    dropped: int
    with_dropped: int


class Beat(_Message, tag="beat", frozen=True, kw_only=True):
    """How the agent itself fares."""

    lag_max_ms: float
    lag_p99_ms: float = 0.0
    open_files: int = 0
    intended: int = 0
    delivered: int = 0
    tokens: int = 0
    completed: int = 0
    failed: int = 0
    phases: dict[str, int] = {}


class Declined(_Message, tag="refused", frozen=True, kw_only=True):
    """A command that the agent could not carry out."""

    command: str
    detail: str = ""


class Bye(_Message, tag="bye", frozen=True, kw_only=True):
    """The agent's last line."""

    reason: str


Message = Hello | Start | End | Wave | Held | Beat | Declined | Bye

decode = msgspec.json.Decoder(Message).decode

_STAMPS: dict[type[Message], tuple[str, ...]] = {
    Start: ("intended", "sent"),
    End: ("sent", "first", "last"),
    Wave: ("ordered", "first", "last"),
}
"""Besides `t`, which all of them have."""


def shifted(message: Message, by_ns: int) -> Message:
    """The same with all its stamps on another clock."""
    if not by_ns:
        return message
    stamps = {name: getattr(message, name) for name in ("t", *_STAMPS.get(type(message), ()))}
    return msgspec.structs.replace(message, **{n: at + by_ns for n, at in stamps.items() if at is not None})
