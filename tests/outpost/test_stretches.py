"""Logs around a fault: what was before it, what came after, and the end, however long the file is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from chaos.outpost.stretches import AFTER_BYTES, BEFORE_BYTES, END_BYTES, ends, stretch
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from pathlib import Path

LINE = "%08d of a log line that is as long as sixty-four bytes are, no more\n"
LIMIT = BEFORE_BYTES + AFTER_BYTES + END_BYTES


def write(path: Path, first: int, count: int) -> None:
    with path.open("a") as file:
        file.writelines(LINE % number for number in range(first, first + count))


def mark(path: Path) -> list[int] | None:
    return ends([str(path)])[str(path)].get(str(path))


def numbers(text: str) -> list[int]:
    lines = text.splitlines()
    assert all(line.startswith("---") or not line or len(line) == len(LINE % 0) - 1 for line in lines)
    return [int(line[:8]) for line in lines if line[:8].isdigit()]


def test_a_small_log_is_saved_whole(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write(log, 0, 10)
    at = mark(log)
    write(log, 10, 10)
    assert list(range(20)) == numbers(stretch(str(log), at))


def test_of_a_long_log_the_surroundings_of_the_fault_and_the_end_are_saved_in_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write(log, 0, 5000)
    at = mark(log)
    write(log, 5000, 50_000)
    text = stretch(str(log), at)
    got = numbers(text)
    assert len(text) <= LIMIT + 200
    assert {4990, 4999, 5000, 5500, 54_999} <= set(got)
    assert 0 not in got
    assert 30_000 not in got
    assert 2 == text.count("--- bytes")


@pytest.mark.parametrize("how", ["rotated", "cut", "unmarked"])
def test_where_the_fault_cannot_be_found_the_end_is_saved(tmp_path: Path, how: str) -> None:
    log = tmp_path / "log"
    write(log, 0, 9000)
    at = None if how == "unmarked" else mark(log)
    if how == "rotated":
        log.rename(tmp_path / "log.1")
    if how == "cut":
        log.write_text("")
    write(log, 20_000, 5)
    assert list(range(20_000, 20_005)) == numbers(stretch(str(log), at))[-5:]


def test_a_log_that_is_not_there_has_no_mark_and_no_slice(tmp_path: Path) -> None:
    assert mark(tmp_path / "log") is None
    with pytest.raises(Trouble, match="No such file"):
        stretch(str(tmp_path / "log"), None)


def test_of_a_pattern_the_latest_files_are_told(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path / f"log.{number}", 0, number)
        os.utime(tmp_path / f"log.{number}", (number, number))
    (told,) = ends([str(tmp_path / "log.*")]).values()
    assert [(f"log.{number}", len(LINE % 0) * number) for number in (2, 3, 4)] == [
        (path.rpartition("/")[2], size) for path, (_, size) in told.items()
    ]
