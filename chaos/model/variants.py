"""The variants of a scenario: one for each dose of its sweep, each whole and valid, or problems at the dose's place."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.model.errors import Problem
from chaos.model.repetition import MOST_RUNS
from chaos.model.tree import child, key_mark, number_of, replace
from chaos.model.units import parse_duration, parse_rate
from chaos.model.yamlpos import Mapping, Scalar, Sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chaos.model.yamlpos import Node

SWEEPABLE = ("load", "timeline", "cycles", "observe", "canary")
"""What a dose may change. Not what is called good (`expect`), nor how often it is tried."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One dose and the tree of the scenario with it; `dose` is empty where nothing is swept."""

    dose: str
    tree: Mapping


def variants(root: Mapping) -> list[Variant]:
    """The scenario once for each dose, without its sweep. Expects a tree that `check_sweep` has nothing against."""
    sweep = child(root, "sweep")
    if not isinstance(sweep, Mapping):
        return [Variant("", root)]
    columns = [(key, node.items) for key, node in sweep.values.items() if isinstance(node, Sequence)]
    found = []
    for values in zip(*(items for _, items in columns), strict=True):
        chosen = [(key, value) for (key, _), value in zip(columns, values, strict=True)]
        tree, _ = _with(root, chosen)
        found.append(Variant(_label(chosen), tree))
    return found


def check_sweep(root: Mapping, check: Callable[[Mapping], list[Problem]]) -> Iterator[Problem]:
    """Everything wrong with a sweep. `check` says what is wrong with a scenario that sweeps nothing."""
    sweep = child(root, "sweep")
    if not isinstance(sweep, Mapping):
        return
    columns = {key: node.items for key, node in sweep.values.items() if isinstance(node, Sequence) and node.items}
    if len(columns) != len(sweep.values) or not columns:
        return  # whoever reads single values says so
    first, *others = columns
    for key in columns:
        if key.split(".")[0] not in SWEEPABLE:
            hint = f"it may be something under {', '.join(SWEEPABLE)}"
            yield key_mark(sweep, key).problem(f"`{key}` is no dose", hint)
    for key in others:
        if len(columns[key]) != len(columns[first]):
            message = f"`{first}` has {len(columns[first])} doses, and `{key}` has {len(columns[key])}"
            yield sweep.values[key].mark.problem(message, "what is swept together changes together")
            return
    yield from _check_order(first, columns[first])
    yield from _check_number(root, sweep, len(columns[first]))
    known = {(problem.message, problem.hint) for problem in check(root)}
    for values in zip(*columns.values(), strict=True):
        chosen = list(zip(columns, values, strict=True))
        tree, problems = _with(root, chosen)
        for problem in problems or check(tree):
            if (problem.message, problem.hint) not in known:
                yield values[0].mark.problem(f"with {_label(chosen)}: {problem.message}", problem.hint)


def _check_order(key: str, items: list[Node]) -> Iterator[Problem]:
    """The smallest dose that broke something can only be told of doses that grow."""
    sizes = [_size(item) for item in items]
    for item, size, before in zip(items[1:], sizes[1:], sizes, strict=False):
        if size is not None and before is not None and size <= before:
            yield item.mark.problem(f"the doses of `{key}` must grow", "smallest first, each once")
            return
    for item, size in zip(items, sizes, strict=True):
        if size is None and isinstance(item, Scalar) and isinstance(item.value, str):
            yield item.mark.problem(f"a dose of `{key}` must be a number, a duration or a rate")


def _size(node: Node) -> float | None:
    if not isinstance(node, Scalar) or isinstance(node.value, bool) or node.value is None:
        return None
    if not isinstance(node.value, str):
        return float(node.value)
    for parse in (parse_duration, parse_rate):
        try:
            return parse(node.value)
        except ValueError:
            continue
    return None


def _check_number(root: Mapping, sweep: Mapping, doses: int) -> Iterator[Problem]:
    trials = number_of(child(root, "trials"), "count") or 1
    controls = control_runs(root)
    total = doses * (trials + controls)
    if total > MOST_RUNS:
        each = f"{trials:g} trials" + (f" and {controls:g} of the control" if controls else "")
        message = f"{doses} doses with {each} each are {total:g} runs; {MOST_RUNS} is the limit"
        yield sweep.mark.problem(message, "fewer doses or fewer trials")


def control_runs(root: Mapping) -> float:
    """How many runs of each dose are a control arm's."""
    control = child(root, "control")
    if control is None or (isinstance(control, Scalar) and control.value is not True):
        return 0
    return number_of(control, "count") or number_of(child(root, "trials"), "count") or 1


def _without_sweep(root: Mapping) -> Mapping:
    tree = copy.deepcopy(root)
    tree.values.pop("sweep", None)
    tree.keys.pop("sweep", None)
    return tree


def _with(root: Mapping, chosen: list[tuple[str, Node]]) -> tuple[Mapping, list[Problem]]:
    tree = _without_sweep(root)
    problems: list[Problem] = []
    for key, value in chosen:
        problems += replace(tree, key.split("."), copy.deepcopy(value), value.mark)
    return tree, problems


def _label(chosen: list[tuple[str, Node]]) -> str:
    return ", ".join(f"{key}={node.value}" for key, node in chosen if isinstance(node, Scalar))
