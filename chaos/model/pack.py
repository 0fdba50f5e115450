"""What a pack says: one engine's endpoints, metric names by version, timeouts and log signatures. Knowledge is data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chaos.model.events import HitClass, Role
from chaos.model.scenario import Name, Section
from chaos.model.units import Duration


class Alias(Section):
    """The exposition name of a metric in a range of versions; both ends inclusive, empty is open."""

    metric: str
    since: str = ""
    until: str = ""


class Metric(Section):
    """A wanted metric under its canonical name, e.g. `prefill_bootstrap_queue`.

    `use` says what for: `queue` (backlog; its idle floor must come back), `progress` (user work: rises while tokens
    flow), `aborts` (counts aborts the server saw), `info`.
    """

    name: Name
    kind: Literal["gauge", "counter"]
    use: Literal["queue", "progress", "aborts", "info"]
    roles: list[Role]
    aliases: list[Alias] = Field(min_length=1)
    note: str = ""


class Timeout(Section):
    """A timeout of the engine itself. `server_info` names the field that tells the real value, where there is one."""

    name: Name
    default: Duration
    env: str = ""
    roles: list[Role] = []
    note: str = ""
    source: str = ""


class Samples(Section):
    """Real lines that must and must not match; tests run them."""

    match: list[str] = Field(min_length=1)
    no_match: list[str] = []


class Signature(Section):
    """A log line that means something. `pattern` is a regular expression searched in one line."""

    id: Name
    klass: HitClass = Field(alias="class")
    title: str
    pattern: str
    roles: list[Role]
    side: Literal["prefill", "decode", "router", ""] = ""
    ends: Literal["thread", "process", ""] = ""
    key: str = ""  # named group of the pattern that tells one occurrence from its echo
    upstream: str = ""
    since: str = ""
    fixed_in: str = ""
    note: str = ""
    samples: Samples


class Endpoints(Section):
    """Paths on a server of this engine; empty where there is none."""

    liveness: list[str] = []
    metrics: str = "/metrics"
    info: str = ""
    models: str = ""
    chat: str = ""
    completions: str = ""
    generate: str = ""


class Pack(Section):
    """A whole pack file."""

    version: Literal[1]
    name: Name
    about: str = ""
    tried: list[str] = []  # engine versions this was checked against
    endpoints: Endpoints = Endpoints()
    paths: Literal["direct", "pinned", "routed-only"] = "routed-only"
    gauge_lag: Duration = 0.0
    timeouts: list[Timeout] = []
    metrics: list[Metric] = []
    signatures: list[Signature] = []
