"""A file's text to a scenario, target, pack or observations: every problem at once, with its position, in our words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from chaos.model.checks import check_pack, check_scenario
from chaos.model.errors import InvalidFile, Problem
from chaos.model.known import Known
from chaos.model.observations import Observations
from chaos.model.observed import check_observations
from chaos.model.pack import Pack
from chaos.model.scenario import Scenario
from chaos.model.section import Section
from chaos.model.target import Target
from chaos.model.target_checks import check_target
from chaos.model.tree import did_you_mean, key_mark, one_of, override, walk
from chaos.model.units import FROM_FILE
from chaos.model.unsupported import unsupported_key, unsupported_value
from chaos.model.variants import check_sweep, variants
from chaos.model.yamlpos import Mapping, Mark, Node, Scalar, Sequence, kind_of, parse_yaml, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Sequence as Sequence_

    from pydantic_core import ErrorDetails

MAX_PROBLEMS = 100
"""Enough to mend; a file with more is the wrong file."""

M = TypeVar("M", bound=Section)


TARGET_KEYS = frozenset({"router", "prefill", "decode"})
_OWN_KEYS: dict[type[Section], tuple[str, frozenset[str]]] = {
    Scenario: ("a scenario", frozenset({"load", "timeline"})),
    Target: ("a target file", TARGET_KEYS),
}
"""Keys that only one of the two kinds has."""


def parse_scenario(
    text: bytes | str, file: str, overrides: Sequence_[str] = (), *, known: Known | None = None
) -> Scenario:
    """A scenario; `known` (what the packs know) lets gauge names be checked, too."""
    return _load(Scenario, text, file, overrides, _scenario_checks(known))


def parse_variants(
    text: bytes | str, file: str, overrides: Sequence_[str] = (), *, known: Known | None = None
) -> list[tuple[str, Scenario]]:
    """A scenario for each dose of its sweep, with the dose in words; one, and no words, where nothing is swept."""
    parse_scenario(text, file, overrides, known=known)
    tree = parse_yaml(text, file)
    for wish in overrides:
        override(tree, wish)
    return [
        (variant.dose, Scenario.model_validate(plain(variant.tree), strict=True, context=FROM_FILE))
        for variant in variants(tree)
    ]


def _scenario_checks(known: Known | None) -> Callable[[Mapping], Iterator[Problem]]:
    def of_one(tree: Mapping) -> list[Problem]:
        return [*validate(Scenario, tree)[1], *check_scenario(tree, known)]

    def checks(tree: Mapping) -> Iterator[Problem]:
        yield from check_scenario(tree, known)
        yield from check_sweep(tree, of_one)

    return checks


def parse_target(text: bytes | str, file: str, overrides: Sequence_[str] = (), *, known: Known | None = None) -> Target:
    """A target; `known` lets engine and timeout names be checked, too."""
    return _load(Target, text, file, overrides, lambda tree: check_target(tree, known))


def parse_pack(text: bytes | str, file: str, overrides: Sequence_[str] = ()) -> Pack:
    """A pack."""
    return _load(Pack, text, file, overrides, check_pack)


def parse_observations(text: bytes | str, file: str, *, known: Known | None = None) -> Observations:
    """What people have collected; `known` lets engine, timeout and metric names be checked, too."""
    return _load(Observations, text, file, (), lambda tree: check_observations(tree, known))


def _load(
    model: type[M],
    text: bytes | str,
    file: str,
    overrides: Sequence_[str],
    checks: Callable[[Mapping], Iterator[Problem]],
) -> M:
    tree = parse_yaml(text, file)
    _refuse_another_kind(model, tree)
    problems: list[Problem] = []
    for wish in overrides:
        try:
            problems += override(tree, wish)
        except InvalidFile as error:
            problems += error.problems
    value, found = validate(model, tree)
    problems += [*found, *checks(tree)]
    if problems or value is None:
        raise InvalidFile(_tidied(problems, file))
    return value


def _refuse_another_kind(model: type[Section], tree: Mapping) -> None:
    """A target where a scenario is wanted has only unknown keys, and the other way round: say what it is instead."""
    if model not in _OWN_KEYS or tree.keys.keys() & _OWN_KEYS[model][1]:
        return
    for other, (name, keys) in _OWN_KEYS.items():
        if other is not model and tree.keys.keys() & keys:
            wanted = _OWN_KEYS[model][0]
            hint = "`pdchaos run SCENARIO --target TARGET`: are the two swapped?"
            raise InvalidFile([tree.mark.problem(f"this is {name}, and {wanted} is wanted here", hint)])


def validate(model: type[M], tree: Mapping) -> tuple[M | None, list[Problem]]:
    """The model of a tree, or None, and what its single values have wrong."""
    problems = list(_nothings(tree))
    try:
        return model.model_validate(plain(tree), strict=True, context=FROM_FILE), problems
    except ValidationError as error:
        return None, [*problems, *_translate(error, tree, model)]


def _tidied(problems: list[Problem], file: str) -> list[Problem]:
    """In order, without repetition, and not too many."""
    unique = sorted(set(problems))
    rest = len(unique) - MAX_PROBLEMS
    if rest > 0:
        last = unique[MAX_PROBLEMS - 1]
        return [*unique[:MAX_PROBLEMS], Problem(file, last.line, last.column, f"… and {rest} more problems", "")]
    return unique


def _nothings(tree: Mapping) -> Iterator[Problem]:
    for key, node in walk(tree):
        if isinstance(node, Scalar) and node.value is None:
            yield node.mark.problem(f"`{key}` has no value", "give it one or remove the key")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a validation error points: the deepest node on its path, and what to call it."""

    node: Node
    parent: Mapping | None
    key: str  # last mapping key on the path
    label: str  # the key with list indices, as a message shows it
    where: tuple[str, ...]  # all mapping keys on the path

    @property
    def at_key(self) -> Mark:
        return key_mark(self.parent, self.key) if self.parent is not None else self.node.mark


