"""Finds a piece of text that every match of a regular expression contains, so most lines need no regex at all.

A small reader of pattern syntax instead of the standard library's parser, whose tree is private and changes between
Python versions. When in doubt it finds nothing, which costs speed and never a hit; a property test holds it to that.
"""

from __future__ import annotations

import re

_CLASS_ESCAPES = frozenset("dDsSwWbBAZ")
_CONTROL_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_REPEAT = re.compile(r"(?:[*?+]|\{\d+(?:,\d*)?\}|\{,\d+\})[?+]?")  # with its lazy or possessive mark
_HARD = re.compile(r"\\[xuUN0-9]|\(\?#")  # characters by number, back references, comments
_INLINE_FLAGS = re.compile(r"\(\?[a-zA-Z]*[ix][a-zA-Z]*[-:)]|\(\?-?[a-zA-Z]*-[a-zA-Z]+:")
MIN_LITERAL = 4
"""Shorter text is in too many lines to be worth a look."""


def required_literal(pattern: str) -> str | None:
    """The longest text outside groups that a match must contain; None when there is none of at least 4 characters."""
    if _HARD.search(pattern) or _INLINE_FLAGS.search(pattern):
        return None  # `(?i)` changes what a letter means, `(?x)` what a blank means
    runs, at = [""], 0
    while at < len(pattern):
        if pattern[at] == "|":
            return None  # a top-level alternative
        literal, at = _atom(pattern, at)
        repeat = _REPEAT.match(pattern, at)
        if literal is not None and not (repeat and repeat[0][0] != "+"):
            runs[-1] += literal
        if literal is None or repeat:
            runs.append("")
        at = repeat.end() if repeat else at
    longest = max(runs, key=len)
    return longest if len(longest) >= MIN_LITERAL else None


def _atom(pattern: str, at: int) -> tuple[str | None, int]:
    """The text that the atom at `at` stands for, None when it is no fixed text; and where the atom ends."""
    match pattern[at]:
        case "\\":
            escaped = pattern[at + 1]
            fixed = None if escaped in _CLASS_ESCAPES else _CONTROL_ESCAPES.get(escaped, escaped)
            return fixed, at + 2
        case "[":
            return None, _class_end(pattern, at)
        case "(":
            return None, _group_end(pattern, at)
        case "." | "^" | "$":
            return None, at + 1
        case char:
            return char, at + 1


def _class_end(pattern: str, at: int) -> int:
    """Just behind the `]` of the class that begins at `at`."""
    at += 2 if pattern[at + 1] == "^" else 1
    at += pattern[at] == "]"
    while pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at + 1


def _group_end(pattern: str, at: int) -> int:
    """Just behind the `)` of the group that begins at `at`."""
    depth = 0
    while True:
        match pattern[at]:
            case "\\":
                at += 2
                continue
            case "[":
                at = _class_end(pattern, at)
                continue
            case "(":
                depth += 1
            case ")":
                depth -= 1
        at += 1
        if depth == 0:
            return at
