"""Checked-in journals and the verdict that each must keep, whatever becomes of the rules' code."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import msgspec
import pytest

from chaos.judge import judge
from chaos.model import events as ev

JOURNALS = Path(__file__).parent / "journals"
EXPECTED: dict[str, dict[str, object]] = json.loads((JOURNALS / "expected.json").read_text())


def told(name: str) -> list[ev.AnyEvent]:
    decoder = msgspec.json.Decoder(ev.AnyEvent)
    raw = (JOURNALS / name).read_bytes()
    return [decoder.decode(line) for line in (gzip.decompress(raw) if name.endswith(".gz") else raw).splitlines()]


def test_every_journal_has_an_expectation():
    assert sorted(EXPECTED) == sorted(path.name for path in JOURNALS.glob("*.jsonl*"))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_no_journal_tells_of_the_machine_it_was_made_on(name):
    raw = (JOURNALS / name).read_bytes()
    text = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode()
    assert [] == [word for word in ("/home/", "/root", "/tmp/", "/work") if word in text]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_checked_in_journal_keeps_its_verdict(name):
    verdict = json.loads(msgspec.json.encode(judge(told(name))))
    assert EXPECTED[name] == {key: verdict[key] for key in EXPECTED[name]}
