"""The JSON Schema agrees with the loader on everything one value can show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError, validators
from model_samples import FULL_OBSERVATIONS, FULL_SCENARIO, FULL_TARGET, OBSERVATIONS, PACK, SCENARIO, TARGET

from chaos.model.checks import check_scenario
from chaos.model.loading import validate
from chaos.model.schema import KINDS, json_schema
from chaos.model.target_checks import check_target
from chaos.model.yamlpos import Mapping, Mark, Node, Scalar, Sequence, parse_yaml, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsonschema.protocols import Validator

VALIDATORS = {kind: Draft202012Validator(json_schema(kind)) for kind in KINDS}

MARK = Mark("f", 1, 1)
SAMPLES = [
    ("scenario", FULL_SCENARIO),
    ("target", FULL_TARGET),
    ("pack", PACK),
    ("observations", FULL_OBSERVATIONS),
]


def loads(kind: str, document: Any) -> list[str]:
    """What the loader says of single values and keys, and of a step's triggers and actions: the schema knows those."""
    root = tree(document)
    assert isinstance(root, Mapping)
    _, problems = validate(KINDS[kind], root)  # type: ignore[index]
    if problems:
        return [*map(str, problems)]
    together = {"scenario": check_scenario, "target": check_target}.get(kind, lambda *_: ())(root, None)
    known = (" trigger", " action", "` is missing")
    return [text for text in map(str, together) if any(word in text for word in known)]


def tree(value: Any) -> Node:
    """A tree as the parser makes it; a number with a zero fraction is a whole number."""
    match value:
        case dict():
            return Mapping(MARK, {key: tree(inner) for key, inner in value.items()}, dict.fromkeys(value, MARK))
        case list():
            return Sequence(MARK, [tree(inner) for inner in value])
        case float() if value.is_integer():
            return Scalar(MARK, int(value))
    return Scalar(MARK, value)


def agree(kind: str, document: Any, validator: Validator | None = None) -> bool:
    said = loads(kind, document)
    validator = validator or VALIDATORS[kind]
    if bool(said) == validator.is_valid(document):
        errors = [error.message for error in validator.iter_errors(document)]
        pytest.fail(f"loader: {said}\nschema: {errors}\n{document}")
    return not said


