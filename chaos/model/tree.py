"""Walking a positioned tree: find what a path names, tolerate what has the wrong shape, replace a value."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from chaos.model.errors import Problem
from chaos.model.units import parse_duration
from chaos.model.yamlpos import MAX_DEPTH, Mapping, Mark, Node, Scalar, Sequence, parse_value
from chaos.model.yamltext import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint that names the closest of `known`, or lists them all when none is close."""
    options = sorted(known)
    close = difflib.get_close_matches(word, options, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    return f"known: {', '.join(options)}" if options else ""


def one_of(value: object, options: Iterable[str], shown: str) -> tuple[str, str]:
    """Message (after the key's name) and hint for a value that is none of the words it may be."""
    words = list(options)
    close = did_you_mean(value, words) if isinstance(value, str) else ""
    return f"must be one of {', '.join(words)}; it is {shown}", close if close.startswith("did") else ""


def child(node: Node | None, key: str) -> Node | None:
    """The value under `key`, or None when there is none or `node` is no mapping."""
    return node.values.get(key) if isinstance(node, Mapping) else None


def members(node: Node | None, key: str) -> list[Mapping]:
    """The mappings in the list under `key`."""
    found = child(node, key)
    return [item for item in found.items if isinstance(item, Mapping)] if isinstance(found, Sequence) else []


def text_of(node: Node | None, key: str) -> str | None:
    """The text under `key`, or None when it is something else."""
    found = child(node, key)
    return found.value if isinstance(found, Scalar) and isinstance(found.value, str) else None


def number_of(node: Node | None, key: str) -> int | float | None:
    """The number under `key`, or None when it is something else."""
    found = child(node, key)
    if isinstance(found, Scalar) and isinstance(found.value, int | float) and not isinstance(found.value, bool):
        return found.value
    return None


def seconds_of(node: Node | None, key: str) -> float | None:
    """The duration under `key`; None when it is no duration (somebody else says so)."""
    try:
        return parse_duration(text_of(node, key))
    except ValueError:
        return None


def positive(node: Node | None, key: str) -> Iterator[Problem]:
    """A duration that must not be zero."""
    if isinstance(node, Mapping) and seconds_of(node, key) == 0:
        yield node.values[key].mark.problem(f"`{key}` must be longer than nothing")


def key_mark(node: Mapping, key: str) -> Mark:
    """Where `key` stands, or where the mapping begins when it has no such key."""
    return node.keys.get(key, node.mark)


def walk(node: Node) -> Iterator[tuple[str, Node]]:
    """Every value of the tree with the key (or index) it stands under; the root is left out."""
    stack: list[Node] = [node]
    while stack:
        match stack.pop():
            case Mapping(values=values):
                pairs = list(values.items())
            case Sequence(items=items):
                pairs = [(f"[{index}]", item) for index, item in enumerate(items)]
            case Scalar():
                continue
        yield from pairs
        stack += [value for _, value in pairs]


def override(root: Mapping, text: str) -> list[Problem]:
    """Apply `path.to.value=VALUE` to the tree; list items are named by their `name` or `id`, or by index.

    Missing mappings on the way are made, so that a default can be overridden. Returns what is wrong with it.
    """
    mark = Mark(f"--with {text}", 1, 1)
    path, equals, value = text.partition("=")
    parts = [part.strip() for part in path.split(".")]
    if not equals or not all(parts) or len(parts) > MAX_DEPTH:
        return [mark.problem("an override is PATH=VALUE", "such as expect.recover_within=10s")]
    return replace(root, parts, parse_value(value, mark.file), mark)


def replace(root: Mapping, parts: list[str], value: Node, mark: Mark) -> list[Problem]:
    """Put `value` at a place in the tree, as `override` does; `mark` is where somebody asked for it.

    A list with a single item needs no name for it: `load.sessions` where there is one group.
    """
    node: Node = root
    for depth, part in enumerate(parts):
        last = depth == len(parts) - 1
        new: Node = value if last else Mapping(mark)
        if isinstance(node, Sequence) and _of_the_only_item(node.items, part):
            node = node.items[0]
        match node:
            case Mapping():
                if last or part not in node.values:
                    node.values[part] = new
                    node.keys[part] = mark
                node = node.values[part]
            case Sequence(items=items):
                index = _index(items, part)
                if index is None:
                    hint = did_you_mean(part, _names(items))
                    return [mark.problem(f"there is no {quoted(part)} in the list", hint)]
                if last:
                    items[index] = new
                node = items[index]
            case Scalar():
                return [mark.problem(f"{quoted('.'.join(parts[:depth]))} is a single value, nothing is inside it")]
    return []


def _of_the_only_item(items: list[Node], part: str) -> bool:
    """Whether `part` names no item, not even with a slip, but something inside the only one."""
    if len(items) != 1 or not isinstance(items[0], Mapping) or _index(items, part) is not None:
        return False
    return not part.isdigit() and not did_you_mean(part, _names(items)).startswith("did")


def _names(items: list[Node]) -> list[str]:
    return [name for item in items for name in (text_of(item, "name") or text_of(item, "id"),) if name]


def _index(items: list[Node], part: str) -> int | None:
    for index, item in enumerate(items):
        if part in (text_of(item, "name"), text_of(item, "id")):
            return index
    return int(part) if part.isascii() and part.isdigit() and len(part) < 6 and int(part) < len(items) else None
