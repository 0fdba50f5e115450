"""Log files on a host: globs, cursors that outlive a cut connection, floods."""

from __future__ import annotations

import gzip
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from chaos.outpost import follow, sources, tail
from chaos.outpost.budget import Budget
from chaos.outpost.logs import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KNOWN = {"n": [[r"thread-\d+ died", "", "thread-"]]}


class Listener:
    """Whoever follows: what it heard, and from where it goes on."""

    def __init__(self, what: Path, cursors: dict[str, Any] | None = None) -> None:
        source = {"kind": "file", "what": str(what)}
        if cursors is None:
            (look,) = probe([source])
            cursors = look["cursors"]
        self.follower = follow.Follower([{**source, "node": "n", "cursors": cursors}], KNOWN, Budget())
        self.heard: list[dict[str, Any]] = []
        self.cursors = dict(cursors)

    def look(self) -> list[str]:
        """Look until there is no more; the lines that this brought."""
        before, more = len(self.heard), True
        while more:
            self._hear(self.follower.turn())
            more = self.follower.more
        return self.lines(self.heard[before:])

    def finish(self) -> list[str]:
        before = len(self.heard)
        self._hear(self.follower.finish(lambda: False))
        self.follower.close()
        return self.lines(self.heard[before:])

    def cut(self) -> dict[str, Any]:
        """The connection is gone; from where to go on."""
        self.follower.close()
        return self.cursors

    def lines(self, messages: list[dict[str, Any]]) -> list[str]:
        return [hit[1] for message in messages for hit in message.get("hits", ())]

    @property
    def gaps(self) -> list[str]:
        return [message["gap"] for message in self.heard if message.get("gap")]

    @property
    def blind(self) -> list[str]:
        return [message["blind"] for message in self.heard if message.get("blind")]

    def _hear(self, messages: Iterator[dict[str, Any]]) -> None:
        for message in messages:
            self.heard.append(message)
            if "cursor" in message:
                self.cursors[str(message["text"])] = message["cursor"]


@pytest.fixture
def listen() -> Iterator[Callable[..., Listener]]:
    made: list[Listener] = []

    def make(*args: Any) -> Listener:
        made.append(Listener(*args))
        return made[-1]

    yield make
    for one in made:
        one.follower.close()


Listen = "Callable[..., Listener]"


def write(path: Path, *numbers: int, end: str = "\n") -> None:
    with path.open("a") as file:
        file.write("".join(f"thread-{n} died{end}" for n in numbers))


# ------------------------------------------------------------------------------------------------ globs


def test_every_file_that_a_glob_matches_is_read_from_where_it_ended_and_later_ones_from_their_beginning(
    tmp_path: Path, listen: Listen
) -> None:
    one, two, other = (tmp_path / name for name in ("r1.log", "r2.log", "x.txt"))
    write(one, 0)
    listener = listen(tmp_path / "r*.log")
    write(one, 1)
    write(two, 2)
    write(other, 3)
    assert ["thread-1 died", "thread-2 died"] == sorted(listener.look())
    assert {1, 2} == {message["text"] for message in listener.heard if message.get("hits")}
    assert [] == listener.blind


def test_a_glob_that_matches_nothing_cannot_be_read_now_and_nothing_is_lost_once_it_does(
    tmp_path: Path, listen: Listen
) -> None:
    (look,) = probe([{"kind": "file", "what": f"{tmp_path}/*.log"}])
    assert sources.NO_MATCH == look["why"]
    listener = listen(tmp_path / "*.log")
    listener.look()
    assert [sources.NO_MATCH] == listener.blind
    assert listener.heard[0]["whole"]
    write(tmp_path / "a.log", 1)
    assert ["thread-1 died"] == listener.look()
    assert "" == listener.heard[-2]["blind"]


def test_a_file_that_is_rotated_within_a_glob_is_read_once_and_its_successor_from_the_beginning(
    tmp_path: Path, listen: Listen
) -> None:
    log = tmp_path / "r.log"
    write(log, 0)
    listener = listen(tmp_path / "r.log*")
    write(log, 1)
    assert ["thread-1 died"] == listener.look()
    write(log, 2)
    log.rename(tmp_path / "r.log.1")
    write(log, 3)
    write(tmp_path / "r.log.1", 4)
    assert ["thread-2 died", "thread-3 died", "thread-4 died"] == sorted(listener.look())


def test_a_file_that_leaves_a_glob_is_read_on(tmp_path: Path, listen: Listen) -> None:
    log = tmp_path / "r.log"
    write(log, 0)
    listener = listen(tmp_path / "*.log")
    listener.look()
    log.rename(tmp_path / "r.old")
    write(tmp_path / "r.old", 1)
    assert ["thread-1 died"] == listener.look()
    assert "moved or deleted" in listener.heard[-2]["ranges"][0][4]


