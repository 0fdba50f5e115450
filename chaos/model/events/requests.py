"""Requests of ours, one by one; and a whole load, where nobody recorded its single requests."""

from __future__ import annotations

from typing import Literal

from chaos.model.events.envelope import Event, Record, Span

RequestKind = Literal["load", "canary", "reference", "poison"]
EndedBy = Literal["server", "harness", "fault", "error"]
Content = Literal["unchecked", "ok", "missing", "corrupted"]


class RequestStarted(Event, frozen=True, kw_only=True, omit_defaults=True, tag="request.started"):
    """A request of ours left. `sent_ns` is when its last byte was handed to the kernel."""

    req: str
    kind: RequestKind
    path: str
    intended_ns: int
    sent_ns: int | None = None
    group: str = ""
    session: int = -1
    round: int = 0
    api: str = ""
    room: int | None = None  # of a direct canary: what the engine's own log lines call the request
    words: int = 0  # of the questions in the prompt: ours are short and common, about a token each


class RequestOverdue(Event, frozen=True, kw_only=True, omit_defaults=True, tag="request.overdue"):
    """A canary passed its deadline and is left open."""

    req: str
    kind: RequestKind
    path: str
    age_s: Span
    deadline_s: Span


class Gaps(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Inter-token gaps of one response (ms)."""

    n: int
    p50_ms: Span
    p99_ms: Span
    max_ms: Span


class RequestEnded(Event, frozen=True, kw_only=True, omit_defaults=True, tag="request.ended"):
    """A request of ours ended.

    It is a success only when `error` is empty: HTTP 200, the stream's end marker seen, a finish reason that is not an
    abort, at least one token. `ended_by` tells who ended it: a disconnect that no fault planned has `harness`.

    `content`: the answer holds the codeword that its prompt asks for (`ok`), lacks it (`missing`), or holds that of
    another request (`corrupted`, and `whose`). No codeword is ever written down, only whose it is.
    """

    req: str
    kind: RequestKind
    path: str
    sent_ns: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    tokens: int = 0
    gaps: Gaps | None = None
    status: int | None = None
    finish: str = ""
    # "" or one of: connect refused status in-band truncated no-tokens timeout reset cancelled protocol way (it was our
    # own way to the server's host that broke)
    error: str = ""
    detail: str = ""  # what the server said, cut to 300 characters
    content: Content = "unchecked"
    whose: str = ""  # the request whose codeword the answer holds instead
    digest: str = ""  # of the answer to the prompt that is always the same
    prompt_tokens: int | None = None  # by the server's count
    mute: bool = False  # complete, with tokens by the server's count, and not a letter of text came
    ended_by: EndedBy = "server"
    group: str = ""
    session: int = -1
    round: int = 0

    @property
    def ok(self) -> bool:
        """True when the server answered completely and correctly, however late."""
        return not self.error and self.ended_by == "server"


class LoadTold(Event, frozen=True, kw_only=True, omit_defaults=True, tag="load.told"):
    """How a whole load fared between two moments, where nobody recorded its single requests.

    `goodput` is what it got through as a share of what the same load got through before anything was broken. `t_ns` is
    its end; what nobody counted is None.
    """

    from_ns: int
    sessions: int | None = None
    group: str = "load"
    completed: int | None = None
    failed: int | None = None
    goodput: float | None = None
