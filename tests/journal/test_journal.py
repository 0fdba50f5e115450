"""The journal survives what ends runs: SIGKILL, a full disk, a torn line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import pytest

from chaos.journal import JournalWriter, RunFolder, read_journal
from chaos.model import events as ev
from chaos.model.errors import HarnessError, UsageError, UserError
from chaos.model.outcomes import ExitCode

if TYPE_CHECKING:
    from pathlib import Path


def started() -> ev.RunStarted:
    return ev.RunStarted(
        t_ns=1, format=ev.FORMAT, run_id="r", tool_version="0", utc="x", target="file", plan=ev.Plan(scenario="s")
    )


def write(path: Path, *events: ev.AnyEvent) -> JournalWriter:
    writer = JournalWriter(path)
    for event in events:
        writer.write(writer.stamp(event, 0))
    return writer


def test_what_was_written_is_read_back_with_gapless_numbers(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, started(), ev.PhaseEntered(t_ns=2, phase="baseline")).close()
    journal = read_journal(path)
    assert [1, 2] == [event.seq for event in journal.events]
    assert 0 == journal.damaged
    assert "baseline" == journal.events[1].phase  # type: ignore[union-attr]


def test_every_emitted_event_survives_sigkill_of_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    code = textwrap.dedent(f"""
        import sys, time
        sys.path[:0] = {sys.path!r}
        from pathlib import Path
        from chaos.journal import JournalWriter
        from chaos.model import events as ev
        w = JournalWriter(Path({str(path)!r}))
        plan = ev.Plan(scenario="s")
        e = ev.RunStarted(t_ns=1, format=1, run_id="r", tool_version="0", utc="x", target="file", plan=plan)
        w.write(w.stamp(e, 0))
        for i in range(10**9):
            w.write(w.stamp(ev.PhaseEntered(t_ns=i, phase="load"), 1))
            print(i, flush=True)
    """)
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    said = [int(child.stdout.readline()) for _ in range(500)]
    os.kill(child.pid, signal.SIGKILL)
    said += map(int, child.stdout.read().split())
    child.stdout.close()
    child.wait()
    journal = read_journal(path)
    assert len(journal.events) >= 1 + len(said)  # the first event, and one before each number
    assert list(range(1, len(journal.events) + 1)) == [event.seq for event in journal.events]


def test_a_torn_last_line_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, started(), ev.PhaseEntered(t_ns=2, phase="baseline")).close()
    path.write_bytes(path.read_bytes()[:-9])
    journal = read_journal(path)
    assert (1, 1) == (len(journal.events), journal.damaged)


@pytest.mark.parametrize("content", [b"", b"\n", b"hello\n", b'{"type":"scrape"}\n', b"\xff\xfe\0", b"[1]\n"])
def test_what_is_no_journal_is_refused_with_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"journal\.jsonl: not a pdchaos journal"):
        read_journal(path)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, started()).close()
    path.write_text(path.read_text().replace('"format":1', '"format":2'))
    with pytest.raises(UserError, match="format 2"):
        read_journal(path)


def test_an_event_of_an_unknown_type_is_counted_not_fatal(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, started()).close()
    with path.open("ab") as file:
        file.write(b'{"type":"from.the.future","t_ns":3,"seq":2}\n')
    assert 1 == read_journal(path).damaged


@pytest.mark.parametrize("absurd", ["1e300", "-1e300", "1e999"])
def test_times_that_nothing_lasts_are_damage_and_are_fatal_only_in_the_plan(tmp_path: Path, absurd: str) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, started(), ev.HarnessHealth(t_ns=2, who="harness", lag_max_ms=17.5)).close()
    whole = path.read_text()
    path.write_text(whole.replace("17.5", absurd))
    assert 1 == read_journal(path).damaged
    assert '"plan":{' in whole
    path.write_text(whole.replace('"plan":{', f'"plan":{{"canary_deadline_s":{absurd},'))
    with pytest.raises(UserError, match="the first event cannot be read") as refusal:
        read_journal(path)
    assert refusal.value.hint


@pytest.fixture
def small_disk(tmp_path: Path):
    mounted = tmp_path / "disk"
    mounted.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", mounted], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("this machine does not let us mount a small disk")
    yield mounted
    subprocess.run(["umount", mounted], check=True)


def test_a_full_disk_keeps_what_was_written_and_leaves_room_for_the_farewell(small_disk: Path) -> None:
    path = small_disk / "journal.jsonl"
    writer = write(path, started())
    for number in range(100_000):
        writer.write(writer.stamp(ev.PhaseEntered(t_ns=number, phase="load", reason="x" * 100), 1))
        if writer.failure is not None:
            break
    assert writer.failure is not None
    assert "No space left" in (writer.failure.strerror or "")
    writer.farewell(writer.stamp(ev.RunEnded(t_ns=9, status="harness-error", cleanup="clean"), 1))
    writer.close()
    journal = read_journal(path)
    assert isinstance(journal.events[-1], ev.RunEnded)
    assert len(journal.events) > 1000


def test_a_run_folder_is_made_once(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, utc="20261129T000000Z", scenario="s", run_id="ab")
    assert folder.logs.is_dir()
    with pytest.raises(HarnessError):
        RunFolder.create(tmp_path, utc="20261129T000000Z", scenario="s", run_id="ab")


def test_a_place_where_no_folder_can_be_is_the_users_to_mend(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to("nothing")
    for place, said in (("file", "file is no folder"), ("file/in", "file is no folder"), ("nowhere", "is no folder")):
        with pytest.raises(UsageError, match=said) as caught:
            RunFolder.create(tmp_path / place, utc="u", scenario="s", run_id="ab")
        assert ExitCode.USAGE is caught.value.exit_code
    with pytest.raises(UsageError, match="File name too long"):
        RunFolder.create(tmp_path / ("x" * 300), utc="u", scenario="s", run_id="ab")


def test_a_file_in_the_folder_is_whole_or_not_there(small_disk: Path) -> None:
    folder = RunFolder.create(small_disk, utc="u", scenario="s", run_id="ab")
    with pytest.raises(HarnessError, match="No space left"):
        folder.write("report.html", b"x" * (2 << 20))
    assert not folder.report.exists()
    assert [] == [path for path in folder.root.iterdir() if path.is_file()]


def test_opening_what_is_no_run_folder_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run folder"):
        RunFolder.open(tmp_path)


def test_sync_is_fast_enough_to_be_called_each_second(tmp_path: Path) -> None:
    writer = write(tmp_path / "journal.jsonl", started())
    begun = time.monotonic()
    writer.sync()
    assert 5 > time.monotonic() - begun  # a starved machine may take a second; a hang is the defect
    writer.close()
