"""What `observations.yaml` says: evidence that people have collected of an incident, as facts and never as prose.

Every section is optional but the deployment and the time watched; what nobody noted is left out, and is then unknown.
Text for people (`about`, `note`) is kept and never read for meaning.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationInfo, WithJsonSchema

from chaos.model.events import Role
from chaos.model.moments import Day, Moment, Offset
from chaos.model.outcomes import Outcome
from chaos.model.pack import Canonical, Version
from chaos.model.scenario import AllowedOutcome, ConditionName
from chaos.model.section import Name, Section, Version1
from chaos.model.units import FROM_FILE, Comparison, Duration, Matching, fullmatch, shown, wrong

Count = Annotated[int, Field(ge=0, le=10**9)]
Pid = Annotated[int, Field(ge=1, le=2**31 - 1)]
Status = Annotated[int, Field(ge=100, le=599)]
FileName = Annotated[str, Matching(r"^[^/\n][^\n]*$", "a file's path, relative to this folder")]
PathName = Annotated[
    str,
    Matching(
        r"^(?:routed|[a-z][a-z0-9_-]{0,62}>[a-z][a-z0-9_-]{0,62})$",
        "`routed` or a pair such as prefill-0>decode-1",
    ),
]
Text = Annotated[str, Field(max_length=1000)]

SHARE_PATTERN = r"^[0-9]{1,3}(?:\.[0-9]{1,3})?%$"


def _share(value: object, info: ValidationInfo) -> float:
    if isinstance(value, float) and info.context != FROM_FILE:
        return value
    if fullmatch(SHARE_PATTERN, value) is None:
        raise wrong(f"must be a share such as 98%, not {shown(value)}")
    return float(str(value).removesuffix("%")) / 100


Share = Annotated[
    float,
    BeforeValidator(_share),
    PlainSerializer(lambda share: f"{share * 100:g}%", when_used="json"),
    WithJsonSchema({"type": "string", "pattern": SHARE_PATTERN, "examples": ["98%"]}),
]

Did = Literal["kill-clients", "kill", "terminate", "stop", "restart", "other"]
Ended = Literal["complete", "gave-up", "still-open", "refused", "reset", "cut", "error"]
Seen = Literal["unchecked", "ok", "missing", "corrupted"]


class NodeSpec(Section):
    """One server. Its id is its `name`, else its role and ordinal: prefill-0."""

    role: Role
    name: Name | None = None
    ranks: list[Annotated[str, Field(min_length=1, max_length=40)]] = []


class DeploymentSpec(Section):
    """What was running. `engine` and `router_engine` pick the packs that give log lines and metrics their meaning."""

    engine: Name
    router_engine: Name = "sglang-router"
    version: Version = ""
    nodes: list[NodeSpec] = Field(min_length=1, max_length=200)
    timeouts: dict[Name, Duration] = {}  # of the engine, where they are known not to be the pack's defaults
    gauge_lag: Duration | None = None  # how long a gauge may show the past, where it is not the pack's


class Watched(Section):
    """From when to when somebody looked. What lies outside is not judged."""

    since: Moment = Field(alias="from")
    until: Moment = Field(alias="to")


class LogFile(Section):
    """A log of a node. Stamps without a zone are `utc_offset` from UTC."""

    file: FileName
    node: Name
    utc_offset: Offset = "+00:00"
    until: Moment | None = None  # when it was copied: a server that had fallen silent had written nothing by then


class ScrapeFile(Section):
    """A Prometheus text of a node. `where` picks a node's lines from a file that holds several nodes."""

    file: FileName
    node: Name
    at: Moment
    where: dict[Annotated[str, Matching(r"^[a-zA-Z_][a-zA-Z0-9_]*$", "a label's name")], str] = {}
    quiet_for: Duration | None = None  # how long nothing had been asked of the deployment by then


class GaugeNote(Section):
    """Metrics that somebody read off and noted, by their canonical names; of all ranks of the node together."""

    at: Moment
    node: Name
    values: dict[Canonical, Annotated[float, Field(ge=0, le=1e15)]] = Field(min_length=1)
    quiet_for: Duration | None = None


