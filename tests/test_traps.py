"""`docs/traps.md` is true: every trap is there, the tests that it names exist, and what is not covered has a reason."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TRAPS = 45
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
GAP = re.compile(r"\*not covered\*:?\s*(.*)")
ENOUGH_WORDS = 6
"""A reason is a sentence."""


def held_by() -> dict[int, str]:
    """What the last column says, by the number of the trap."""
    rows = [line.strip("|").split("|") for line in (ROOT / "docs/traps.md").read_text().splitlines()]
    return {int(row[0]): row[-1].strip() for row in rows if row[0].strip().isdigit()}


@cache
def those_of(file: str) -> frozenset[str]:
    """The test functions of a file, without importing it."""
    path = ROOT / file
    tree = ast.parse(path.read_text()) if path.is_file() else ast.Module([], [])
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def wrong_with(text: str) -> list[str]:
    """What is wrong with one row's last column."""
    named, gap = NAMED.findall(text), GAP.search(text)
    wrong = [f"{file} has no {test}" for file, test in named if test not in those_of(file)]
    if gap and len(gap[1].split()) < ENOUGH_WORDS:
        wrong.append("not covered, and no reason is given")
    if not named and not gap:
        wrong.append("names no test, and does not say that it is not covered")
    return wrong


def test_every_trap_is_in_the_table_once():
    text = (ROOT / "docs/traps.md").read_text()
    assert list(range(1, TRAPS + 1)) == [int(n) for n in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)]


@pytest.mark.parametrize("number", range(1, TRAPS + 1))
def test_a_trap_is_held_by_tests_that_exist_or_has_a_reason(number):
    assert [] == wrong_with(held_by()[number])


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`tests/test_traps.py::test_every_trap_is_in_the_table_once`", []),
        ("`tests/test_traps.py::test_gone`", ["tests/test_traps.py has no test_gone"]),
        ("`tests/gone.py::test_a`", ["tests/gone.py has no test_a"]),
        ("*not covered*", ["not covered, and no reason is given"]),
        ("*not covered*: nobody knows", ["not covered, and no reason is given"]),
        ("*not covered*: nobody but the kernel knows who did it", []),
        ("soon", ["names no test, and does not say that it is not covered"]),
    ],
)
def test_a_gap_in_the_table_is_found(text, wrong):
    assert wrong == wrong_with(text)
