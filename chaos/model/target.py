"""What a target file says: where a deployment lives, how to look at it, and what may be done to it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from chaos.model.events import ContentMode
from chaos.model.faults import FaultKind
from chaos.model.headers import Headers
from chaos.model.section import Name, SecretRef, Section, Version1
from chaos.model.units import Duration, Matching, wrong
from chaos.model.yamltext import quoted

if TYPE_CHECKING:
    from chaos.model.events import Role

_AN_ADDRESS = "an address such as http://127.0.0.1:30000"
_PLACE = re.compile(
    r"https?://(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^\[\]:/]*))(?::(?P<port>[0-9]{1,5}))?(?:/.*)?", re.DOTALL
)
_LABEL = re.compile(r"[A-Za-z0-9_~-]{1,63}")
MOST_PORT = 65535
IPV4_PARTS = 4


def _leads_somewhere(url: str) -> str:
    """A URL that can be taken apart and asked for: what cannot would only show where it is used."""
    place = _PLACE.fullmatch(url)
    if place is None or place["v6"] is not None:
        try:
            IPv6Address(place["v6"] if place else "")
        except AddressValueError:
            hint = "after the host only a port may follow; an IPv6 address stands in brackets: http://[::1]:30000"
            raise wrong(f"must be {_AN_ADDRESS}, not {quoted(url)}", hint) from None
    elif not _is_host(place["host"]):
        raise wrong(f"must be {_AN_ADDRESS}, not {quoted(url)}", f"{quoted(place['host'])} is no host")
    if place and place["port"] and not 1 <= int(place["port"]) <= MOST_PORT:
        raise wrong(f"must be {_AN_ADDRESS}, not {quoted(url)}", f"a port is a number from 1 to {MOST_PORT}")
    return url


def _is_host(host: str) -> bool:
    """Whether it is an IPv4 address, or a name that can be looked up."""
    labels = host.removesuffix(".").split(".")
    if len(labels) == IPV4_PARTS and "".join(labels).isdigit():
        try:
            IPv4Address(host)
        except AddressValueError:
            return False
    return all(_LABEL.fullmatch(label) for label in labels)


Url = Annotated[
    str,
    Matching(r"^https?://[A-Za-z0-9._~\[\]:-]+(?:/[^\s?#]*)?$", _AN_ADDRESS, "no user, query or fragment"),
    AfterValidator(_leads_somewhere),
]
FilePath = Annotated[str, Matching(r"^[^\n]+$", "a path")]
ShellCommand = Annotated[str, Field(min_length=1, max_length=4000)]
HostName = Annotated[str, Matching(r"^[A-Za-z0-9._\[\]:-]+$", "a host name or address")]
UserName = Annotated[str, Matching(r"^[A-Za-z_][A-Za-z0-9._-]*[$]?$", "the name of a user")]
HostKey = Annotated[
    str, Matching(r"^(?:ssh|ecdsa)-[a-z0-9@.-]+ [A-Za-z0-9+/]+=*$", "a host's public key such as ssh-ed25519 AAAA…")
]
Unit = Annotated[str, Matching(r"^[A-Za-z0-9@._:\\-]+$", "the name of a systemd unit")]
Container = Annotated[str, Matching(r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", "the name or id of a container")]
Via = Literal["direct", "tunnel", "remote"]


class Ssh(Section):
    """How a host is reached. What a server leaves out is taken from the target's own `ssh`.

    `~/.ssh/config` is honoured unless `ssh_config` is false: HostName, User, Port, IdentityFile, ProxyJump,
    UserKnownHostsFile. A host whose key is neither in `known_hosts` nor pinned by `host_key` is refused. `sudo` runs
    our process on the host as root (`sudo -n`); `python` is its interpreter there, 3.9 or later.
    """

    host: HostName | None = None
    user: UserName | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    jump: str | None = Field(default=None, min_length=1, max_length=500)  # [user@]host[:port], comma-separated
    identity: FilePath | None = None
    known_hosts: FilePath | None = None  # default: ~/.ssh/known_hosts
    host_key: HostKey | None = None
    ssh_config: bool | None = None  # default: true
    sudo: bool | None = None  # default: false
    python: FilePath | None = None

    def over(self, other: Ssh | None) -> Ssh:
        """What this says, and of `other` what this leaves out."""
        if other is None:
            return self
        said = self.model_dump(exclude_none=True)
        return other.model_copy(update=said)


class LogFrom(Section):
    """Where a log is read: exactly one of these. In a file a plain text is a `file`.

    `file` is a path or a glob; `journald` a unit; `docker` a container; `kubectl` arguments for `kubectl logs`, such as
    `-n llm -l app=prefill`; `command` a shell command that prints the log as it grows. Both streams are read.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": [key]} for key in ("file", "journald", "docker", "kubectl", "command")],
            "maxProperties": 1,
        }
    )

    file: FilePath | None = None
    journald: Unit | None = None
    docker: Container | None = None
    kubectl: ShellCommand | None = None
    command: ShellCommand | None = None

    @property
    def told(self) -> str:
        """As people call it: `journald:sglang-prefill`, or a file's path."""
        kind, value = next(iter(self.model_dump(exclude_none=True).items()))
        return str(value) if kind == "file" else f"{kind}:{value}"