@pytest.mark.parametrize("put", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_file_whose_path_a_pipe_or_a_device_has_taken_is_read_on_and_that_is_said(
    tmp_path: Path, listen: Listen, put: Callable[[Path], None]
) -> None:
    one = tmp_path / "r1.log"
    one.touch()
    listener = listen(one)
    with one.open("a") as file:
        one.unlink()
        put(one)
        file.write("thread-1 died\n")
        file.flush()
        assert ["thread-1 died"] == listener.look()
    listener.finish()
    notes = [told[4] for message in listener.heard for told in message.get("ranges", ())]
    assert any("moved or deleted" in note for note in notes), notes


def test_more_files_than_are_followed_are_said_once(
    tmp_path: Path, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MAX_FILES", 2)
    for n in range(2):
        write(tmp_path / f"{n}.log", n)
    listener = listen(tmp_path / "*.log")
    listener.look()
    write(tmp_path / "8.log", 8)
    assert [] == listener.look()
    assert [] == listener.look()
    assert ["more than 2 files match: some are not read"] == listener.gaps
    (tmp_path / "0.log").unlink()
    write(tmp_path / "9.log", 9)  # in the place of the one that is gone
    assert ["thread-9 died"] == listener.look()


def test_a_file_that_may_not_be_read_is_named_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.log", 1)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    (look,) = probe([{"kind": "file", "what": f"{tmp_path}/*.log"}])
    assert "Permission denied" == look["why"]


# ------------------------------------------------------------------------------------------------ cut connections


def test_after_a_cut_a_file_is_read_on_where_it_was_with_the_line_that_had_begun(
    tmp_path: Path, listen: Listen
) -> None:
    log = tmp_path / "x.log"
    write(log, 0)
    first = listen(log)
    write(log, 1)
    write(log, 2, end="")
    assert ["thread-1 died"] == first.look()
    cursors = first.cut()
    write(log, 3, end=" too\n")
    second = listen(log, cursors)
    assert ["thread-2 diedthread-3 died too"] == second.look()
    assert [] == second.gaps


@pytest.mark.parametrize("what", ["x.log", "x.log*"])
def test_a_file_that_was_rotated_during_a_cut_is_found_by_its_inode_and_nothing_is_lost(
    tmp_path: Path, listen: Listen, what: str
) -> None:
    log = tmp_path / "x.log"
    write(log, 0)
    first = listen(tmp_path / what)
    write(log, 1)
    assert ["thread-1 died"] == first.look()
    cursors = first.cut()
    write(log, 2)
    log.rename(tmp_path / "x.log.1")
    write(log, 3)
    second = listen(tmp_path / what, cursors)
    assert ["thread-2 died", "thread-3 died"] == sorted(second.look())
    assert [] == second.gaps


def test_also_when_it_was_rotated_twice(tmp_path: Path, listen: Listen) -> None:
    log = tmp_path / "x.log"
    write(log, 0)
    first = listen(log)
    write(log, 1)
    first.look()
    cursors = first.cut()
    write(log, 2)
    log.rename(tmp_path / "x.log.2")
    later = time.time() + 10
    write(log, 3)
    log.rename(tmp_path / "x.log.1")
    os.utime(tmp_path / "x.log.1", (later, later))
    write(log, 4)
    write(tmp_path / "x.log.0", 9)  # of long ago
    os.utime(tmp_path / "x.log.0", (1, 1))
    second = listen(log, cursors)
    assert ["thread-2 died", "thread-3 died", "thread-4 died"] == second.look()
    assert [] == second.gaps


def test_also_when_nothing_has_its_place_yet(tmp_path: Path, listen: Listen) -> None:
    log = tmp_path / "x.log"
    write(log, 0)
    first = listen(log)
    first.look()
    cursors = first.cut()
    write(log, 1)
    log.rename(tmp_path / "x.log.1")
    second = listen(log, cursors)
    assert ["thread-1 died"] == second.look()
    assert [] == [*second.gaps, *second.blind]


@pytest.mark.parametrize("what", ["x.log", "*.log"])
def test_a_file_that_is_gone_after_a_cut_is_a_gap(tmp_path: Path, listen: Listen, what: str) -> None:
    log = tmp_path / "x.log"
    write(log, 0)
    first = listen(tmp_path / what)
    write(log, 1)
    first.look()
    cursors = first.cut()
    write(log, 2)
    with gzip.open(tmp_path / "x.log.1.gz", "wb") as packed:
        packed.write(log.read_bytes())
    held = log.open("rb")  # so that its inode is not given to the next
    log.unlink()
    write(log, 3)
    second = listen(tmp_path / what, cursors)
    assert ["thread-3 died"] == second.look()
    held.close()
    assert [True] == ["gone" in gap for gap in second.gaps]


def test_a_file_that_was_moved_to_another_folder_of_the_glob_is_found_there(tmp_path: Path, listen: Listen) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    write(tmp_path / "a" / "x.log", 0)
    first = listen(tmp_path / "*" / "x.log")
    first.look()
    cursors = first.cut()
    write(tmp_path / "a" / "x.log", 1)
    (tmp_path / "a" / "x.log").rename(tmp_path / "b" / "x.log")
    second = listen(tmp_path / "*" / "x.log", cursors)
    assert ["thread-1 died"] == second.look()
    assert [] == second.gaps


def test_a_glob_whose_only_file_is_gone_after_a_cut_has_a_gap_and_matches_nothing(
    tmp_path: Path, listen: Listen
) -> None:
    write(tmp_path / "x.log", 0)
    first = listen(tmp_path / "*.log")
    first.look()
    cursors = first.cut()
    (tmp_path / "x.log").unlink()
    second = listen(tmp_path / "*.log", cursors)
    second.look()
    second.look()
    assert ["gone while nobody could read it"] == second.gaps
    assert [sources.NO_MATCH] == second.blind
    assert second.cursors["1"] is None


def test_a_file_that_was_truncated_during_a_cut_is_a_gap(tmp_path: Path, listen: Listen) -> None:
    log = tmp_path / "x.log"
    write(log, 0)
    first = listen(log)
    write(log, 1)
    first.look()
    cursors = first.cut()
    log.write_text("another life, and longer than the one before\nthread-2 died\n")
    second = listen(log, cursors)
    assert ["thread-2 died"] == second.look()
    assert ["truncated"] == [gap.split(":")[0] for gap in second.gaps]


def test_a_file_that_appeared_during_a_cut_is_read_from_its_beginning(tmp_path: Path, listen: Listen) -> None:
    first = listen(tmp_path / "x.log")
    first.look()
    cursors = first.cut()
    write(tmp_path / "x.log", 1)
    second = listen(tmp_path / "x.log", cursors)
    assert ["thread-1 died"] == second.look()
    assert [] == second.gaps


# ------------------------------------------------------------------------------------------------ floods


def test_a_reader_that_falls_behind_skips_ahead_and_says_how_much_it_left_out(
    tmp_path: Path, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "BEHIND_BYTES", 1 << 20)
    monkeypatch.setattr(tail, "KEPT_BYTES", 1 << 16)
    log = tmp_path / "x.log"
    log.touch()
    listener = listen(log)
    listener.look()
    write(log, 1)
    with log.open("a") as file:
        file.write("filler\n" * (1 << 18))
    write(log, 2)
    assert ["thread-2 died"] == listener.look()
    spans = [span for message in listener.heard for span in message.get("ranges", ())]
    (lost,) = [span[3] for span in spans if span[3]]
    read = sum(span[1] - span[0] for span in spans)
    assert log.stat().st_size == read + lost
    assert read == 1 << 16
    assert [f"grew faster than it could be read: {lost} bytes were skipped"] == listener.gaps


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_whoever_floods_does_not_keep_the_others_from_being_read(tmp_path: Path, names: str) -> None:
    flood, quiet = (tmp_path / name for name in names)
    logs = sorted([flood, quiet])
    asked = [{"node": "n", "kind": "file", "what": str(log), "cursors": {}} for log in logs]
    follower = follow.Follower(asked, KNOWN, Budget(bytes_per_s=1 << 20, cpu_share=1000.0))
    flood.write_text("filler\n" * (1 << 20))
    write(quiet, 1)
    heard = list(follower.turn())
    follower.close()
    assert ["thread-1 died"] == [hit[1] for message in heard for hit in message.get("hits", ())]


def test_the_end_is_read_to_where_it_was_and_no_further(
    tmp_path: Path, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "LOOK_BYTES", 10)
    log = tmp_path / "x.log"
    log.touch()
    listener = listen(log)
    listener.look()
    write(log, 1)
    ending = listener.follower.finish(lambda: False)
    heard = [next(ending)]  # has read ten bytes
    write(log, 2)
    heard += ending
    assert ["thread-1 died"] == listener.lines(heard)
    assert 14 == max(span[1] for message in heard for span in message.get("ranges", ()))


def test_what_is_not_read_in_time_at_the_end_is_lost_and_that_is_said(
    tmp_path: Path, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "FINISH_S", 0.0)
    log = tmp_path / "x.log"
    log.touch()
    listener = listen(log)
    listener.look()
    write(log, 1)
    assert [] == listener.finish()
    assert [14] == [span[3] for message in listener.heard for span in message.get("ranges", ()) if span[3]]
    assert ["14 bytes at its end could not be read in time"] == listener.gaps
