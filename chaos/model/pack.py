"""What a pack says: one engine's endpoints, metric names by version, timeouts and log signatures. Knowledge is data."""

from __future__ import annotations

import re
import warnings
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from chaos.model.events import HitClass, MetricPurpose, Role
from chaos.model.section import Api, Name, Section, Version1
from chaos.model.units import Duration, Matching, wrong
from chaos.model.versions import VERSION_PATTERN, in_range

Version = Annotated[str, Matching(VERSION_PATTERN, "a version such as 0.5.14 or empty")]
MetricName = Annotated[str, Matching(r"^[a-zA-Z_:][a-zA-Z0-9_:]{0,199}$", "a Prometheus metric name")]
LabelName = Annotated[str, Matching(r"^[a-zA-Z_][a-zA-Z0-9_]{0,99}$", "a Prometheus label name")]
Canonical = Annotated[str, Matching(r"^[a-z][a-z0-9_]{0,62}$", "a name of lower-case letters, digits and _")]
Upstream = Annotated[
    str, Matching(r"^(?:[A-Za-z0-9._-]+/[A-Za-z0-9._-]+#[0-9]+)?$", "a reference such as sgl-project/sglang#30352")
]
HttpPath = Annotated[str, Matching(r"^(?:/[^\s]*)?$", "a path that begins with /, or empty")]


def _regex(pattern: str) -> str:
    """Refuse what cannot be compiled, would match every line, or cannot be joined with other patterns."""
    if re.match(r"\(\?[a-zA-Z]+\)", pattern):
        raise wrong("begins with a global flag", "write (?i:...) around what it concerns")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise wrong(f"is not a regular expression: {str(error)[:120]}") from None
    if compiled.match("") is not None:
        raise wrong("matches the empty line, so every line")
    return pattern


Regex = Annotated[
    str,
    Field(max_length=1000, min_length=1),
    AfterValidator(_regex),
    WithJsonSchema({"type": "string", "format": "regex", "minLength": 1, "maxLength": 1000}),
]


class Alias(Section):
    """The exposition name of a metric in a range of versions; both ends inclusive, empty is open."""

    metric: MetricName
    since: Version = ""
    until: Version = ""


class Metric(Section):
    """A wanted metric under its canonical name, e.g. `prefill_bootstrap_queue`.

    `use` says what for: `queue` (backlog; its idle floor must come back), `progress` (user work: rises while tokens
    flow), `aborts` (counts aborts the server saw), `served` (rises with every request that this server takes on, and
    with nothing else: health checks do not move it; best where it counts when a request is taken, since one that counts
    at the end also shows old requests ending), `info`. `where` keeps only samples with these label values.
    """

    name: Canonical
    kind: Literal["gauge", "counter"]
    use: MetricPurpose
    roles: list[Role] = Field(min_length=1)
    aliases: list[Alias] = Field(min_length=1)
    where: dict[LabelName, str] = {}
    freed_by: Name | None = None  # the engine's own timeout (`timeouts`) that frees what a fault left in this queue
    note: str = ""

    def exposed_as(self, version: str = "") -> tuple[str, ...]:
        """The exposition names in `version`; all of them when the version is unknown."""
        return tuple(a.metric for a in self.aliases if in_range(version, since=a.since, until=a.until))


class Timeout(Section):
    """A timeout of the engine itself: after it, stuck requests may free themselves."""

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
    title: str = Field(min_length=1)
    pattern: Regex
    roles: list[Role] = Field(min_length=1)
    side: Literal["prefill", "decode", "router", ""] = ""
    ends: Literal["thread", "process", ""] = ""
    key: str = ""  # named group of the pattern that tells one occurrence from its echo
    upstream: Upstream = ""
    since: Version = ""
    fixed_in: Version = ""
    note: str = ""
    samples: Samples


class Level(Section):
    """What one named group of a reading's pattern is.

    `level`: a gauge, for example a queue's length. `sum`: what this one line adds to a count. `clock`: a time of day at
    which something was last seen. A name that is a metric, too, has that metric's use.
    """

    group: Annotated[str, Matching(r"^[a-z][a-z0-9_]{0,62}$", "a group's name")]
    metric: Canonical
    use: MetricPurpose
    kind: Literal["level", "sum", "clock"] = "level"


class LineReading(Section):
    """A log line that tells numbers: what the server wrote of itself as it worked.

    A group called `rank` tells whose they are. Read where evidence was collected by hand and there are few scrapes; a
    run of ours has better ones.
    """

    id: Name
    pattern: Regex
    roles: list[Role] = Field(min_length=1)
    levels: list[Level] = Field(min_length=1)
    note: str = ""
    samples: Samples


class Thread(Section):
    """A thread of the engine's Python that a node cannot serve without; `name` is part of its name."""

    name: Annotated[str, Field(min_length=3, max_length=100)]
    title: str = Field(min_length=1)
    roles: list[Role] = Field(min_length=1)
    side: Literal["prefill", "decode", "router", ""] = ""
    note: str = ""


class Endpoints(Section):
    """Paths on a server of this engine; empty where there is none."""

    liveness: list[HttpPath] = []
    metrics: HttpPath = "/metrics"
    info: HttpPath = ""
    models: HttpPath = ""
    chat: HttpPath = ""
    completions: HttpPath = ""
    generate: HttpPath = ""
    abort: HttpPath = ""  # takes POST {"rid": ID}; of a router, else every prefill and decode node is told

    @property
    def speaks(self) -> tuple[Api, ...]:
        """The languages in which requests can be made."""
        known: dict[Api, str] = {"chat": self.chat, "completions": self.completions, "generate": self.generate}
        return tuple(api for api, path in known.items() if path)


class Pack(Section):
    """A whole pack file. The first signature that matches a line gives it its meaning."""

    version: Version1
    name: Name
    about: str = ""
    tried: list[Version] = []  # engine versions this was checked against
    endpoints: Endpoints = Endpoints()
    paths: Literal["direct", "pinned", "routed-only"] = "routed-only"
    rid: bool = False  # chat and completions take `rid`, the id of a request; other servers refuse unknown fields
    gauge_lag: Duration = 0.0
    instance_labels: list[LabelName] = []  # name the process, not what it serves: another one after every restart
    rank_process: str = Field(default="", max_length=200)  # how the titles of processes that are a rank each begin
    timeouts: list[Timeout] = []
    metrics: list[Metric] = []
    threads: list[Thread] = []
    readings: list[LineReading] = []
    signatures: list[Signature] = []

    @property
    def logs_aborts(self) -> bool:
        """Whether the engine is known to log the requests that it aborts."""
        return any(signature.klass == "abort" for signature in self.signatures)
