"""How the parts of a file must fit together. Reads the positioned tree, so it works beside other problems.

Everything here is beyond JSON Schema: names that refer to each other, values that contradict each other.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from chaos.model.headers import RESERVED_HEADERS, SECRET_NAME
from chaos.model.repetition import FEWEST_TRIALS
from chaos.model.timeline import check_timeline
from chaos.model.tree import child, did_you_mean, key_mark, members, number_of, positive, seconds_of, text_of
from chaos.model.yamlpos import Mapping, Scalar, Sequence
from chaos.model.yamltext import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from chaos.model.errors import Problem
    from chaos.model.known import Known
    from chaos.model.yamlpos import Node

MIN_CANARY_INTERVAL_S = 0.1
"""Canaries are side traffic; more than ten a second per path would be load."""


def check_scenario(root: Mapping, known: Known | None) -> Iterator[Problem]:
    """Everything that no single field of a scenario can know."""
    groups = members(root, "load")
    steps = members(root, "timeline")
    yield from _unique(groups, "name", "group")
    yield from _unique(steps, "id", "step")
    for group in groups:
        yield from _check_load(group, has_timeline=bool(steps))
        yield from check_headers(group)
    most = {name: _most_sessions(group) for group in groups if (name := text_of(group, "name"))}
    yield from check_timeline(steps, dict.fromkeys(most) if _resized(root) else most, known)
    yield from _check_times(root)
    yield from _check_control(root, has_timeline=bool(steps))
    if known is not None:
        yield from _each_in(child(child(root, "requires"), "packs"), "pack", known.timeouts)
        yield from _each_in(child(child(root, "requires"), "metrics"), "metric", known.metrics)


def _most_sessions(group: Mapping) -> float | None:
    """How many sessions a group can have at one time; None where that follows from a rate."""
    if child(child(group, "arrival"), "rate") is not None:
        return None
    if "saturate" in group.values:
        return number_of(child(group, "saturate"), "max_sessions")
    return number_of(group, "sessions") or 1


def _resized(root: Mapping) -> bool:
    """Whether a sweep changes groups or waves: then each of its doses is held to that, by itself."""
    sweep = child(root, "sweep")
    keys = sweep.values if isinstance(sweep, Mapping) else ()
    sizes = {"sessions", "saturate", "max_sessions", "arrival", "rate", "kill"}
    return any(sizes & set(key.split(".")) for key in keys)


def _check_control(root: Mapping, *, has_timeline: bool) -> Iterator[Problem]:
    control = child(root, "control")
    if control is None or (isinstance(control, Scalar) and control.value is not True):
        return
    mark = key_mark(root, "control")
    if not has_timeline:
        yield mark.problem("`control` leaves out the fault, and there is none", "remove it")
    if (number_of(child(root, "trials"), "count") or 1) < FEWEST_TRIALS:
        message = f"with fewer than {FEWEST_TRIALS} trials nobody can tell a slower target from chance"
        yield mark.problem(message, f"trials: {{count: {FEWEST_TRIALS}}} and as many of the control")


def _unique(nodes: list[Mapping], key: str, what: str) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for node in nodes:
        name = text_of(node, key)
        if name is None:
            continue
        mark = node.values[key].mark
        if name in seen:
            yield mark.problem(f"there are two {what}s with the {key} {quoted(name)}", f"first in line {seen[name]}")
        seen.setdefault(name, mark.line)


def _check_load(group: Mapping, *, has_timeline: bool) -> Iterator[Problem]:
    yield from positive(group, "timeout")
    yield from _check_saturate(group)
    arrival = child(group, "arrival")
    if not isinstance(arrival, Mapping):
        return
    if "rate" in arrival.values:
        yield from _check_open_loop(group, arrival, has_timeline=has_timeline)
    elif "for" in arrival.values:
        yield key_mark(arrival, "for").problem("`for` ends an open loop and needs a `rate`")


def _check_saturate(group: Mapping) -> Iterator[Problem]:
    sessions = number_of(group, "sessions") or 1
    saturate = child(group, "saturate")
    top = number_of(saturate, "max_sessions")
    if isinstance(saturate, Mapping) and top is not None:
        if top < sessions:
            mark = saturate.values["max_sessions"].mark
            yield mark.problem(f"`max_sessions` is {top}, fewer than the {sessions} sessions the group begins with")
        elif (waiting := number_of(saturate, "waiting")) is not None and waiting > top:
            yield saturate.values["waiting"].mark.problem(f"{waiting} sessions can never wait: `max_sessions` is {top}")


def _check_open_loop(group: Mapping, arrival: Mapping, *, has_timeline: bool) -> Iterator[Problem]:
    # A default that is written out contradicts nothing: run folders hold scenarios with all their values.
    if seconds_of(arrival, "ramp"):
        yield key_mark(arrival, "ramp").problem("`ramp` and `rate` exclude each other", "a rate needs no ramp")
    for key, why in (
        ("sessions", "how many there are follows from the rate"),
        ("rounds", "each session of an open loop sends one request"),
        ("saturate", "an open loop adds sessions all the time"),
    ):
        if key in group.values and number_of(group, key) != 1:
            yield key_mark(group, key).problem(f"`{key}` and `arrival.rate` exclude each other", why)
    if not has_timeline and "for" not in arrival.values:
        yield key_mark(arrival, "rate").problem("without a timeline this load never ends", "add for: 60s")
    yield from positive(arrival, "for")


def _check_times(root: Mapping) -> Iterator[Problem]:
    canary, expect = child(root, "canary"), child(root, "expect")
    yield from positive(canary, "deadline")
    yield from positive(expect, "recover_within")
    every = seconds_of(canary, "every")
    if isinstance(canary, Mapping) and every is not None and every < MIN_CANARY_INTERVAL_S:
        yield canary.values["every"].mark.problem(f"canaries every {every:g} s would be load", "100ms is the least")
    observe = child(root, "observe")
    at_most, within = seconds_of(observe, "at_most"), seconds_of(expect, "recover_within")
    within = 60.0 if within is None else within
    if isinstance(observe, Mapping) and at_most is not None and at_most < within:
        message = f"watching {at_most:g} s cannot tell whether paths recover within {within:g} s"
        yield observe.values["at_most"].mark.problem(message, "watch longer or set expect.recover_within")


def _each_in(node: Node | None, what: str, known: Collection[str]) -> Iterator[Problem]:
    if isinstance(node, Sequence):
        for item in node.items:
            if isinstance(item, Scalar) and isinstance(item.value, str) and item.value not in known:
                yield item.mark.problem(f"there is no {what} {quoted(item.value)}", did_you_mean(item.value, known))


def check_headers(node: Mapping) -> Iterator[Problem]:
    """Headers that call themselves secrets and are written out; `{text: …}` says that one is none."""
    headers = child(node, "headers")
    for name, value in headers.values.items() if isinstance(headers, Mapping) else ():
        if name.lower() in RESERVED_HEADERS:
            continue  # refused, whatever it says
        if isinstance(value, Scalar) and SECRET_NAME.search(name):
            hint = "write {secret: env:NAME}, or {text: …} if it is none"
            yield value.mark.problem(f"`{name}` looks like a secret, and those are never written here", hint)


def check_pack(root: Mapping) -> Iterator[Problem]:
    """Everything that no single field of a pack can know."""
    yield from _unique(members(root, "metrics"), "name", "metric")
    yield from _unique(members(root, "timeouts"), "name", "timeout")
    yield from _unique(members(root, "signatures"), "id", "signature")
    yield from _unique(members(root, "readings"), "id", "reading")
    for signature in members(root, "signatures"):
        yield from _group_exists(signature, "key", text_of(signature, "pattern"))
    uses = {text_of(metric, "name"): text_of(metric, "use") for metric in members(root, "metrics")}
    for reading in members(root, "readings"):
        for level in members(reading, "levels"):
            yield from _group_exists(level, "group", text_of(reading, "pattern"))
            name, use = text_of(level, "metric"), text_of(level, "use")
            if use is not None and uses.get(name, use) != use:
                hint = f"write use: {uses[name]}"
                yield level.values["use"].mark.problem(f"the metric {quoted(name or '')} has another use", hint)


def _group_exists(node: Mapping, key: str, pattern: str | None) -> Iterator[Problem]:
    """Whether the pattern has the group that `node` names under `key`."""
    name = text_of(node, key)
    if name and pattern is not None and f"(?P<{name}>" not in pattern:
        groups = re.findall(r"\(\?P<(\w+)>", pattern)
        yield node.values[key].mark.problem(
            f"the pattern has no group {quoted(name)}",
            did_you_mean(name, groups) if groups else "write (?P<NAME>...)",
        )
