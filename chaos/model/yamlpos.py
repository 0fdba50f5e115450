"""YAML text to a tree whose every node knows its file, line and column.

Built on PyYAML's *events*: values are resolved here by the YAML 1.2 core rules (so `no`, `on` and `1:30` stay text),
and everything that makes YAML surprising or expensive is refused with a position: duplicate keys, anchors and merge
keys, tags, several documents, tabs as indentation, control characters, huge or deep files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import yaml

from chaos.model.errors import InvalidFile, Problem
from chaos.model.yamltext import FORBIDDEN, clean_text, quoted, syntax_problem

MAX_DEPTH = 32
"""Our deepest file has 6 levels; PyYAML's scanner needs time quadratic in the depth of flow brackets."""

MAX_NODES = 20_000
"""Ten times our largest pack."""

MAX_SCALAR = 16_384
"""Longest value in characters; a log line of an engine is below 2,000."""

MAX_INT = 2**63 - 1
"""What the journal can hold."""

Plain = bool | int | float | str | None | list["Plain"] | dict[str, "Plain"]


@dataclass(frozen=True, slots=True)
class Mark:
    """A position; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def problem(self, message: str, hint: str = "") -> Problem:
        """A problem at this position."""
        return Problem(self.file, self.line, self.column, message, hint)


@dataclass(slots=True)
class Scalar:
    """A value: None, bool, int, float or str. `plain` is False when it was quoted."""

    mark: Mark
    value: bool | int | float | str | None
    plain: bool = True


@dataclass(slots=True)
class Sequence:
    """A list."""

    mark: Mark
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Mapping:
    """A mapping with text keys, in file order; `keys` holds where each key stands."""

    mark: Mark
    values: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Mark] = field(default_factory=dict)


Node = Scalar | Sequence | Mapping


def parse_yaml(text: bytes | str, file: str) -> Mapping:
    """Parse one document whose top level is a mapping; InvalidFile carries every problem that could be found."""
    content = clean_text(text, file)
    builder = _Builder(file)
    parser = yaml.SafeLoader(content)
    try:
        builder.run(parser)
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # PyYAML lets chr() and int() complain of escapes
        builder.problems.append(syntax_problem(error, file, parser.line + 1, parser.column + 1))
    except _Stop:
        pass  # the problem that stopped it is the last in the list
    if builder.problems:
        raise InvalidFile(builder.problems)
    if builder.root is None:
        raise InvalidFile([Problem(file, 1, 1, "the file is empty", "a file needs at least `version: 1`")])
    if not isinstance(builder.root, Mapping):
        mark = builder.root.mark
        raise InvalidFile([mark.problem(f"the file must be a mapping (key: value), not {kind_of(builder.root)}")])
    return builder.root


def parse_value(text: str, file: str) -> Node:
    """A single value as given on a command line: `[a, b]`, `{a: 1}`, a quoted text, or a bare word or number."""
    text = text.strip()
    mark = Mark(file, 1, 1)
    if text[:1] in ("[", "{", '"', "'"):
        return parse_yaml("v: " + text, file).values["v"]
    return Scalar(mark, resolve(clean_text(text, file), mark) if text else None)


def plain(node: Node) -> Plain:
    """The tree without positions."""
    match node:
        case Mapping(values=values):
            return {key: plain(value) for key, value in values.items()}
        case Sequence(items=items):
            return [plain(item) for item in items]
        case Scalar(value=value):
            return value


def kind_of(node: Node) -> str:
    """What a node is, in words: `text 'abc'`, `the number 5`, `a list`."""
    match node:
        case Mapping():
            return "a mapping"
        case Sequence():
            return "a list"
        case Scalar(value=None):
            return "nothing"
        case Scalar(value=bool() as value):
            return "true" if value else "false"
        case Scalar(value=str() as value):
            return f"the text {quoted(value)}"
        case Scalar(value=value):
            return f"the number {value}"


_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_OTHER_INT = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}


def resolve(text: str, mark: Mark) -> bool | int | float | str | None:
    """The value of an unquoted scalar by YAML 1.2 core rules, except that `012` stays text: nobody agrees on it.

    A number with a zero fraction is the whole number, as in JSON Schema. InvalidFile if it cannot be held.
    """
    if text in _WORDS:
        return _WORDS[text]
    number: int | float
    if _INT.fullmatch(text):
        number = int(text) if len(text) <= 20 else MAX_INT + 1
    elif _OTHER_INT.fullmatch(text):
        number = int(text, 0) if len(text) <= 24 else MAX_INT + 1
    elif _FLOAT.fullmatch(text):
        number = float(text)
        if number.is_integer() and abs(number) <= MAX_INT:
            number = int(number)
    elif _NOT_FINITE.fullmatch(text):
        number = float("inf")
    else:
        return text
    if abs(number) > MAX_INT:
        raise InvalidFile([mark.problem(f"the number {quoted(text)} is too large or not finite")])
    return number


class _Stop(Exception):
    """Nothing more can be learnt from this file."""


@dataclass(slots=True)
class _Open:
    """A collection that is still being filled; `key` is the mapping key that waits for its value."""

    node: Mapping | Sequence
    key: str | None = None
    key_mark: Mark | None = None
    skip: bool = False  # the key was refused: its value is read and dropped


class _Builder:
    """Turns events into nodes with an explicit stack, collecting problems as it goes."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self.stack: list[_Open] = []
        self.nodes = 0
        self.documents = 0

    def run(self, parser: yaml.SafeLoader) -> None:
        while parser.check_event():
            event = parser.get_event()  # type: ignore[no-untyped-call]  # the stubs lack it
            mark = Mark(self.file, event.start_mark.line + 1, event.start_mark.column + 1)
            match event:
                case yaml.DocumentStartEvent():
                    self.documents += 1
                    if self.documents > 1:
                        self.stop(mark, "a second document begins here", "one file, one document")
                case yaml.AliasEvent():
                    self.refuse_alias(event, mark)
                    self.add(Scalar(mark, None))
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    self.open(event, mark)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self.add(self.stack.pop().node)
                case yaml.ScalarEvent():
                    self.check_node(event, mark)
                    self.add(self.scalar(event, mark))

    def open(self, event: yaml.CollectionStartEvent, mark: Mark) -> None:
        self.check_node(event, mark)
        if len(self.stack) >= MAX_DEPTH:
            self.stop(mark, f"nested deeper than {MAX_DEPTH} levels")
        self.stack.append(_Open(Mapping(mark) if isinstance(event, yaml.MappingStartEvent) else Sequence(mark)))

    def scalar(self, event: yaml.ScalarEvent, mark: Mark) -> Scalar:
        if len(event.value) > MAX_SCALAR:
            self.problems.append(mark.problem(f"a value of {len(event.value)} characters; {MAX_SCALAR} is the limit"))
            return Scalar(mark, "", plain=False)
        if found := FORBIDDEN.search(event.value):
            self.problems.append(mark.problem(f"the value contains the character U+{ord(found[0]):04X}", "remove it"))
            return Scalar(mark, "", plain=False)
        is_plain = event.style is None
        try:
            return Scalar(mark, resolve(event.value, mark) if is_plain else event.value, plain=is_plain)
        except InvalidFile as error:
            self.problems += error.problems
            return Scalar(mark, 0)

    def check_node(self, event: yaml.NodeEvent, mark: Mark) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self.stop(mark, f"more than {MAX_NODES} values")
        if event.anchor is not None:
            self.problems.append(
                mark.problem(f"the anchor &{quoted(event.anchor)[1:-1]}: anchors are not supported", "write it out")
            )
        tag = getattr(event, "tag", None)
        if tag is not None:
            self.problems.append(mark.problem(f"the tag {quoted(tag)}: tags are not supported", "remove it"))

    def refuse_alias(self, event: yaml.AliasEvent, mark: Mark) -> None:
        name = quoted(event.anchor or "")[1:-1]
        self.problems.append(
            mark.problem(
                f"the alias *{name}: aliases are not supported", "write the value out; quote text that begins with *"
            )
        )

    def add(self, node: Node) -> None:
        if not self.stack:
            self.root = node
            return
        top = self.stack[-1]
        if isinstance(top.node, Sequence):
            top.node.items.append(node)
        elif top.key is None and not top.skip:
            self.take_key(top, node)
        else:
            if top.key is not None and top.key_mark is not None:
                top.node.values[top.key] = node
                top.node.keys[top.key] = top.key_mark
            top.key, top.key_mark, top.skip = None, None, False

    def take_key(self, top: _Open, node: Node) -> None:
        """Remember a key until its value comes; refused keys make the value be dropped."""
        assert isinstance(top.node, Mapping)  # noqa: S101 - sequences have no keys
        top.skip = True
        if not isinstance(node, Scalar):
            self.problems.append(
                node.mark.problem(f"{kind_of(node)} cannot be a key", "quote text that begins with [ or {")
            )
        elif not isinstance(node.value, str):
            self.problems.append(node.mark.problem(f"the key is {kind_of(node)}; keys are text", "quote it"))
        elif node.value == "<<" and node.plain:
            self.problems.append(node.mark.problem("merge keys (<<) are not supported", "write the keys out"))
        elif node.value in top.node.keys:
            first = top.node.keys[node.value]
            self.problems.append(
                node.mark.problem(f"the key {quoted(node.value)} is given twice", f"first in line {first.line}")
            )
        else:
            top.key, top.key_mark, top.skip = node.value, node.mark, False

    def stop(self, mark: Mark, message: str, hint: str = "") -> None:
        self.problems.append(mark.problem(message, hint))
        raise _Stop
