"""How the parts of an observations file must fit together: moments, nodes, and what contradicts itself.

Reads the positioned tree, so it works beside other problems.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.model.moments import MOMENT_PATTERN, parse_moment
from chaos.model.scenario import CENSUS_PHASES, SERVER_ABORTS
from chaos.model.tree import child, did_you_mean, key_mark, members, number_of, seconds_of, text_of
from chaos.model.units import fullmatch
from chaos.model.yamlpos import Mapping, Scalar, Sequence
from chaos.model.yamltext import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.model.errors import Problem
    from chaos.model.known import Known
    from chaos.model.yamlpos import Node

INSIDE = ("at", "from", "to", "done_by")
"""Keys of moments that must lie in the time watched; a process may have started, and a heart have beaten, before."""
SECTIONS = ("logs", "scrapes", "gauges", "requests", "load", "actions", "health", "processes", "heartbeats")
OK = 200


def check_observations(root: Mapping, known: Known | None) -> Iterator[Problem]:
    """Everything that no single field of an observations file can know."""
    nodes = _nodes(root)
    deployment = child(root, "deployment")
    yield from _check_names(members(deployment, "nodes"))
    yield from _check_moments(root)
    yield from _check_node_names(root, nodes)
    for request in members(root, "requests"):
        yield from _check_request(request, nodes)
    for load in members(root, "load"):
        yield from _check_load(load)
    yield from _check_actions(members(root, "actions"))
    yield from _check_processes(members(root, "processes"), text_of(root, "date"))
    if known is not None:
        yield from _check_known(root, known)


def _nodes(root: Mapping) -> dict[str, str]:
    """The role of every node by its id."""
    return {name: text_of(node, "role") or "" for name, node in _named(members(child(root, "deployment"), "nodes"))}


def _named(nodes: list[Mapping]) -> Iterator[tuple[str, Mapping]]:
    """The nodes with their ids: what they are called, else role and ordinal."""
    seen: dict[str, int] = {}
    for node in nodes:
        role = text_of(node, "role") or ""
        yield text_of(node, "name") or f"{role}-{seen.get(role, 0)}", node
        seen[role] = seen.get(role, 0) + 1


def _check_names(nodes: list[Mapping]) -> Iterator[Problem]:
    seen: set[str] = set()
    for name, node in _named(nodes):
        if name in seen:
            yield key_mark(node, "name").problem(f"two nodes are called {quoted(name)}")
        seen.add(name)


# ------------------------------------------------------------------------------------------------ moments


def _check_moments(root: Mapping) -> Iterator[Problem]:
    day = text_of(root, "date")
    for node in _moments(root):
        try:
            parse_moment(str(node.value), day)
        except ValueError as error:
            if str(error) == "no date":
                hint = "add date: 2026-06-20 at the top, or write the date before a T"
                yield node.mark.problem(f"{quoted(str(node.value))} has no date", hint)
            else:
                yield node.mark.problem(f"{quoted(str(node.value))} is in no calendar")
    watched = child(root, "watched")
    since, until = _when(watched, "from", day), _when(watched, "to", day)
    if since is None or until is None or not isinstance(watched, Mapping):
        return
    if until <= since:
        yield watched.values["to"].mark.problem("the watch ends before it begins", "did it go past midnight?")
        return
    for section in SECTIONS:
        for entry in members(root, section):
            yield from _check_inside(entry, day, since, until)


def _moments(root: Mapping) -> Iterator[Scalar]:
    """Every value that has the form of a moment and stands where one belongs."""
    entries = [entry for section in SECTIONS for entry in members(root, section)]
    watched = child(root, "watched")
    for entry in [*entries, *([watched] if isinstance(watched, Mapping) else [])]:
        for key in (*INSIDE, "until", "started", "last"):
            value = child(entry, key)
            if isinstance(value, Scalar) and fullmatch(MOMENT_PATTERN, value.value) is not None:
                yield value


def _when(node: Node | None, key: str, day: str | None) -> int | None:
    """A moment in nanoseconds; None where there is none, or somebody else says what is wrong with it."""
    text = text_of(node, key)
    if text is None or fullmatch(MOMENT_PATTERN, text) is None:
        return None
    try:
        return parse_moment(text, day)
    except ValueError:
        return None


def _check_inside(entry: Mapping, day: str | None, since: int, until: int) -> Iterator[Problem]:
    for key in INSIDE:
        at = _when(entry, key, day)
        if at is not None and not since <= at <= until:
            where = "before" if at < since else "after"
            text = text_of(entry, key) or ""
            yield entry.values[key].mark.problem(f"{quoted(text)} is {where} the time watched", "widen `watched`")
    for first, last in (("at", "done_by"), ("from", "to")):
        one, other = _when(entry, first, day), _when(entry, last, day)
        if one is not None and other is not None and other < one:
            yield entry.values[last].mark.problem(f"`{last}` is before `{first}`")
    begun, took = _when(entry, "at", day), seconds_of(entry, "took")
    if begun is not None and took is not None and "ended" in entry.values and begun + took * 1e9 > until:
        hint = "widen `watched`, or write ended: still-open"
        yield entry.values["took"].mark.problem("it ended after the time watched", hint)


# ------------------------------------------------------------------------------------------------ nodes


def _check_node_names(root: Mapping, nodes: dict[str, str]) -> Iterator[Problem]:
    for section in SECTIONS:
        for entry in members(root, section):
            name = child(entry, "node")
            if isinstance(name, Scalar):
                yield from _known_node(name, nodes)
            listed = child(entry, "nodes")
            for item in listed.items if isinstance(listed, Sequence) else []:
                if isinstance(item, Scalar):
                    yield from _known_node(item, nodes)


def _known_node(name: Scalar, nodes: dict[str, str]) -> Iterator[Problem]:
    if isinstance(name.value, str) and name.value not in nodes:
        yield name.mark.problem(f"there is no node {quoted(name.value)}", did_you_mean(name.value, nodes))


# ------------------------------------------------------------------------------------------------ what was seen


def _check_request(request: Mapping, nodes: dict[str, str]) -> Iterator[Problem]:
    path = text_of(request, "path")
    if path is not None and ">" in path:
        for name, role in zip(path.split(">"), ("prefill", "decode"), strict=False):
            if nodes.get(name) != role:
                options = [node for node, its in nodes.items() if its == role]
                mark = request.values["path"].mark
                yield mark.problem(f"{quoted(name)} is no {role} node", did_you_mean(name, options))
    ended = text_of(request, "ended")
    status, took, first = number_of(request, "status"), seconds_of(request, "took"), seconds_of(request, "first_byte")
    if ended == "complete" and status is not None and status != OK:
        yield request.values["status"].mark.problem(
            f"a request that ended complete has status 200, not {status}", "write ended: error"
        )
    if ended == "complete" and not {"took", "first_byte"} & set(request.values):
        yield key_mark(request, "ended").problem("`took` is missing", "from sending it to the last byte, such as 0.9s")
    if ended == "gave-up" and "took" not in request.values:
        yield key_mark(request, "ended").problem("`took` is missing", "how long it was waited for, such as 60s")
    if took is not None and first is not None and first > took:
        yield request.values["first_byte"].mark.problem("the first byte came after the end")


def _check_load(load: Mapping) -> Iterator[Problem]:
    for one, other in (("completed", "failed"), ("failed", "completed")):
        if one in load.values and other not in load.values:
            yield key_mark(load, one).problem(f"`{one}` needs `{other}`", f"write {other}: 0 if there were none")


def _check_actions(actions: list[Mapping]) -> Iterator[Problem]:
    did_by_id: dict[str, str] = {}
    for action in actions:
        did = text_of(action, "did")
        nodes = child(action, "nodes")
        named = isinstance(nodes, Sequence) and bool(nodes.items)
        if did == "kill-clients" and named:
            yield key_mark(action, "nodes").problem("clients are no nodes", "leave `nodes` out")
        if did in ("kill", "terminate", "stop", "restart") and not named:
            yield key_mark(action, "did").problem(
                "`nodes` is missing", "to which nodes it was done: nodes: [prefill-0]"
            )
        name = text_of(action, "id")
        if name is not None and did is not None and did_by_id.setdefault(name, did) != did:
            hint = "one id is one thing that was done, also several times"
            yield action.values["id"].mark.problem(f"{quoted(name)} is {did} here and {did_by_id[name]} before", hint)


def _check_processes(looks: list[Mapping], day: str | None) -> Iterator[Problem]:
    """No process is seen before it started, and none is alive and dead at once: at any moment a pid is one process."""
    alive: dict[tuple[object, ...], bool] = {}
    for look in looks:
        at, started = _when(look, "at", day), _when(look, "started", day)
        if at is None:
            continue
        if started is not None and started > at:
            hint = "`at` is when somebody looked; of a process that came later write an entry of its own"
            yield look.values["started"].mark.problem("it started after it was looked at", hint)
        for told in (look, *(one for one in members(look, "children") if "pid" in one.values)):
            pid = number_of(told, "pid")
            process = (at, text_of(look, "node"), pid, started if pid is None else None)
            lives = _lives(told)
            if alive.setdefault(process, lives) != lives:
                mark = key_mark(told, "alive" if "alive" in told.values else "state")
                hint = "of two processes write the pid of each, of two looks the moment of each"
                yield mark.problem("the same process is alive and dead at the same moment", hint)


def _lives(told: Mapping) -> bool:
    """Whether a process is said to live; one whose `state` is that of a dead one does not."""
    alive = child(told, "alive")
    if isinstance(alive, Scalar) and alive.value is False:
        return False
    return not (text_of(told, "state") or "").lstrip("<").startswith(("Z", "X", "zombie", "dead", "defunct"))


def _check_known(root: Mapping, known: Known) -> Iterator[Problem]:
    deployment = child(root, "deployment")
    for key in ("engine", "router_engine"):
        engine = text_of(deployment, key)
        if engine is not None and engine not in known.timeouts:
            mark = key_mark(deployment, key) if isinstance(deployment, Mapping) else root.mark
            yield mark.problem(f"there is no pack for {quoted(engine)}", did_you_mean(engine, known.timeouts))
    timeouts = child(deployment, "timeouts")
    of_engine = known.timeouts.get(text_of(deployment, "engine") or "")
    if isinstance(timeouts, Mapping) and of_engine is not None:
        for key, mark in timeouts.keys.items():
            if key not in of_engine:
                yield mark.problem(f"the pack knows no timeout `{key}`", did_you_mean(key, of_engine))
    for entry in members(root, "gauges"):
        yield from _names(child(entry, "values"), known.metrics, "is no metric that the packs know")
    for entry in members(root, "actions"):
        names = {*CENSUS_PHASES, *known.gauges, SERVER_ABORTS}
        yield from _names(child(entry, "aim"), names, "is neither a census phase nor a gauge that the packs know")


def _names(node: Node | None, names: frozenset[str] | set[str], wrong: str) -> Iterator[Problem]:
    if isinstance(node, Mapping):
        for key, mark in node.keys.items():
            if key not in names:
                yield mark.problem(f"`{key}` {wrong}", did_you_mean(key, names))
