"""Records on a host: private ones, shared ones, whole or not at all, and nothing left when there is nothing to say."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from chaos.outpost import state
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from pathlib import Path


def test_the_first_folder_that_can_be_ours_is_taken_and_is_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "a-link").symlink_to(elsewhere)
    candidates = (f"{tmp_path}/missing/deep", f"{tmp_path}/a-link", f"{tmp_path}/ours-{{uid}}")
    monkeypatch.setattr(state, "PRIVATE", candidates)
    folder = state.private_folder()
    assert tmp_path / f"ours-{os.getuid()}" == folder
    assert 0o700 == folder.stat().st_mode & 0o777
    assert [folder] == state.private_folders()


def test_a_host_without_any_folder_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "PRIVATE", (f"{tmp_path}/missing/deep",))
    with pytest.raises(Trouble, match="no folder for records on this host"):
        state.private_folder()


def test_what_is_written_is_read_and_the_last_one_takes_the_folder_along(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    folder.mkdir()
    one, two = folder / "one.json", folder / "two.json"
    state.write(one, {"a": 1})
    state.write(two, {"b": 2}, 0o644)
    assert ({"a": 1}, {"b": 2}) == (state.read(one), state.read(two))
    assert (0o600, 0o644) == tuple(path.stat().st_mode & 0o777 for path in (one, two))
    assert {one, two} == set(folder.iterdir())
    state.remove(one)
    assert folder.exists()
    state.remove(two)
    assert not folder.exists()


def test_what_is_no_record_of_ours_is_nothing(tmp_path: Path) -> None:
    garbled, link = tmp_path / "garbled", tmp_path / "link"
    garbled.write_text("{")
    state.write(tmp_path / "real", {"a": 1})
    link.symlink_to(tmp_path / "real")
    assert [None, None, None] == [state.read(path) for path in (garbled, link, tmp_path / "missing")]


def test_every_user_of_a_host_meets_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "SHARED", (f"{tmp_path}/missing/locks", f"{tmp_path}/locks"))
    folder = state.shared_folder()
    assert (tmp_path / "locks", 0o777) == (folder, folder.stat().st_mode & 0o7777)
    assert folder == state.shared_folder()
    folder.rmdir()
    folder.write_text("a file")
    with pytest.raises(Trouble, match="is no folder that this user can write into"):
        state.shared_folder()
