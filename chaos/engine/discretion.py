"""What no event may tell: a secret, wherever it stands, and the name of a machine, in what is written for people.

Servers echo what they were sent, and errors of connections name hosts. An identity in a journal is a role and an
ordinal, so a host becomes the server that is there, or `host-N` where several are.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from chaos.engine.forensics.redact import Redactor
from chaos.engine.secrets import REDACTED, known_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chaos.model.events import AnyEvent
    from chaos.model.target import ServerSpec, Ssh, Target

PROSE = frozenset(
    {
        "cause", "cleanup_detail", "detail", "error", "labels", "line", "measured", "missing", "not_examined", "note",
        "reason",
    }
)  # fmt: skip
"""Fields that people read, and labels, which are the target's; everything else holds identities of our own."""
_EVERY_MACHINE = re.compile(r"localhost|127\.[\d.]+|::1|0\.0\.0\.0|::|\[::1?\]")


def machine_names(target: Target) -> dict[str, str]:
    """What to call each machine that a target names, by its name in lower case; localhost, which all have, stays."""
    servers: dict[str, list[str]] = {}
    for server in target.servers:
        spec = server.spec
        urls = [urlsplit(url).hostname or "" for url in (spec.url, spec.metrics or "")]
        for name in (*urls, spec.address or "", spec.bootstrap_host or "", *_of(target.ssh_of(spec))):
            at = servers.setdefault(name.strip("[]").lower(), [])
            if server.id not in at:
                at.append(server.id)
    for name in _of(target.agents.ssh.over(target.ssh) if target.agents else None):
        servers.setdefault(name.strip("[]").lower(), [])
    ids = {word for server in target.servers for word in (server.id, server.role)}
    machines = [name for name in servers if name and name not in ids and not _EVERY_MACHINE.fullmatch(name)]
    return {
        name: servers[name][0] if len(servers[name]) == 1 else f"host-{n}" for n, name in enumerate(machines, start=1)
    }


def without_secrets(target: Target) -> Target:
    """The target without secrets that its owner wrote into commands; references stay."""
    redactor = Redactor(known_secrets())

    def command(text: str | None) -> str | None:
        return None if text is None else " ".join(redactor.arguments(redactor.text(text).split(" ")))

    def reference(text: str | None) -> str | None:
        return command(text) if text and text.startswith("cmd:") else text

    def server(spec: ServerSpec) -> ServerSpec:
        logs = [
            log.model_copy(update={"command": command(log.command), "kubectl": command(log.kubectl)})
            for log in spec.log
        ]
        restart_as = {name: command(text) for name, text in spec.restart_as.items()}
        return spec.model_copy(update={"log": logs, "restart": command(spec.restart), "restart_as": restart_as})

    return target.model_copy(
        update={
            "router": server(target.router),
            "prefill": [server(spec) for spec in target.prefill],
            "decode": [server(spec) for spec in target.decode],
            "restart": command(target.restart),
            "api_key": reference(target.api_key),
            "headers": {
                name: value.model_copy(update={"secret": reference(value.secret)})
                for name, value in target.headers.items()
            },
        }
    )


def _of(ssh: Ssh | None) -> Iterator[str]:
    if ssh is None:
        return
    yield ssh.host or ""
    for hop in (ssh.jump or "").split(","):
        yield hop.rpartition("@")[2].partition(":")[0].strip()


def discreet(target: Target) -> Callable[[AnyEvent], AnyEvent]:
    """What takes secrets and names of machines out of events. Secrets are those that are known when it is made."""
    secrets, machines = sorted(known_secrets(), key=len, reverse=True), machine_names(target)
    names = sorted(machines, key=len, reverse=True)
    hidden = [json.dumps(secret)[1:-1] for secret in secrets]
    if not (names or hidden):
        return lambda event: event
    suspect = re.compile("|".join(map(re.escape, (*hidden, *names))).encode(), re.IGNORECASE)
    words = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, names))})(?![\w-]|\.\w)", re.IGNORECASE)
    encoder = msgspec.json.Encoder()

    def clean(text: str, *, prose: bool) -> str:
        for secret in secrets:
            text = text.replace(secret, REDACTED)
        return words.sub(lambda found: machines[found[0].lower()], text) if prose and names else text

    def walk(value: Any, *, prose: bool) -> Any:
        match value:
            case str():
                return clean(value, prose=prose)
            case list():
                return [walk(inner, prose=prose) for inner in value]
            case dict():
                return {
                    clean(key, prose=prose): walk(inner, prose=prose or key in PROSE) for key, inner in value.items()
                }
            case _:
                return value

    def event_without(event: AnyEvent) -> AnyEvent:
        line = encoder.encode(event)
        if not suspect.search(line):
            return event
        return msgspec.convert(walk(msgspec.json.decode(line), prose=False), type(event))

    return event_without
