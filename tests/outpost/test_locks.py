"""Of two runs on one deployment one wins, whoever began first; what is dead gives way."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from chaos.outpost import locks, state
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from pathlib import Path

KEYS = ["aa", "bb"]
NOBODY = {"held": [], "over": []}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(state, "SHARED", (f"{tmp_path}/locks",))
    return tmp_path / "locks"


def take(keys: list[str], run: str, *, ttl_s: float = 60.0, steal: bool = False) -> dict:
    return locks.take(keys, run, f"somebody@{run}", ttl_s, steal=steal)


def test_what_a_run_holds_no_other_gets_and_nothing_of_it_is_left(folder: Path) -> None:
    assert NOBODY == take(KEYS, "one")
    said = take(["bb", "cc"], "two")
    assert [("one", "somebody@one", True)] == [(one["run"], one["owner"], one["live"]) for one in said["held"]]
    assert {"aa.json", "bb.json"} == {path.name for path in folder.iterdir()}, "all or none"
    assert 0o644 == (folder / "aa.json").stat().st_mode & 0o777
    locks.release(["bb", "cc"], "two")
    assert 2 == len(locks.seen(KEYS)), "it is not the other's to give back"
    locks.release(KEYS, "one")
    assert not folder.exists()
    assert NOBODY == take(KEYS, "two")
    locks.release(KEYS, "two")


def test_where_no_lock_can_be_written_not_even_the_folder_is_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise Trouble("denied", "No space left on device")

    monkeypatch.setattr(state, "write", full)
    with pytest.raises(Trouble, match="No space left"):
        take(KEYS, "one")
    assert not folder.exists()


def test_a_lock_that_ran_out_is_taken_over(folder: Path) -> None:
    take(KEYS, "one", ttl_s=-1.0)
    said = take(KEYS, "two")
    assert [] == said["held"]
    assert [("one", False)] * 2 == [(one["run"], one["live"]) for one in said["over"]]
    assert {"lost": []} == locks.renew(KEYS, "two", "x", 60.0)
    assert ["two", "two"] == [one["run"] for one in locks.renew(KEYS, "one", "x", 60.0)["lost"]]
    locks.release(KEYS, "two")


def test_the_lock_of_a_process_that_is_gone_is_taken_over_at_once(folder: Path) -> None:
    code = (
        "import os, sys\nfrom chaos.outpost import locks, state\nstate.SHARED = (sys.argv[1],)\n"
        "locks.take(['aa'], 'one', 'x', 60.0)\nos._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, timeout=60)
    assert [False] == [one["live"] for one in locks.seen(["aa"])]
    assert ["one"] == [one["run"] for one in take(["aa"], "two")["over"]]
    locks.release(["aa"], "two")


def test_a_process_that_ends_gives_back_what_it_held(folder: Path) -> None:
    code = (
        "import sys\nfrom chaos.outpost import locks, state\nstate.SHARED = (sys.argv[1],)\n"
        "locks.take(['aa'], 'one', 'x', 60.0)"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, timeout=60)
    assert not folder.exists()


def test_an_outpost_gives_back_what_its_harness_held_when_that_is_killed(folder: Path) -> None:
    code = "import sys\nfrom chaos.outpost import serve, state\nstate.SHARED = (sys.argv[1],)\nserve.main()"
    args = {"keys": ["aa"], "run": "one", "owner": "x", "ttl_s": 60.0}
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as outpost:
        assert outpost.stdin is not None
        assert outpost.stdout is not None
        outpost.stdin.write(json.dumps({"id": 1, "op": "lock.take", "args": args}) + "\n")
        outpost.stdin.flush()
        assert {"id": 1, "ok": NOBODY} == json.loads(outpost.stdout.readline())
        assert (folder / "aa.json").exists()
        outpost.stdin.close()
        assert 0 == outpost.wait(60)
    assert not folder.exists()


def test_another_process_with_the_same_number_holds_nothing(folder: Path) -> None:
    take(["aa"], "one")
    lock = state.read(folder / "aa.json")
    state.write(folder / "aa.json", {**lock, "holder": lock["holder"].replace(":", ":1", 1)})
    assert [] == take(["aa"], "two")["held"]
    locks.release(["aa"], "two")


def test_stealing_tells_from_whom_and_clearing_leaves_the_living(folder: Path) -> None:
    take(["aa"], "one")
    take(["bb"], "gone", ttl_s=-1.0)
    assert ["gone"] == [one["run"] for one in locks.clear(KEYS)]
    said = take(["aa"], "two", steal=True)
    assert ([], [("one", True)]) == (said["held"], [(one["run"], one["live"]) for one in said["over"]])
    assert ["two"] == [one["run"] for one in locks.clear(KEYS, steal=True)]
    assert not folder.exists()


def test_all_locks_of_a_host_are_seen_with_whose_they_are_and_on_what(folder: Path) -> None:
    locks.take(["aa"], "one", "ops@laptop", 60.0, target="staging")
    locks.take(["bb"], "two", "eve@desk", -1.0, target="other")
    assert {"lost": []} == locks.renew(["aa"], "one", "ops@laptop", 60.0, target="staging")
    assert [
        ("aa", "one", "ops@laptop", "staging", True),
        ("bb", "two", "eve@desk", "other", False),
    ] == [(one["key"], one["run"], one["owner"], one["target"], one["live"]) for one in locks.seen()]
    for run in ("one", "two"):
        locks.release(["aa", "bb"], run)
    assert [] == locks.seen()
    assert not folder.exists()


def test_renewing_keeps_since_when_and_brings_back_what_vanished(folder: Path) -> None:
    take(["aa"], "one")
    before = locks.seen(["aa"])[0]
    (folder / "aa.json").unlink()
    take(["bb"], "one")
    assert {"lost": []} == locks.renew(KEYS, "one", "x", 600.0)
    after = locks.seen(KEYS)
    assert 2 == len(after)
    assert all(lock["until_s"] > before["until_s"] + 500 for lock in after)
    bb = locks.seen(["bb"])[0]
    locks.renew(["bb"], "one", "x", 700.0)
    assert bb["since_s"] == locks.seen(["bb"])[0]["since_s"]
    locks.release(KEYS, "one")


def test_of_many_that_begin_at_the_same_moment_exactly_one_wins(folder: Path) -> None:
    code = (
        "import json, sys, time\nfrom chaos.outpost import locks, state\nstate.SHARED = (sys.argv[1],)\n"
        "print('ready', flush=True)\nsys.stdin.readline()\n"
        "said = locks.take(['aa', 'bb', 'cc'], sys.argv[2], 'x', 60.0)\n"
        "print(json.dumps(said), flush=True)\nsys.stdin.readline()"
    )
    take(["bb"], "dead", ttl_s=-1.0)  # all of them find something to take over
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(folder), f"run{n}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(6)
    ]
    try:
        for run in runs:
            assert "ready\n" == run.stdout.readline()
        for run in runs:
            run.stdin.write("go\n")
            run.stdin.flush()
        said = [json.loads(run.stdout.readline()) for run in runs]
    finally:
        for run in runs:
            run.communicate(timeout=60)
    assert 1 == sum(not one["held"] for one in said)
    winners = {one["held"][0]["run"] for one in said if one["held"]}
    assert 1 == len(winners)
    assert not folder.exists()


def test_the_folder_may_vanish_under_whoever_waits_for_it(folder: Path) -> None:
    for _ in range(20):
        assert NOBODY == take(KEYS, "one")
        locks.release(KEYS, "one")
    assert not folder.exists()


def test_somebody_who_keeps_the_folder_is_told_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "BUSY_S", 0.05)
    with locks._folder():
        began = time.monotonic()
        with pytest.raises(locks.Trouble, match="is kept locked by somebody"):
            take(KEYS, "one")
        assert time.monotonic() - began < 30
