"""How the parts of a timeline must fit together: one trigger and one action per step, names that exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.model.actions import ACTIONS, NETWORK_KEYS
from chaos.model.faults import HOLDS
from chaos.model.links import check_network
from chaos.model.scenario import CENSUS_PHASES, SERVER_ABORTS, Step
from chaos.model.tree import child, did_you_mean, key_mark, number_of, positive, text_of
from chaos.model.yamlpos import Mapping
from chaos.model.yamltext import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from chaos.model.errors import Problem
    from chaos.model.known import Known
    from chaos.model.yamlpos import Node

TRIGGERS = ("at", "when", "after")


def check_timeline(steps: list[Mapping], groups: dict[str, float | None], known: Known | None) -> Iterator[Problem]:
    """Everything that no single field of a step can know; `groups` tell how many sessions each can have, or None."""
    earlier: list[str] = []
    for step in steps:
        yield from _check_trigger(step, earlier)
        yield from _check_action(step)
        yield from _check_kill(child(step, "kill"), groups)
        yield from _check_group(child(step, "sham"), groups)
        yield from _check_how(step, known)
        yield from _check_for(step)
        for action in ACTIONS[1:]:
            for selector, usual in (("where", "one"), ("from", "all"), ("to", "all")):
                yield from _check_where(child(child(step, action), selector), usual)
        for action in NETWORK_KEYS:
            yield from check_network(child(step, action))
        yield from _check_conditions(step, known)
        earlier += [name for name in (text_of(step, "id"),) if name]


def _check_trigger(step: Mapping, earlier: list[str]) -> Iterator[Problem]:
    given = [key for key in TRIGGERS if key in step.values]
    if not given:
        yield step.mark.problem("the step has no trigger", "give it one of at, when, after")
    for extra in given[1:]:
        yield key_mark(step, extra).problem(f"`{given[0]}` and `{extra}` exclude each other", "one trigger per step")
    after = text_of(step, "after")
    if after is not None and after not in earlier:
        hint = did_you_mean(after, earlier) if earlier else "it must come earlier in the timeline"
        yield step.values["after"].mark.problem(f"there is no earlier step {quoted(after)}", hint)


def _check_action(step: Mapping) -> Iterator[Problem]:
    given = [key for key in ACTIONS if key in step.values]
    known = {field.alias or name for name, field in Step.model_fields.items()}
    if not given and step.values.keys() <= known:  # an unknown key stands in its place, and is told of already
        yield step.mark.problem("the step has no action", f"give it one of {', '.join(ACTIONS)}")
    for extra in given[1:]:
        yield key_mark(step, extra).problem(f"`{given[0]}` and `{extra}` exclude each other", "one action per step")


def _check_group(action: Node | None, groups: Collection[str]) -> Iterator[Problem]:
    group = text_of(action, "group")
    if isinstance(action, Mapping) and group is not None and group not in groups:
        yield action.values["group"].mark.problem(f"there is no group {quoted(group)}", did_you_mean(group, groups))


def _check_kill(kill: Node | None, groups: dict[str, float | None]) -> Iterator[Problem]:
    if not isinstance(kill, Mapping):
        return
    yield from _check_group(kill, groups)
    if text_of(kill, "how") in (None, "sigkill") and number_of(kill, "sessions") is not None:
        mark = kill.values["sessions"].mark
        yield mark.problem("sigkill ends whole client processes", "to hit chosen sessions use how: rst")
        return
    wanted, group = number_of(kill, "sessions"), text_of(kill, "group") or ""
    most = groups.get(group)
    if wanted is not None and most is not None and wanted > most:
        message = f"{wanted:g} sessions can never be hit: the group {quoted(group)} has {most:g} at most"
        hint = "write sessions: all, or give the group more: `sessions`, or `saturate.max_sessions`"
        yield kill.values["sessions"].mark.problem(message, hint)


def _check_how(step: Mapping, known: Known | None) -> Iterator[Problem]:
    """What a way of `kill` needs beside it, and what means nothing with another one."""
    kill = child(step, "kill")
    if not isinstance(kill, Mapping):
        return
    how = text_of(kill, "how") or "sigkill"
    mark = kill.values["how"].mark if "how" in kill.values else kill.mark
    yield from positive(kill, "deadline")
    if how == "timeout" and "deadline" not in kill.values:
        yield mark.problem("how: timeout needs a `deadline`", "add deadline: 10s, how long after it was sent")
    if how in HOLDS and "for" not in step.values:
        yield mark.problem(f"{how} must end before the run does", "add for: 20s beside `kill`")
    if how == "abort-api" and known is not None and known.aborting is not None and not known.aborting:
        yield mark.problem("nothing says how to have a request aborted", "a pack of the target needs endpoints.abort")
    if how != "timeout" and "deadline" in kill.values:
        yield key_mark(kill, "deadline").problem("`deadline` is for how: timeout")
    if how not in HOLDS and "then" in kill.values and text_of(kill, "then") != "resume":
        yield key_mark(kill, "then").problem(f"`then` is for how: {' and '.join(HOLDS)}")


def _check_for(step: Mapping) -> Iterator[Problem]:
    yield from positive(step, "for")
    undone = text_of(child(step, "signal"), "send") == "STOP" or text_of(child(step, "restart"), "as") is not None
    undone = undone or text_of(child(step, "kill"), "how") in HOLDS or any(key in step.values for key in NETWORK_KEYS)
    if "for" in step.values and not undone:
        hint = "signal: {send: STOP}, restart: {as: VARIANT}, stall, blackhole and faults of the network can be undone"
        yield key_mark(step, "for").problem("`for` has nothing to undo here", hint)
    variant = child(child(step, "restart"), "as")
    if variant is not None and "for" not in step.values:
        hint = "add for: 30s beside `restart`; until then nothing is expected of the node"
        yield variant.mark.problem("a node restarted as a variant must become itself again", hint)


def _check_where(where: Node | None, usual: str) -> Iterator[Problem]:
    if not isinstance(where, Mapping):
        return
    if "rank" in where.values and "child" in where.values:
        yield key_mark(where, "child").problem("`rank` and `child` exclude each other", "either names a process")
    if "node" not in where.values or "mode" not in where.values:
        return
    if text_of(where, "mode") not in ("one", usual):
        yield key_mark(where, "mode").problem("`node` names one node already", "leave `mode` out")


def _check_conditions(step: Mapping, known: Known | None) -> Iterator[Problem]:
    names = set(CENSUS_PHASES) | set(known.gauges if known else ())
    when, aim = child(step, "when"), child(step, "aim")
    if isinstance(when, Mapping) and SERVER_ABORTS in when.values:
        hint = "it belongs into `aim`: it is known only after the wave"
        yield when.keys[SERVER_ABORTS].problem(f"`{SERVER_ABORTS}` cannot be waited for", hint)
    if known is not None:
        yield from _known_conditions(when, names, skip=SERVER_ABORTS)
        yield from _known_conditions(aim, names | {SERVER_ABORTS})


def _known_conditions(node: Node | None, names: Collection[str], skip: str = "") -> Iterator[Problem]:
    if isinstance(node, Mapping):
        for key, mark in node.keys.items():
            if key not in names and key != skip:
                message = f"`{key}` is neither a census phase nor a gauge that the packs know"
                yield mark.problem(message, did_you_mean(key, names))