def _place(tree: Mapping, loc: tuple[int | str, ...]) -> _Place:
    node: Node = tree
    parent: Mapping | None = None
    key, label = "", ""
    where: tuple[str, ...] = ()
    for part in loc:
        if isinstance(node, Mapping) and isinstance(part, str) and part in node.values:
            parent, key, label, where = node, part, part, (*where, part)
            node = node.values[part]
        elif isinstance(node, Sequence) and isinstance(part, int) and part < len(node.items):
            label += f"[{part}]"
            node = node.items[part]
    return _Place(node, parent, key, label, where)


def _translate(error: ValidationError, tree: Mapping, model: type[Section]) -> Iterator[Problem]:
    for detail in error.errors(include_url=False):
        place = _place(tree, detail["loc"])
        if isinstance(place.node, Scalar) and place.node.value is None:
            continue  # said already
        yield from _problem(detail, place, model)


def _problem(detail: ErrorDetails, place: _Place, model: type[Section]) -> Iterator[Problem]:
    kind, ctx = detail["type"], detail.get("ctx", {})
    mark = place.node.mark
    match kind:
        case "extra_forbidden":
            known = _fields(model, place.where[:-1])
            message, hint = unsupported_key(place.where) or (
                f"unknown key `{place.key}`",
                did_you_mean(place.key, known),
            )
            yield place.at_key.problem(message, hint)
        case "missing":
            name = str(detail["loc"][-1])
            if not _said_otherwise(name, place, _fields(model, place.where)):
                inside = f" in `{place.label}`" if place.label else ""
                yield (place.at_key if place.label == place.key else mark).problem(f"`{name}` is missing{inside}")
        case _ if detail["loc"][-1:] == ("[key]",):
            yield place.at_key.problem(
                f"the key `{place.key}` {ctx.get('message', 'is not allowed')}", ctx.get("hint", "")
            )
        case _:
            message, hint = _value_words(kind, ctx, place)
            yield mark.problem(f"`{place.label}` {message}" if place.label else message, hint)


def _said_otherwise(missing: str, place: _Place, known: list[str]) -> bool:
    """Whether an unknown key in its place already tells of a missing one: a misspelling."""
    if not isinstance(place.node, Mapping):
        return False
    unknown = [key for key in place.node.values if key not in known]
    return did_you_mean(missing, unknown).startswith("did")


_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "model_type": "a mapping (key: value)",
    "model_attributes_type": "a mapping (key: value)",
    "dict_type": "a mapping (key: value)",
}


def _value_words(kind: str, ctx: dict[str, Any], place: _Place) -> tuple[str, str]:
    """Message (after the label) and hint for a value that is not what the field holds."""
    node = place.node
    got = kind_of(node)
    message, hint = f"is not valid: {got}", ""
    if kind == "pdchaos":
        message, hint = str(ctx["message"]), str(ctx["hint"])
    elif later := unsupported_value(place.where, node):
        message, hint = later
    elif kind in _WANTED:
        message, hint = f"must be {_WANTED[kind]}, not {got}", _type_hint(kind, node)
    elif kind == "literal_error":
        message, hint = one_of(node.value if isinstance(node, Scalar) else None, _options(ctx), got)
    elif kind in _LIMITS:
        field, words = _LIMITS[kind]
        message = f"must be {words} {ctx[field]:g}, not {got.removeprefix('the number ')}"
    elif kind in ("too_short", "string_too_short"):
        message = "must not be empty"
    elif kind == "string_too_long":
        message = f"must not be longer than {ctx['max_length']} characters"
    return message, hint


_LIMITS = {
    "greater_than_equal": ("ge", "at least"),
    "less_than_equal": ("le", "at most"),
    "greater_than": ("gt", "more than"),
    "less_than": ("lt", "less than"),
}


def _options(ctx: dict[str, Any]) -> list[str]:
    """The words of a Literal, from pydantic's account of them."""
    return re.findall(r"'([^']*)'", str(ctx["expected"]))


def _type_hint(kind: str, node: Node) -> str:
    if not isinstance(node, Scalar):
        return ""
    value = node.value
    if kind == "string_type":
        return f'quote it: "{value}"'.replace("True", "true").replace("False", "false")
    if kind == "bool_type" and isinstance(value, str) and value.lower() in ("yes", "on", "y", "no", "off", "n"):
        return f"write {'true' if value.lower() in ('yes', 'on', 'y') else 'false'}"
    if kind in ("int_type", "float_type") and isinstance(value, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
        return "remove the quotes" if not node.plain else f"write {value.lstrip('0') or '0'}"
    return ""


def _fields(model: type[Section], where: tuple[str, ...]) -> list[str]:
    """The keys that the mapping at `where` may have."""
    for key in where:
        by_key = {field.alias or name: field for name, field in model.model_fields.items()}
        inner = _section(by_key[key].annotation) if key in by_key else None
        if inner is None:
            return []
        model = inner
    return [field.alias or name for name, field in model.model_fields.items()]


def _section(annotation: Any) -> type[Section] | None:
    """The section inside `Section | None` or `list[Section]`."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if found := _section(inner):
            return found
    return None