def changed(document: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """The document with `value` there; all that is not on the way there is the very same object."""
    if not path:
        return value
    copied = document.copy()
    copied[path[0]] = changed(document[path[0]], path[1:], value)
    return copied


def remembering(kind: str, original: Any) -> Validator:
    """A validator that looks at each part of the original once, wherever `changed` documents share it.

    A definition says the same of the same object always, and to look at the whole again for each of twenty thousand
    changes took most of two minutes.
    """
    own = {id(original): original, **{id(part): part for part in (inside(original, at) for at in places(original))}}
    known: dict[tuple[str, int], list[str]] = {}
    refer = Draft202012Validator.VALIDATORS["$ref"]

    def remember(validator: Any, ref: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if id(instance) not in own:
            yield from refer(validator, ref, instance, schema)
            return
        if (ref, id(instance)) not in known:
            known[ref, id(instance)] = [error.message for error in refer(validator, ref, instance, schema)]
        yield from map(ValidationError, known[ref, id(instance)])

    return validators.extend(Draft202012Validator, {"$ref": remember})(json_schema(kind))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_schema_itself_is_valid_and_never_offers_null(kind: str) -> None:
    schema = json_schema(kind)  # type: ignore[arg-type]
    Draft202012Validator.check_schema(schema)
    assert '"null"' not in json.dumps(schema)
    assert f"pdchaos {kind}" == schema["title"]


@pytest.mark.parametrize(
    ("kind", "text"), [*SAMPLES, ("scenario", SCENARIO), ("target", TARGET), ("observations", OBSERVATIONS)]
)
def test_valid_files_are_valid_by_the_schema(kind: str, text: str) -> None:
    assert agree(kind, plain(parse_yaml(text, "f")))


BAD_VALUES = [
    None, True, False, 0, 1, -1, 2, 5.5, 60, 70000, 20001, 10**7, "", "x", "X", "25s", "25", "50%", "0%", "STOP",
    "one", "300 ms", "5/s", "0/s", "0.0/m", ">= 20", "=> 20", " >=20 ", ">= -1", "all", "wedged", "inconclusive",
    "healthy", "kill", "chat", "env:K", "env:", "file:", "http://a", "ftp://a", "http://u@h", "http://h/?q", "a" * 64,
    "server_aborts", "0.5.14", "a/b#1", "/p", "gauge", [], ["x"], ["healthy"], [1], [None], {}, {"x": 1},
    {"waiting": ">= 1"}, {"waiting": 1}, {"Host": "x"}, {"X-A": "é"}, {"X-A": "y"}, {"verify": True}, {"rate": "5/s"},
    {"group": "agents"}, [{}], [{"name": "a"}], "14:02:40Z", "25:02:40Z", "2026-06-20T14:02:40+02:00", "14:02:40",
    "2026-06-20", "2026-13-20", "+02:00", "UTC", "98%", "-1%", "a>b", "routed", "gave-up", "1mbit",
    "0.5gbit", "1mbps", "10%", "100%", "1.25%", "both", "bootstrap", "http",  "kill-clients", "prefill",
]  # fmt: skip


def places(node: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all values inside."""
    found = []
    if isinstance(node, dict | list):
        for key, inner in node.items() if isinstance(node, dict) else enumerate(node):
            found += [(*path, key), *places(inner, (*path, key))]
    return found


def inside(document: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


@pytest.mark.parametrize(("kind", "text"), SAMPLES)
def test_every_value_replaced_by_every_other_kind_of_value_is_judged_alike(kind: str, text: str) -> None:
    original = plain(parse_yaml(text, "f"))
    validator = remembering(kind, original)
    accepted = refused = 0
    for path in places(original):
        if path[-1] == "pattern":
            continue  # whether it compiles is beyond JSON Schema
        for value in BAD_VALUES:
            fits = agree(kind, changed(original, path, value), validator)
            accepted, refused = (accepted + 1, refused) if fits else (accepted, refused + 1)
    assert accepted > 10
    assert refused > 500


@pytest.mark.parametrize(("kind", "text"), SAMPLES)
def test_every_key_removed_renamed_or_added_is_judged_alike(kind: str, text: str) -> None:
    original = plain(parse_yaml(text, "f"))
    validator = remembering(kind, original)
    mappings = [(), *(path for path in places(original) if isinstance(inside(original, path), dict))]
    for path in mappings:
        for key, value in inside(original, path).items():
            others = {name: other for name, other in inside(original, path).items() if name != key}
            agree(kind, changed(original, path, others), validator)
            for name in (
                f"{key}x",
                key.upper(),
                "<<",
                "klass",
                "for_",
                "lasts",
                "at",
                "when",
                "kill",
                "signal",
                "foreign_frame",
            ):
                agree(kind, changed(original, path, {**others, name: value}), validator)


# Control characters never reach a field: the parser refuses them. Python's `$` lets a trailing newline pass.
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Zl", "Zp")), max_size=12)
JSON = st.recursive(
    st.booleans() | st.integers(-(10**6), 10**6) | st.floats(-1e9, 1e9) | TEXT | st.sampled_from(BAD_VALUES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SAMPLES), st.randoms(use_true_random=False), JSON)
def test_any_value_anywhere_is_judged_alike(sample: tuple[str, str], random: Any, value: Any) -> None:
    kind, text = sample
    document = plain(parse_yaml(text, "f"))
    path = random.choice([path for path in places(document) if path[-1] != "pattern"])
    inside(document, path[:-1])[path[-1]] = value
    agree(kind, document)


def test_the_agreement_test_can_fail() -> None:
    document = plain(parse_yaml(SCENARIO, "f"))
    document["seed"] = 5  # type: ignore[index, call-overload]
    schema = json_schema("scenario")
    schema["properties"]["seed"]["maximum"] = 4
    assert [] == loads("scenario", document)
    assert not Draft202012Validator(schema).is_valid(document)