def _log_from(value: object) -> object:
    return {"file": value} if isinstance(value, str) else value


def _one_source(value: LogFrom) -> LogFrom:
    if len(value.model_dump(exclude_none=True)) != 1:
        raise wrong("must have exactly one of file, journald, docker, kubectl, command")
    return value


Log = Annotated[
    LogFrom, BeforeValidator(_log_from, json_schema_input_type=FilePath | LogFrom), AfterValidator(_one_source)
]


class ServerSpec(Section):
    """One server. `log` lists what together holds both streams; paths are relative to the target file.

    With `ssh` it is on another host: `url` is as seen from there, paths are paths there, commands run there.

    Canaries straight to a pair need the prefill's `bootstrap_port`. The process is found by `pid`, else `pidfile`, else
    `systemd` (a unit's main process), `docker` (a container's), `cmdline` (the whole command line, matched exactly),
    else whoever listens on `port`. `restart` is a shell command that replaces the process, `restart_as` one for each
    variant of the node that a scenario may ask for; a target whose nodes may be restarted should not give `pid`, which
    the next one has not.
    """

    url: Url
    ssh: Ssh | None = None
    metrics: Url | None = None  # default: url + the pack's metrics path
    log: list[Log] = []
    pid: int | None = Field(default=None, ge=1, le=2**31 - 1)
    pidfile: FilePath | None = None
    systemd: Unit | None = None
    docker: Container | None = None
    cmdline: ShellCommand | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    address: HostName | None = None  # by which other nodes reach it; default: the host of `url`
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


class Agents(Section):
    """Where the load runs with `via: remote`."""

    ssh: Ssh


class Tls(Section):
    """How https servers are checked."""

    verify: bool = True
    ca: FilePath | None = None


def _said_aloud(schema: dict[str, Any]) -> None:
    schema["required"] = sorted({*schema["required"], "environment", "allow"})


class Target(Section):
    """A whole target file. In a file `environment` and `allow` must be said (`chaos.model.target_checks`).

    `content` is what answers can be held to: `echo` (the model repeats a code it is asked to repeat), `known-answer`
    (the same question gets the same answer at temperature 0), `unchecked`; `auto` lets the baseline decide.

    `via` is how requests reach the servers: `direct`ly from here, through a `tunnel` of the SSH connections, or with
    the load itself `remote`, on the host of `agents` (default: the router's). `ssh` holds what hosts have in common.

    `api_key` is sent as `Authorization: Bearer`. Secrets are references: `env:NAME`, `file:PATH`, `cmd:COMMAND` (a
    shell command of this machine that prints it within 20 s).

    `restart` is a shell command that replaces the whole deployment by a freshly started one, for trials; it runs here.
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
    headers: Headers = {}  # of every request of ours
    tls: Tls = Tls()
    allow: list[FaultKind] = ["kill"]
    content: ContentMode = "auto"
    via: Via = "direct"
    ssh: Ssh | None = None
    agents: Agents | None = None
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

    def ssh_of(self, spec: ServerSpec) -> Ssh | None:
        """How a server's host is reached, all told; None when it is on this machine."""
        ssh = spec.ssh.over(self.ssh) if spec.ssh else self.ssh
        return ssh if ssh is not None and ssh.host is not None else None
