"""The text side of a YAML file: bytes to characters, and a parser's complaint in words a person can act on."""

from __future__ import annotations

import re

import yaml

from chaos.model.errors import InvalidFile, Problem

MAX_BYTES = 1 << 20
"""Larger files are refused before they are parsed; ours are below 64 KiB."""

_SHOWN = 40
"""Characters of a value that a message repeats."""

_MAX_TAB_PROBLEMS = 20
"""A file indented with tabs has one on every line; the first few are enough."""

# Everything YAML calls unprintable, and the three line separators that editors do not show as new lines.
FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAB_INDENT = re.compile(r"^[ ]*\t[ \t]*(?=[^\s#])", re.MULTILINE)


def quoted(text: str) -> str:
    """`text` in quotes, on one line, cut when long: what a message shows of a value."""
    shown = repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
    return shown.replace("\\\\", "\\")


def clean_text(text: bytes | str, file: str) -> str:
    """The characters of a file without a byte order mark; InvalidFile for what no YAML file of ours may contain."""
    if isinstance(text, bytes):
        text = _decode(text, file)
    elif len(text) > MAX_BYTES:
        raise _too_large(len(text), file)
    text = text.removeprefix("\ufeff")
    if found := FORBIDDEN.search(text):
        line, column = position(text, found.start())
        message = f"the character U+{ord(found[0]):04X} is not allowed"
        raise InvalidFile([Problem(file, line, column, message, "is this a text file?")])
    tabs = list(_TAB_INDENT.finditer(text))[:_MAX_TAB_PROBLEMS]
    if tabs:
        at = [position(text, match.start() + match[0].index("\t")) for match in tabs]
        raise InvalidFile([Problem(file, *where, "a tab is used for indentation", "use spaces") for where in at])
    return text


def _decode(data: bytes, file: str) -> str:
    if len(data) > MAX_BYTES:
        raise _too_large(len(data), file)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InvalidFile([Problem(file, 1, 1, "the file is UTF-16 or UTF-32", "save it as UTF-8")])
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = position(data[: error.start].decode("utf-8"), error.start)
        message = f"the byte 0x{data[error.start]:02x} is not valid UTF-8"
        raise InvalidFile([Problem(file, line, column, message, "save it as UTF-8")]) from None


def _too_large(size: int, file: str) -> InvalidFile:
    return InvalidFile([Problem(file, 1, 1, f"the file has {size} bytes; {MAX_BYTES} is the limit")])


def position(text: str, index: int) -> tuple[int, int]:
    """Line and column (from 1) of a character; LF, CR and CR LF end lines."""
    before = text[:index].replace("\r\n", "\n").replace("\r", "\n")
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


# PyYAML's complaint (a part of it) -> our words and what to do. The first that fits is taken.
_WORDS: tuple[tuple[str, str, str], ...] = (
    ("found character '\\t'", "a tab where a value or key should begin", "use spaces"),
    ("found character '>'", "a value cannot begin with >", 'quote comparisons: ">= 20"'),
    (
        "expected chomping or indentation indicators",
        "a value cannot begin with > or | here",
        'quote comparisons: ">= 20"',
    ),
    ("cannot start any token", "a value cannot begin with this character", "quote it"),
    (
        "mapping values are not allowed here",
        "a `:` cannot stand here",
        "check the indentation, or quote the value",
    ),
    ("could not find expected ':'", "a line here is not `key: value`", "is a `:` missing, or the space after it?"),
    ("found unexpected end of stream", "a quote is never closed", ""),
    ("found unexpected document separator", "a quote is never closed", ""),
    (
        "found unknown escape character",
        "an unknown escape after a backslash",
        "use single quotes",
    ),
    ("expected escape sequence", "an incomplete escape after a backslash", "use single quotes"),
    ("but found '?'", "an indentation that fits no key above it", "align it with its neighbours"),
    ("expected ',' or ']'", "a list `[` is not closed or lacks a comma", ""),
    ("expected ',' or '}'", "a mapping `{` is not closed or lacks a comma", ""),
    ("expected '<document start>'", "text that belongs to nothing above it", "check the indentation"),
    ("expected <block end>", "an indentation or item that fits nothing above it", "align it with its neighbours"),
    ("sequence entries are not allowed here", "a list item `- ` cannot stand here", "put it on a line of its own"),
    ("expected the node content", "a value is missing here", ""),
    ("expected alphabetic or numeric character", "a bare & or * begins an anchor or alias", "quote it"),
    ("found undefined tag handle", "tags (!) are not supported", "quote text that begins with !"),
    ("incompatible YAML document", "this YAML version is not supported", "remove the %YAML line"),
)


def syntax_problem(error: Exception, file: str, line: int, column: int) -> Problem:
    """One problem for a syntax error, where the parser says it is or else at `line` and `column`."""
    said = str(error).partition("\n")[0]
    if isinstance(error, yaml.MarkedYAMLError):
        said = error.problem or ""
        unclosed = said.startswith("found unexpected") and error.context_mark is not None
        mark = error.context_mark if unclosed else error.problem_mark or error.context_mark
        if mark is not None:
            line, column = mark.line + 1, mark.column + 1
    for part, message, hint in _WORDS:
        if part in said:
            return Problem(file, line, column, message, hint)
    return Problem(file, line, column, f"this is not YAML: {said[:200]}")
