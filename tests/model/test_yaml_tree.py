"""YAML text becomes a positioned tree, or is refused with a position: never a traceback, a hang or a blow-up."""

from __future__ import annotations

import resource
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_samples import PACK, SCENARIO, TARGET

from chaos.model.errors import InvalidFile, Problem
from chaos.model.yamlpos import MAX_DEPTH, MAX_NODES, MAX_SCALAR, Mapping, parse_yaml, plain
from chaos.model.yamltext import MAX_BYTES

CPU_LIMIT_S = 20.0
"""The worst takes about one second of CPU on a quiet machine."""


def refused(text: bytes | str) -> str:
    with pytest.raises(InvalidFile) as caught:
        parse_yaml(text, "f.yaml")
    return str(caught.value)


def test_every_value_knows_its_line_and_column() -> None:
    tree = parse_yaml("a: 1\nb:\n  - c: 'x'\n    dd:   2.5\n", "f.yaml")
    assert {"a": 1, "b": [{"c": "x", "dd": 2.5}]} == plain(tree)
    inner = tree.values["b"].items[0]  # type: ignore[union-attr]
    assert isinstance(inner, Mapping)
    assert (4, 5) == (inner.keys["dd"].line, inner.keys["dd"].column)
    assert (4, 11) == (inner.values["dd"].mark.line, inner.values["dd"].mark.column)
    assert "f.yaml" == inner.mark.file


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("Off", "Off"),
        ("yes", "yes"),
        ("y", "y"),
        ("012", "012"),
        ("0", 0),
        ("-7", -7),
        ("+7", 7),
        ("1:30", "1:30"),
        ("190:20:30", "190:20:30"),
        ("0b1", "0b1"),
        ("1_000", "1_000"),
        ("0x1F", 31),
        ("0o17", 15),
        ("2026-06-20", "2026-06-20"),
        ("2026-06-20 14:02:12", "2026-06-20 14:02:12"),
        ("=", "="),
        ("1.5", 1.5),
        ("60.0", 60),
        ("1e3", 1000),
        (".5", 0.5),
        ("1.", 1),
        (".", "."),
        ("true", True),
        ("True", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("25s", "25s"),
        ("'5'", "5"),
        ('"true"', "true"),
        ("'null'", "null"),
        ('""', ""),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_unquoted_words_follow_yaml_1_2_and_quoted_ones_are_text(text: str, value: object) -> None:
    got = plain(parse_yaml(f"k: {text}", "f.yaml"))
    assert {"k": value} == got
    assert type(value) is type(got["k"])  # type: ignore[index, call-overload]


def test_all_structural_problems_are_told_at_once() -> None:
    text = "a: 1\na: 2\nb: &x 3\nc: *x\n<<: {a: 1}\n1: 2\n[a]: 3\nd: !!int 3\ntrue: 1\ne: 1e999\n"
    assert [
        "f.yaml:2:1: the key 'a' is given twice (first in line 1)",
        "f.yaml:3:4: the anchor &x: anchors are not supported (write it out)",
        "f.yaml:4:4: the alias *x: aliases are not supported (write the value out; quote text that begins with *)",
        "f.yaml:5:1: merge keys (<<) are not supported (write the keys out)",
        "f.yaml:6:1: the key is the number 1; keys are text (quote it)",
        "f.yaml:7:1: a list cannot be a key (quote text that begins with [ or {)",
        "f.yaml:8:4: the tag 'tag:yaml.org,2002:int': tags are not supported (remove it)",
        "f.yaml:9:1: the key is true; keys are text (quote it)",
        "f.yaml:10:4: the number '1e999' is too large or not finite",
    ] == refused(text).split("\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "f.yaml:1:1: the file is empty (a file needs at least `version: 1`)"),
        (b"# only a comment\n", "f.yaml:1:1: the file is empty (a file needs at least `version: 1`)"),
        (b"\xef\xbb\xbf", "f.yaml:1:1: the file is empty (a file needs at least `version: 1`)"),
        (b"- a", "f.yaml:1:1: the file must be a mapping (key: value), not a list"),
        (b"--- a", "f.yaml:1:5: the file must be a mapping (key: value), not the text 'a'"),
        (b"a: [1", "f.yaml:1:6: a list `[` is not closed or lacks a comma"),
        (b"{a: 1", "f.yaml:1:6: a mapping `{` is not closed or lacks a comma"),
        (b"x: 1\na: 'x", "f.yaml:2:4: a quote is never closed"),
        (b"a: b: c", "f.yaml:1:5: a `:` cannot stand here (check the indentation, or quote the value)"),
        (b"a: 1\n  b: 2", "f.yaml:2:4: a `:` cannot stand here (check the indentation, or quote the value)"),
        (b"a: b\n- c", "f.yaml:2:1: an indentation or item that fits nothing above it (align it with its neighbours)"),
        (b"  a: 1\nb: 2", "f.yaml:2:1: text that belongs to nothing above it (check the indentation)"),
        (b"a:\n\tb: 1", "f.yaml:2:1: a tab is used for indentation (use spaces)"),
        (b"a:\n  \tb: 1", "f.yaml:2:3: a tab is used for indentation (use spaces)"),
        (b"a: 1\n---\nb: 2", "f.yaml:2:1: a second document begins here (one file, one document)"),
        (b"\xff\xfea\x00", "f.yaml:1:1: the file is UTF-16 or UTF-32 (save it as UTF-8)"),
        (b"\xfe\xff\x00a", "f.yaml:1:1: the file is UTF-16 or UTF-32 (save it as UTF-8)"),
        (b"a: 1\nb: \x00", "f.yaml:2:4: the character U+0000 is not allowed (is this a text file?)"),
        (b"a: \x1b[0m", "f.yaml:1:4: the character U+001B is not allowed (is this a text file?)"),
        ("a: \u2028", "f.yaml:1:4: the character U+2028 is not allowed (is this a text file?)"),
        ("a: \ud800", "f.yaml:1:4: the character U+D800 is not allowed (is this a text file?)"),
        (b"\xc3\xa9: 1\na: \xc3(", "f.yaml:2:4: the byte 0xc3 is not valid UTF-8 (save it as UTF-8)"),
        (b'a: "\\x00"', "f.yaml:1:4: the value contains the character U+0000 (remove it)"),
        (b'a: "\\ud800"', "f.yaml:1:4: the value contains the character U+D800 (remove it)"),
        (b'a: "\\q"', "f.yaml:1:6: an unknown escape after a backslash (use single quotes)"),
        (b"a: >= 20", 'f.yaml:1:5: a value cannot begin with > or | here (quote comparisons: ">= 20")'),
        (b"a: {b: >= 20}", 'f.yaml:1:8: a value cannot begin with > (quote comparisons: ">= 20")'),
        (b"a: @x", "f.yaml:1:4: a value cannot begin with this character (quote it)"),
        (b"a: &", "f.yaml:1:5: a bare & or * begins an anchor or alias (quote it)"),
        (b"a: !q!foo x", "f.yaml:1:4: tags (!) are not supported (quote text that begins with !)"),
        (b"%YAML 2.0\n---\na: 1", "f.yaml:1:1: this YAML version is not supported (remove the %YAML line)"),
        (b"a: .nan", "f.yaml:1:4: the number '.nan' is too large or not finite"),
        (b"a: -.inf", "f.yaml:1:4: the number '-.inf' is too large or not finite"),
        (b"a: 9223372036854775808", "f.yaml:1:4: the number '9223372036854775808' is too large or not finite"),
    ],
)
def test_what_is_refused_has_a_position_and_a_word_for_it(text: bytes | str, message: str) -> None:
    assert message == refused(text)


