"""The scanner finds what patterns tried on every line would find."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.engine.probes.follow import known_lines
from chaos.engine.probes.literals import MIN_LITERAL, required_literal
from chaos.library import load_packs
from chaos.model.pack import Samples, Signature
from chaos.outpost import scan
from chaos.outpost.scan import Scanner, last_date, split_lines

PACKS = [loaded.value for loaded in load_packs().values()]
PACKED = [signature for pack in PACKS for signature in pack.signatures]


def signature(name: str, pattern: str, **fields: str) -> Signature:
    samples = Samples(match=["-"])
    return Signature(
        id=name, title=name, pattern=pattern, roles=["prefill"], samples=samples, **{"class": "symptom", **fields}
    )


TRICKY = [
    r"Exception in thread [^(]{1,80}\((?:bootstrap_thread|bootstrap_worker)",
    r"abcde?fghij",
    r"abcd{2,3}efgh",
    r"abcd{,3}efgh",
    r"abcd{x}efgh",
    r"abcd*?efgh+?ijkl",
    r"ab\.cd\[ef\]gh",
    r"[]abc]defgh[^]]ijklm",
    r"(?:ab(?:cd)[)]ef)ghijk",
    r"abcd(?:[)]|e)+efgh\b",
    r"(?P<room>\d+) timed out(?: after)?",
    r"^\[http_server\] +Client\s+gone$",
    r"a\tbcd\nefgh",
]
HARD = [r"abcd|efgh", r"(?i:abcdef)", r"abcd\x41efgh", r"(abcd)\1efgh", r"abc", r"[abcdef]+", r"(?#a(b)abcdef", r"\d+"]


@pytest.mark.parametrize("pattern", TRICKY)
def test_a_required_literal_is_found(pattern: str) -> None:
    assert len(required_literal(pattern) or "") >= MIN_LITERAL


@pytest.mark.parametrize("pattern", HARD)
def test_in_doubt_nothing_is_required(pattern: str) -> None:
    assert required_literal(pattern) is None


@pytest.mark.parametrize("pattern", [*TRICKY, *sorted({signature.pattern for signature in PACKED})])
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_every_match_contains_what_is_required(pattern: str, data: st.DataObject) -> None:
    assert (required_literal(pattern) or "") in data.draw(st.from_regex(pattern))


def test_every_shipped_signature_can_be_searched_for_without_its_pattern() -> None:
    assert [] == [signature.id for signature in PACKED if required_literal(signature.pattern) is None]


def test_every_shipped_sample_gets_the_meaning_its_pack_gives_it() -> None:
    for pack in PACKS:
        for role in ("router", "prefill", "decode"):
            mine = [signature for signature in pack.signatures if role in signature.roles]
            scanner = Scanner(known_lines(mine))
            for line in (line for one in mine for line in one.samples.match):
                first = next(one.id for one in mine if re.search(one.pattern, line))
                assert [first] == [mine[found.known].id for found in scanner.scan(line.encode() + b"\n")]


WORDS = ["died", "thread-12 died", "room=77 gone", "gone", "fine", "", "abcd", "\u00e9t\u00e9 died", "DIED", "\x00\xff"]
SIGNATURES = [
    signature("first", r"thread-\d+ died"),
    signature("second", r"room=(?P<room>\d+) gone", key="room"),
    signature("third", r"died"),
]


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(WORDS), max_size=30),
    st.sampled_from(["\n", "\r", "\r\n"]),
    st.booleans(),
    st.sampled_from([0, 5, 1 << 17]),
)
def test_hits_are_those_of_trying_every_pattern_on_every_line(
    words: list[str], end: str, every_line: bool, window: int
) -> None:
    block = end.join([*words, ""]).encode("utf-8")
    signatures = [*SIGNATURES, signature("short", "fi")] if every_line else SIGNATURES
    expected = [
        (line, next(s.id for s in signatures if re.search(s.pattern, line.decode(errors="replace"))))
        for line in split_lines(block)
        if any(re.search(s.pattern, line.decode(errors="replace")) for s in signatures)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "WINDOW_BYTES", window)
        got = Scanner(known_lines(signatures)).scan(block)
    assert expected == [(found.line, signatures[found.known].id) for found in got]
    assert all(block[found.start :].startswith(found.line) for found in got)


def test_a_hit_has_its_key_and_the_first_signature_in_order() -> None:
    found = Scanner(known_lines(SIGNATURES)).scan(b"room=77 gone because thread-1 died\nroom=78 gone\n")
    assert [("first", ""), ("second", "78")] == [(SIGNATURES[one.known].id, one.key) for one in found]


def test_no_signatures_find_nothing() -> None:
    assert [] == Scanner([]).scan(b"thread-1 died\n")


@pytest.mark.parametrize(
    ("line", "date"),
    [
        (b"[2026-06-27 10:16:12 TP0] Decode", "2026-06-27 10:16:12"),
        (b"[2026-06-27 10:16:12.250 DP1] x", "2026-06-27 10:16:12.250"),
        (b"2026-02-26 13:55:38  INFO smg::server: x", "2026-02-26 13:55:38"),
        (b"2026-02-26T13:55:38.123456Z  INFO x", "2026-02-26T13:55:38.123456Z"),
        (b"E0521 16:22:21.695616  123 x.cpp:1] y", "0521 16:22:21.695616"),
        (b"(EngineCore_DP0 pid=60) WARNING 06-27 10:16:12 [worker.py:80] y", "06-27 10:16:12"),
        (b"\x1b[1;36m(APIServer pid=41)\x1b[0;0m INFO 06-27 10:16:12 [loggers.py:257] y", "06-27 10:16:12"),
        (b"INFO 06-27 10:16:12 [core.py:80] y", "06-27 10:16:12"),
        (b"(a pid=1) it died at 06-27 10:16:12", ""),
        (b'  File "x.py", line 3', ""),
        (b"at 2026-02-26 13:55:38 it died", ""),
    ],
)
def test_stamps_are_read_where_a_line_begins_with_one(line: bytes, date: str) -> None:
    assert date == last_date(line, 0, len(line))


def test_an_undated_line_has_the_stamp_of_the_nearest_dated_one_before_it() -> None:
    block = (
        b"[2026-06-27 10:00:01] a\n"
        b"[2026-06-27 10:00:02] b\nTraceback (most recent call last):\n  File x\nthread-1 died\n"
        b"thread-2 died\n[2026-06-27 10:00:03] thread-3 died\n"
    )
    scanner = Scanner(known_lines(SIGNATURES))
    assert ["2026-06-27 10:00:02", "2026-06-27 10:00:02", "2026-06-27 10:00:03"] == [
        found.log_time for found in scanner.scan(block)
    ]
    assert ["before"] == [found.log_time for found in scanner.scan(b"thread-1 died\n", "before")]