class RequestNote(Section):
    """A fresh request that somebody sent to see whether it is served.

    `ended`: complete (the whole answer came), gave-up (whoever sent it hung up after `took`), still-open, refused,
    reset, cut (the answer broke off), error (an error in place of an answer, or within it).
    """

    at: Moment
    path: PathName = "routed"
    ended: Ended
    status: Status | None = None
    first_byte: Duration | None = None
    took: Duration | None = None
    tokens: Count | None = None
    finish: Text = ""
    content: Seen = "unchecked"
    note: Text = ""


class LoadNote(Section):
    """A load as a whole. `goodput` compares it with what the same load got through before anything was broken."""

    since: Moment = Field(alias="from")
    until: Moment | None = Field(default=None, alias="to")
    sessions: Annotated[int, Field(ge=1, le=10**6)] | None = None
    name: Name = "load"
    completed: Count | None = None
    failed: Count | None = None
    goodput: Share | None = None
    note: Text = ""


class Census(Section):
    """In which phase the sessions were at that moment."""

    connecting: Count = 0
    waiting: Count = 0  # no first token yet
    streaming: Count = 0
    thinking: Count = 0


class ActionNote(Section):
    """Something that was done to the deployment or its clients, on purpose.

    `done_by`: when it was over (a killed process is gone or replaced, a restarted one serves, a stopped one goes on).
    `aim`: what it must have met to count. Of killed clients, where nothing is said: that the servers tell of one abort;
    of an engine that never tells, that one session waited for its first token (`sessions`).
    """

    at: Moment
    did: Did
    id: Name | None = None
    nodes: list[Name] = []
    sessions: Census | None = None
    how: Text = ""
    done_by: Moment | None = None
    failed: Text = ""  # it did not work, and why
    aim: dict[ConditionName, Comparison] | None = None
    note: Text = ""


class HealthNote(Section):
    """What a health endpoint answered; no status when it did not."""

    at: Moment
    node: Name
    endpoint: Annotated[str, Matching(r"^/[^\s]*$", "a path that begins with /")] = "/health"
    status: Status | None = None
    took: Duration = 0.0


class ChildNote(Section):
    """A child process; of a zombie (`defunct`) write `alive: false`."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    pid: Pid | None = None
    alive: bool = True


class ProcessNote(Section):
    """How a node's process was at a moment: also how one finds out that it is another one than before.

    `state` is the word of psutil or the letters of ps; a zombie is dead.
    """

    at: Moment
    node: Name
    pid: Pid | None = None
    alive: bool = True
    state: Text = ""
    started: Moment | None = None
    children: list[ChildNote] = []
    threads: list[Annotated[str, Field(min_length=1, max_length=200)]] = []


class HeartbeatNote(Section):
    """When a node's inner loop had last given a sign, as read at a moment."""

    at: Moment
    node: Name
    last: Moment


class Expect(Section):
    """What would have been right; as in a scenario."""

    recover_within: Duration = 60.0
    deadline: Duration = 20.0  # of one fresh request
    allow: list[AllowedOutcome] = Field(default=[Outcome.HEALTHY], min_length=1)


class Observations(Section):
    """A whole observations file."""

    version: Version1
    name: Name
    about: Text = ""
    date: Day | None = None  # of moments that are given as a time only
    watched: Watched
    deployment: DeploymentSpec
    logs: list[LogFile] = []
    scrapes: list[ScrapeFile] = []
    gauges: list[GaugeNote] = []
    requests: list[RequestNote] = []
    load: list[LoadNote] = []
    actions: list[ActionNote] = []
    health: list[HealthNote] = []
    processes: list[ProcessNote] = []
    heartbeats: list[HeartbeatNote] = []
    expect: Expect = Expect()

    @property
    def node_ids(self) -> tuple[str, ...]:
        """The ids of the nodes, in file order."""
        return tuple(name for name, _ in self.named_nodes)

    @property
    def named_nodes(self) -> tuple[tuple[str, NodeSpec], ...]:
        """The nodes with their ids."""
        seen: dict[Role, int] = {}
        named = []
        for spec in self.deployment.nodes:
            ordinal = seen.get(spec.role, 0)
            seen[spec.role] = ordinal + 1
            named.append((spec.name or f"{spec.role}-{ordinal}", spec))
        return tuple(named)
