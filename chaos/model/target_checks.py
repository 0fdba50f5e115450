"""How the parts of a target file must fit together: what no single value can know."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from chaos.model.checks import check_headers
from chaos.model.tree import child, did_you_mean, key_mark, members, text_of
from chaos.model.yamlpos import Mapping, Scalar, Sequence
from chaos.model.yamltext import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.model.errors import Problem
    from chaos.model.known import Known
    from chaos.model.yamlpos import Node

SAID_ALOUD = {
    "environment": "write environment: staging; nothing is taken for granted about what may be broken",
    "allow": "write allow: [kill] to let pdchaos kill its own clients, allow: [] to let it only look",
}
"""Keys of a target file without a default: what may be done to a deployment is never assumed."""
SELECTORS = ("pid", "pidfile", "systemd", "docker", "cmdline")
"""Each leads to a server's process by itself; `port` may stand beside one of them, for it is asked last."""
_HOP = re.compile(r"(?:[^@\s,]+@)?(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")


def check_target(root: Mapping, known: Known | None) -> Iterator[Problem]:
    """Everything that no single field of a target can know."""
    for key, hint in SAID_ALOUD.items():
        if key not in root.values:
            yield root.mark.problem(f"`{key}` is missing", hint)
    servers = [("router", router)] if isinstance(router := child(root, "router"), Mapping) else []
    for role in ("prefill", "decode"):
        servers += [(f"{role}-{index}", server) for index, server in enumerate(members(root, role))]
    yield from _check_names(root, servers)
    for default, server in servers:
        yield from _check_server(root, server, text_of(server, "name") or default)
    yield from _check_ssh(root, servers)
    yield from check_headers(root)
    if known is not None:
        yield from _check_engines(root, known)


def _check_names(root: Mapping, servers: list[tuple[str, Mapping]]) -> Iterator[Problem]:
    urls: dict[tuple[str, str], str] = {}
    names: dict[str, str] = {}
    for default, server in servers:
        url = (text_of(server, "url") or "").rstrip("/")
        # Beside `direct` an address means what it means on the server's own host.
        place = ("" if _via(root) == "direct" else _host(root, server) or "", url)
        if place in urls:
            yield server.values["url"].mark.problem(f"{default} has the same address as {urls[place]}")
        elif url:
            urls[place] = default
        name = text_of(server, "name") or default
        if name in names:
            yield key_mark(server, "name").problem(f"two servers are called {quoted(name)}")
        names[name] = default


def _check_server(root: Mapping, server: Mapping, name: str) -> Iterator[Problem]:
    ways = [key for key in SELECTORS if key in server.values]
    if len(ways) > 1:
        message = f"`{ways[1]}` and `{ways[0]}` both say how {name}'s process is found"
        yield key_mark(server, ways[1]).problem(message, "keep one; `port` may stand beside it")
    variants = child(server, "restart_as")
    if isinstance(variants, Mapping) and variants.values and "restart" not in server.values:
        message = "`restart_as` starts a variant, and nothing says how to put the node right again"
        yield key_mark(server, "restart_as").problem(message, "add restart: COMMAND")
    if _host(root, server) is None:
        return
    for key, value in (("pidfile", child(server, "pidfile")), *(("log", file) for file in _log_files(server))):
        if isinstance(value, Scalar) and isinstance(value.value, str) and not value.value.startswith("/"):
            message = f"{quoted(value.value)} is a path on {name}'s host, and nobody knows from where it would begin"
            yield value.mark.problem(message, f"`{key}` with ssh: write the whole path, from /")


def _log_files(server: Mapping) -> list[Node]:
    logs = child(server, "log")
    items = logs.items if isinstance(logs, Sequence) else []
    return [found for item in items if (found := child(item, "file") if isinstance(item, Mapping) else item)]


def _check_ssh(root: Mapping, servers: list[tuple[str, Mapping]]) -> Iterator[Problem]:
    common, via = child(root, "ssh"), _via(root)
    blocks = [block for _, server in servers if isinstance(block := child(server, "ssh"), Mapping)]
    blocks += [block for block in (common, child(child(root, "agents"), "ssh")) if isinstance(block, Mapping)]
    for block in blocks:
        yield from _check_jump(block)
    for default, server in servers:
        if isinstance(child(server, "ssh"), Mapping) and _host(root, server) is None:
            message = f"`ssh` of {text_of(server, 'name') or default} names no host, so nothing is reached over it"
            yield key_mark(server, "ssh").problem(message, "add host: NAME, here or in the target's own `ssh`")
    if isinstance(common, Mapping) and not any(_host(root, one) or child(one, "ssh") for _, one in servers):
        message = "`ssh` is said, and no server has a host to reach over it"
        yield key_mark(root, "ssh").problem(message, "give each server ssh: {host: NAME}, or remove it")
    yield from _check_agents(root)
    if via in ("tunnel", "remote"):
        for default, server in servers:
            if _host(root, server) is None and "url" in server.values:
                message = f"{text_of(server, 'name') or default} has no `ssh`, so no request reaches it with via: {via}"
                yield server.mark.problem(message, "give it ssh: {host: NAME}, or write via: direct")


def _check_jump(block: Mapping) -> Iterator[Problem]:
    jump = text_of(block, "jump")
    if jump is not None and not all(_HOP.fullmatch(hop.strip()) for hop in jump.split(",")):
        yield block.values["jump"].mark.problem(
            f"`jump` must be [user@]host[:port], several separated by commas, not {quoted(jump)}"
        )


def _check_agents(root: Mapping) -> Iterator[Problem]:
    agents = child(root, "agents")
    if not isinstance(agents, Mapping):
        return
    if (via := _via(root)) != "remote":
        message = f"`agents` says where the load runs with via: remote, and this target has via: {via}"
        yield key_mark(root, "agents").problem(message, "write via: remote, or remove it")
    elif isinstance(child(agents, "ssh"), Mapping) and _host(root, agents) is None:
        yield key_mark(agents, "ssh").problem("`ssh` of `agents` names no host", "add host: NAME")


def _host(root: Mapping, server: Mapping) -> str | None:
    """The host over which a server is reached, as the model says (`Target.ssh_of`)."""
    return text_of(child(server, "ssh"), "host") or text_of(child(root, "ssh"), "host")


def _via(root: Mapping) -> str:
    return text_of(root, "via") or "direct"


def _check_engines(root: Mapping, known: Known) -> Iterator[Problem]:
    for key, default in (("engine", "sglang"), ("router_engine", "sglang-router")):
        engine = text_of(root, key) or default
        if engine not in known.timeouts:
            mark = root.values[key].mark if key in root.values else root.mark
            yield mark.problem(f"there is no pack for {quoted(engine)}", did_you_mean(engine, known.timeouts))
    timeouts = child(root, "timeouts")
    of_engine = known.timeouts.get(text_of(root, "engine") or "sglang")
    if isinstance(timeouts, Mapping) and of_engine is not None:
        for key, mark in timeouts.keys.items():
            if key not in of_engine:
                yield mark.problem(f"the pack knows no timeout `{key}`", did_you_mean(key, of_engine))
