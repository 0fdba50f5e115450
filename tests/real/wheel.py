"""What an installed engine can say: every piece of text and every name in its sources."""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from functools import cache
from re import _constants, _parser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LEAST = 6
"""Shorter pieces of a pattern are found in any source, so finding them proves nothing."""
ASIDE = {"models", "layers", "multimodal", "configs", "function_call", "speculative", "model_loader", "lora"}
"""Parts of the engine that log nothing a pack looks for, and are most of its text."""
_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)


@cache
def words_of(folder: Path) -> str:
    """All string constants (implicit concatenation joined, f-strings in their pieces) and defined names, one a line."""
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        if ASIDE & set(path.relative_to(folder).parts):
            continue
        with warnings.catch_warnings(action="ignore"):  # theirs, about escapes
            tree = ast.parse(path.read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
    return "\n".join(sorted(found))


def pieces(pattern: str) -> list[list[str]]:
    """The fixed texts of a regular expression: all outer items are needed, of an inner list any one will do."""
    found: list[list[str]] = []
    _collect(_parser.parse(pattern), found)
    return found


def _collect(tree, found) -> None:
    run = ""
    for kind, value in tree:
        if kind is _constants.LITERAL:
            run += chr(value)
            continue
        _keep(run, found)
        run = ""
        if kind is _constants.SUBPATTERN:
            _collect(value[-1], found)
        elif kind is _constants.BRANCH:
            _any_of(value[1], found)
        elif kind in _REPEATS and value[0] > 0:
            _collect(value[2], found)
    _keep(run, found)


def _any_of(branches, found) -> None:
    """One alternative must be there; a short one cannot be told from chance, so then none is asked for."""
    inner = []
    for branch in branches:
        alternative: list[list[str]] = []
        _collect(branch, alternative)
        if not alternative:
            return
        inner.append(max((one[0] for one in alternative), key=len))
    found.append(inner)


def _keep(run: str, found) -> None:
    # punctuation is where values are put in: quotes of a repr, `name=value`, the colon before a message
    for phrase in re.split(r"[:='\"()\[\]{}]", run):
        bare = re.sub(r" b$", "", phrase).strip(" ,.")  # b of a bytes repr
        if len(bare) >= LEAST and not hasattr(builtins, bare):
            found.append([bare])


def missing(pattern: str, words: str) -> list[list[str]]:
    """The pieces that no source text contains."""
    return [anyone for anyone in pieces(pattern) if not any(one in words for one in anyone)]
