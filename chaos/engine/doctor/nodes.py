"""The servers of a target: do they answer, can they be observed, may they be broken as the target allows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chaos.engine.doctor import privileges
from chaos.engine.doctor.row import Row, State
from chaos.engine.probes.exposition import BadExposition, Exposition
from chaos.engine.probes.http import TRANSPORT_ERRORS
from chaos.engine.probes.metrics import fetch_exposition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    import httpx

    from chaos.engine.hosts import Hosts
    from chaos.engine.probes.discover import Looked
    from chaos.model.target import Server, Target

READING_ERRORS: tuple[type[Exception], ...] = (BadExposition, TimeoutError, *TRANSPORT_ERRORS)
FIXES = {
    "http": "is it up, and is `url` its address as seen from its host (via: direct: from here)?",
    "metrics": "start the engine with --enable-metrics, or mend `metrics`",
    "log": "name what holds both streams of it (log: …), readable for the user that we are there",
    "process": "give it one of pidfile, systemd, docker, cmdline, port that leads to its process, and no other's",
}


async def look(
    server: Server,
    looked: Looked,
    target: Target,
    hosts: Hosts,
    *,
    http: httpx.AsyncClient,
    headers: Mapping[str, str],
) -> AsyncIterator[Row]:
    """Everything about one server but its paths."""
    found, name = looked.found, server.id
    wrong = {problem.topic for problem in looked.problems}
    for problem in looked.problems:
        yield Row(name, problem.topic, State.PROBLEM, _after(name, problem.text), FIXES[problem.topic])
    if "http" not in wrong:
        yield Row.ok(name, "http", f"answers; version {found.node.version or 'unknown'}")
        if "metrics" not in wrong:
            yield await _metrics(name, looked, http, headers)
    if "log" not in wrong:
        told = ", ".join(log.told for log in server.spec.log)
        yield Row.ok(name, "log", f"{told} can be read") if told else _unnamed(name, "log", "no log is read")
    if "process" not in wrong:
        at = found.process
        told = f"pid {at.found.pid}" if at else ""
        yield Row.ok(name, "process", told) if at else _unnamed(name, "process", "its process is not watched")
    for row in await asyncio.to_thread(lambda: list(_allowed(server, target, hosts))):
        yield row


def _unnamed(name: str, topic: str, said: str) -> Row:
    return Row(name, topic, State.NOTE, f"the target names none, so {said}", FIXES[topic])


async def _metrics(name: str, looked: Looked, http: httpx.AsyncClient, headers: Mapping[str, str]) -> Row:
    source = looked.found.metrics
    if source is None:
        said = next((note for note in looked.notes if "no metrics" in note), "no metrics")
        return Row(name, "metrics", State.PROBLEM, _after(name, said), FIXES["metrics"])
    try:
        reading = Exposition(source.wanted).read(await fetch_exposition(http, source.url, headers))
    except READING_ERRORS as error:
        return Row(name, "metrics", State.PROBLEM, str(error) or type(error).__name__, FIXES["metrics"])
    there = {sample.name for sample in reading.samples} | set(reading.zero)
    if not there:
        return Row(name, "metrics", State.PROBLEM, "none of the wanted families is there", FIXES["metrics"])
    missing = [wanted for wanted in source.wanted if wanted.name not in there]
    gauges = sorted(wanted.name for wanted in missing if wanted.kind == "gauge")
    said = f"{len(there)} of {len(source.wanted)} wanted families"
    if len(missing) > len(gauges):
        said += f", counters that have counted nothing yet: {len(missing) - len(gauges)}"
    if gauges:
        said += f"; what these would tell stays unknown: {', '.join(gauges)}"
        return Row(name, "metrics", State.NOTE, said)
    return Row.ok(name, "metrics", said)


def _allowed(server: Server, target: Target, hosts: Hosts) -> Iterator[Row]:
    """What the target allows, and whether it could be done."""
    host = hosts.at(server.id)
    if "signal" in target.allow:
        yield privileges.signals(server, host)
    if "restart" in target.allow:
        if server.spec.restart is None:
            said = "allowed, and nothing says how to restart it"
            yield Row(server.id, "restart", State.REFUSED, said, "give it restart: COMMAND")
        else:
            yield Row.ok(server.id, "restart", "there is a command (not tried)")
    if "network" in target.allow:
        yield from privileges.network(server, target, hosts)
    if "protocol" in target.allow and server.role == "prefill" and server.spec.bootstrap_port is None:
        said = "allowed, and its control socket cannot be found"
        yield Row(server.id, "protocol", State.REFUSED, said, "give it its bootstrap_port")


def _after(name: str, text: str) -> str:
    return text.removeprefix(f"{name}: ").removeprefix(f"{name} ")