def test_a_byte_order_mark_and_windows_line_ends_change_no_position() -> None:
    tree = parse_yaml(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n", "f.yaml")
    assert {"a": 1, "b": 2} == plain(tree)
    assert (2, 1) == (tree.keys["b"].line, tree.keys["b"].column)
    assert "f.yaml:2:1: the key 'a' is given twice (first in line 1)" == refused(b"\xef\xbb\xbfa: 1\r\na: 2\r\n")


def test_tabs_inside_text_are_fine() -> None:
    assert {"a": "x\ty", "b": 1} == plain(parse_yaml("a: 'x\ty'\nb: 1 # c\n", "f.yaml"))
    assert "f.yaml:1:3: a tab where a value or key should begin (use spaces)" == refused("a:\t1")


def huge(text: bytes) -> bytes:
    return text[:MAX_BYTES]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        pytest.param(b"a" * (50 << 20), "52428800 bytes; 1048576 is the limit", id="50 MB"),
        pytest.param("é" * (MAX_BYTES + 1), "is the limit", id="long str"),
        pytest.param(b"[" * 100_000, f"deeper than {MAX_DEPTH} levels", id="flow lists"),
        pytest.param(b"{" * 100_000, f"deeper than {MAX_DEPTH} levels", id="flow mappings"),
        pytest.param(b"a: " + b"[a," * 100_000, f"deeper than {MAX_DEPTH} levels", id="flow items"),
        pytest.param(b"- " * 100_000, f"deeper than {MAX_DEPTH} levels", id="block lists"),
        pytest.param(b"? " * 100_000, f"deeper than {MAX_DEPTH} levels", id="complex keys"),
        pytest.param(
            b"".join(b" " * i + b"k:\n" for i in range(1000)), f"deeper than {MAX_DEPTH} levels", id="indentation"
        ),
        pytest.param(huge(b"a: [" + b"a," * 600_000), f"more than {MAX_NODES} values", id="many items"),
        pytest.param(
            huge(b"\n".join(b"k%d: v" % i for i in range(90_000))), f"more than {MAX_NODES} values", id="many keys"
        ),
        pytest.param(huge(b"a: " + b"x" * MAX_BYTES), f"{MAX_SCALAR} is the limit", id="long word"),
        pytest.param(huge(b"a: " + b"x " * MAX_BYTES), f"{MAX_SCALAR} is the limit", id="many words"),
        pytest.param(huge(b"a: '" + b"x\n" * 500_000) + b"", "a quote is never closed", id="open quote"),
        pytest.param(b"a: |\n" + b"  x\n" * 200_000, f"{MAX_SCALAR} is the limit", id="block text"),
        pytest.param(b'a: "' + b"\\n" * 500_000 + b'"', f"{MAX_SCALAR} is the limit", id="escapes"),
        pytest.param(huge(b"a: &" + b"x" * MAX_BYTES), "anchors are not supported", id="long anchor"),
        pytest.param(b"a: !" + b"%41" * 300_000, "tags are not supported", id="long tag"),
        pytest.param(huge(b"%" * MAX_BYTES), "f.yaml:1:2", id="directives"),
        pytest.param(huge(b"#" * MAX_BYTES), "the file is empty", id="comment"),
        pytest.param(huge(b" " * MAX_BYTES), "the file is empty", id="blanks"),
        pytest.param(b"a: " + b"9" * 5000, "too large", id="long number"),
        pytest.param(b"a: 0x" + b"f" * 5000, "too large", id="long hex number"),
        pytest.param(b"%YAML 1." + b"9" * 5000 + b"\n---\na: 1", "this is not YAML", id="long version"),
        pytest.param(b'a: "\\U00110000"', "this is not YAML", id="no such character"),
        pytest.param(
            b"a: &a [x, x]\n" + b"".join(b"k%d: &k%d [*a, *a]\n" % (i, i) for i in range(50)),
            "aliases are not supported",
            id="alias bomb",
        ),
    ],
)
def test_hostile_files_are_refused_quickly_and_in_little_memory(text: bytes | str, part: str) -> None:
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    message = refused(text)
    assert part in message
    assert len(message) < 20_000
    assert CPU_LIMIT_S > time.process_time() - started
    assert (200 << 10) > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib


YAMLISH = st.text(alphabet="ab01:-?#&*!|>'\"%@`{}[], \n\t.~<=eE_\\xuU\r", max_size=200)


def tree_or_problems(text: bytes | str) -> Mapping | list[Problem]:
    """No other exception than InvalidFile is let out."""
    try:
        return parse_yaml(text, "f.yaml")
    except InvalidFile as error:
        return error.problems


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.binary(max_size=200), YAMLISH, st.text(max_size=100)))
def test_any_input_gives_a_tree_or_positioned_problems(text: bytes | str) -> None:
    outcome = tree_or_problems(text)
    if isinstance(outcome, Mapping):
        assert isinstance(plain(outcome), dict)
    else:
        assert outcome
        assert all(problem.line >= 1 and problem.column >= 1 for problem in outcome)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([SCENARIO, TARGET, PACK]),
    st.integers(0, 400),
    st.integers(0, 30),
    st.text("a:-[]{}'\"\n &*!>", max_size=5),
)
def test_a_damaged_file_gives_a_tree_or_positioned_problems(text: str, at: int, cut: int, put: str) -> None:
    assert tree_or_problems(text[:at] + put + text[at + cut :])
