"""What a target file says: where a deployment lives, how to look at it, and what may be done to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field

from chaos.model.events import ContentMode
from chaos.model.faults import FaultKind
from chaos.model.section import Name, SecretRef, Section, Version1
from chaos.model.units import Duration, Matching

if TYPE_CHECKING:
    from chaos.model.events import Role

Url = Annotated[
    str,
    Matching(
        r"^https?://[A-Za-z0-9._~\[\]:-]+(?:/[^\s?#]*)?$",
        "an address such as http://127.0.0.1:30000",
        "no user, query or fragment",
    ),
]
FilePath = Annotated[str, Matching(r"^[^\n]+$", "a path")]
ShellCommand = Annotated[str, Field(min_length=1, max_length=4000)]
HostName = Annotated[str, Matching(r"^[A-Za-z0-9._\[\]:-]+$", "a host name or address")]


class ServerSpec(Section):
    """One server. `log` lists files that together hold both streams; paths are relative to the target file.

    Canaries straight to a pair need the prefill's `bootstrap_port`. The process is found by `pid`, else `pidfile`, else
    whoever listens on `port`. `restart` is a shell command that replaces the process, `restart_as` has one for each
    variant of the node that a scenario may ask for; a target whose nodes may be restarted should not give `pid`, which
    the next one has not.
    """

    url: Url
    metrics: Url | None = None  # default: url + the pack's metrics path
    log: list[FilePath] = []
    pid: int | None = Field(default=None, ge=1, le=2**31 - 1)
    pidfile: FilePath | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    bootstrap_port: int | None = Field(default=None, ge=1, le=65535)
    bootstrap_host: HostName | None = None  # the prefill as decode reaches it; default: the host of `url`
    restart: ShellCommand | None = None
    restart_as: dict[Name, ShellCommand] = {}
    name: Name | None = None  # default: role-ordinal


@dataclass(frozen=True, slots=True)
class Server:
    """A server as everything else speaks of it."""

    id: str
    role: Role
    spec: ServerSpec


class Tls(Section):
    """How https servers are checked."""

    verify: bool = True
    ca: FilePath | None = None


def _said_aloud(schema: dict[str, Any]) -> None:
    schema["required"] = sorted({*schema["required"], "environment", "allow"})


class Target(Section):
    """A whole target file. In a file `environment` and `allow` must be said (`chaos.model.checks`).

    `content` is what answers can be held to: `echo` (the model repeats a code it is asked to repeat), `known-answer`
    (the same question gets the same answer at temperature 0), `unchecked`; `auto` lets the baseline decide.

    `restart` is a shell command that replaces the whole deployment by a freshly started one, for trials.
    """

    model_config = ConfigDict(json_schema_extra=_said_aloud)

    version: Version1
    name: Name
    about: str = ""
    environment: Literal["staging", "production"] = "staging"
    engine: Name = "sglang"  # pack for prefill and decode
    router_engine: Name = "sglang-router"  # pack for the router
    router: ServerSpec
    prefill: list[ServerSpec] = Field(min_length=1)
    decode: list[ServerSpec] = Field(min_length=1)
    model: str | None = Field(default=None, min_length=1, max_length=500)  # default: asked from /v1/models
    api_key: SecretRef | None = None
    tls: Tls = Tls()
    allow: list[FaultKind] = ["kill"]
    content: ContentMode = "auto"
    restart: str | None = Field(default=None, min_length=1, max_length=4000)
    timeouts: dict[Name, Duration] = {}  # engine timeouts that differ from the pack's defaults
    gauge_lag: Duration | None = None  # where it differs from the pack's
    time_scale: float = Field(default=1.0, gt=0, le=10)  # labs run engines with shortened clocks

    @property
    def servers(self) -> tuple[Server, ...]:
        """Every server with its identity: the target's name for it, else role and ordinal."""
        by_role: tuple[tuple[Role, list[ServerSpec]], ...] = (
            ("router", [self.router]),
            ("prefill", self.prefill),
            ("decode", self.decode),
        )
        return tuple(
            Server(spec.name or f"{role}-{n}", role, spec) for role, specs in by_role for n, spec in enumerate(specs)
        )
