"""Switching off any question, rule or threshold of the judge turns a test red, and `mutations.py` says which one."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import pkgutil
import sys
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mutations import OFF, WITHOUT_RULES, Off, With
from test_questions import WITHOUT_CONTROL

import chaos.judge
from chaos.judge import QUESTIONS, judge
from chaos.judge.questions.answers import fact, not_applicable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

JUDGE = Path(chaos.judge.__file__).parent
MODULES = {
    module.name.removeprefix("chaos.judge."): importlib.import_module(module.name)
    for module in pkgutil.walk_packages(chaos.judge.__path__, "chaos.judge.")
    if not module.ispkg
}


# ---------------------------------------------------------------------------------- the switch


def switch_off(what: str, instead: object, patch: pytest.MonkeyPatch) -> None:
    """Put something in the place of a rule, wherever it was imported to."""
    if what.startswith("question "):
        _switch_question_off(what.removeprefix("question "), patch)
        return
    module = next(name for name in sorted(MODULES, key=len, reverse=True) if what.startswith(f"{name}."))
    name, _, method = what.removeprefix(f"{module}.").partition(".")
    there = getattr(MODULES[module], name)
    if method:
        is_property = isinstance(inspect.getattr_static(there, method), property)
        patch.setattr(there, method, property(_answering(instead)) if is_property else _answering(instead))
        return
    for other in [m for key, m in sys.modules.items() if f"{key}.".startswith(("chaos.judge.", "test_"))]:
        if name in vars(other) and vars(other)[name] is there:
            patch.setattr(other, name, _answering(instead) if inspect.isfunction(there) else instead)


def _switch_question_off(question: str, patch: pytest.MonkeyPatch) -> None:
    """It is asked and answers nothing."""
    asked = tuple(
        replace(one, ask=lambda _: not_applicable(fact("switched off"))) if one.id == question else one
        for one in QUESTIONS
    )
    assert asked != QUESTIONS
    patch.setitem(judge.__kwdefaults__, "questions", asked)


def _answering(instead: object) -> Callable[..., object]:
    return instead.function if isinstance(instead, With) else lambda *_, **__: copy(instead)


# ---------------------------------------------------------------------------------- the test that turns red


def named(test: str) -> Callable[[], None]:
    """The test of this name: `test_cases::test_name`, and `[part of its parameters]` where it has some."""
    module, _, name = test.partition("::")
    name, _, wanted = name.partition("[")
    function = getattr(importlib.import_module(module), name)
    found = {shown: values for shown, values in _parameters(function) if wanted.removesuffix("]") in shown}
    assert 1 == len(found), f"{test} is {len(found)} tests: {list(found)[:5]}"
    (values,) = found.values()
    return lambda: function(**values)


def _parameters(function: Callable[..., None]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each set of parameters of a test, and how it is shown: by its id where it was given one, else by its values."""
    choices = []
    for mark in (mark for mark in getattr(function, "pytestmark", ()) if mark.name == "parametrize"):
        names = [name.strip() for name in mark.args[0].split(",")] if isinstance(mark.args[0], str) else mark.args[0]
        rows = [
            row if hasattr(row, "marks") else pytest.param(*(row if len(names) > 1 else (row,))) for row in mark.args[1]
        ]
        choices.append(
            [(row.id or ",".join(map(_shown, row.values)), dict(zip(names, row.values, strict=True))) for row in rows]
        )
    for combination in itertools.product(*choices):
        yield ",".join(shown for shown, _ in combination), {k: v for _, part in combination for k, v in part.items()}


def _shown(value: object) -> str:
    return str(getattr(value, "__name__", value))


# ---------------------------------------------------------------------------------- the tests

RED = (AssertionError, OverflowError)
"""A judge that falls over a switch shows nothing, but for infinite numbers that nothing kept from it."""


@pytest.mark.parametrize("off", OFF, ids=[f"{off.what}={off.instead!r:.40}" for off in OFF])
def test_a_rule_that_is_switched_off_turns_its_test_red(off: Off, monkeypatch):
    run = named(off.red)
    switch_off(off.what, off.instead, monkeypatch)
    with pytest.raises(RED):
        run()


def test_the_switch_leaves_no_trace():
    assert [off.red for off in OFF[:3]] == [off.red for off in OFF[:3] if named(off.red)() is None]


def test_every_question_has_a_switch():
    asked = {f"question {question.id}" for question in QUESTIONS if question.id != WITHOUT_CONTROL}
    assert asked == {off.what for off in OFF if off.what.startswith("question ")}


def test_every_module_of_the_judge_has_a_switch_or_a_reason_to_have_none():
    switched = {module for module in MODULES if any(off.what.startswith(f"{module}.") for off in OFF)}
    switched |= {question.ask.__module__.removeprefix("chaos.judge.") for question in QUESTIONS}
    assert set(MODULES) == switched | set(WITHOUT_RULES)
    assert not switched & set(WITHOUT_RULES)


def test_every_threshold_has_a_switch():
    found = set()
    for module in set(MODULES) - set(WITHOUT_RULES):
        path = JUDGE / f"{module.replace('.', '/')}.py"
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                value = getattr(MODULES[module], name)
                if isinstance(value, int | float) and not isinstance(value, bool):
                    found.add(f"{module}.{name}")
    assert set() == found - {off.what for off in OFF}
