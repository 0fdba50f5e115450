"""`pdchaos init` writes files that check accepts, filled in with what is known, and tells what to do next."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import yaml

from chaos import library
from chaos.model import actions
from chaos.model.faults import FaultKind

ROOT = Path(__file__).parents[2]


def pdchaos(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "chaos", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=env, timeout=200)


def written(tmp_path: Path, *words: str) -> dict:
    said = pdchaos("init", *words, "--dir", "here", cwd=tmp_path)
    assert 0 == said.returncode, said.stderr
    for step in ("edit", "pdchaos check", "pdchaos doctor", "pdchaos run"):
        assert f"next: {step}" in said.stdout
    assert 80 >= max(map(len, said.stdout.splitlines())), "so that a narrow terminal shows each command as it is typed"
    files = sorted(str(path) for path in (tmp_path / "here").iterdir())
    assert 0 == pdchaos("check", *files, cwd=tmp_path).returncode
    return yaml.safe_load((tmp_path / "here" / "target.yaml").read_text())


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("templates/target.yaml", r"# What may be done: ([^.]+)"),
        ("templates/target-ssh.yaml", r"# What may be done: ([^.]+)"),
        ("docs/target.md", r"\| `allow` \| what may be done; must be said\. ([^.]+)"),
    ],
)
def test_whoever_reads_what_may_be_allowed_reads_what_some_fault_asks_for(file: str, told: str) -> None:
    (said,) = re.findall(told, (ROOT / file).read_text())
    asked = {action.permission for action in get_args(actions.Action)} - {None}
    assert asked == set(get_args(FaultKind)) == set(re.findall(r"`(\w+)`", said))


def hosts(plain: dict) -> list[tuple[str, str]]:
    servers = [plain["router"], *plain["prefill"], *plain["decode"]]
    return [(server["ssh"]["host"], server["url"]) for server in servers]


def test_hosts_take_their_places_router_first_then_a_prefill_then_decode(tmp_path: Path) -> None:
    plain = written(tmp_path, "--ssh", "me@gpu1", "me@gpu2", "me@gpu3:2222", "me@gpu4")
    assert "me" == plain["ssh"]["user"]
    assert [
        ("gpu1", "http://gpu1:30000"),
        ("gpu2", "http://gpu2:30000"),
        ("gpu3", "http://gpu3:30000"),
        ("gpu4", "http://gpu4:30000"),
    ] == hosts(plain)
    assert (2222, "http://gpu1:29000/metrics") == (plain["decode"][0]["ssh"]["port"], plain["router"]["metrics"])


def test_a_host_that_is_alone_has_everything_and_without_one_there_are_places_to_fill(tmp_path: Path) -> None:
    text = library.read(library.folder("templates") / "target-ssh.yaml").decode()
    assert 3 == len(hosts(yaml.safe_load(text)))
    plain = written(tmp_path, "--ssh")
    assert yaml.safe_load(text) == plain
    (tmp_path / "here" / "target.yaml").unlink()
    (tmp_path / "here" / "abort-cascade.yaml").unlink()
    said = pdchaos("init", "--ssh", "10.0.0.1", "--dir", "here", cwd=tmp_path)
    assert 0 == said.returncode, said.stderr
    plain = yaml.safe_load((tmp_path / "here" / "target.yaml").read_text())
    assert {"10.0.0.1"} == {host for host, _ in hosts(plain)}
    # Three servers cannot listen on one port of one host: which port each has is for the user to say.
    said = pdchaos("check", "here/target.yaml", cwd=tmp_path)
    assert (2, True) == (said.returncode, "has the same address as" in said.stderr)


def test_keys_are_filled_in(tmp_path: Path) -> None:
    for name in ("a key", "k: 1"):
        (tmp_path / name).touch()
    plain = written(tmp_path, "--ssh", "me@gpu1", "me@gpu2", "me@gpu3", "--identity", "a key", "--known-hosts", "k: 1")
    # As the file is in another folder, from which it is read.
    assert {"user": "me", "identity": f"{tmp_path}/a key", "known_hosts": f"{tmp_path}/k: 1"} == plain["ssh"]
    assert 0 == pdchaos("init", "--ssh", "gpu1", "--identity", "a key", cwd=tmp_path).returncode
    assert "a key" == yaml.safe_load((tmp_path / "target.yaml").read_text())["ssh"]["identity"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--ssh", "me@gpu1", "you@gpu2"), "different users: me, you"),
        (("--ssh", "gpu 1"), "'gpu 1' is no host to log in to"),
        (("--ssh", "gpu1", "--identity", "none"), "--identity none: there is no such file"),
        (("--ssh", "gpu1", "--known-hosts", "none"), "--known-hosts none: there is no such file"),
        (("me@gpu1",), "are for --ssh"),
        (("here", "there"), "are for --ssh"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_written(
    words: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    said = pdchaos("init", *words, cwd=tmp_path)
    assert (2, True, []) == (said.returncode, says in said.stderr, list(tmp_path.iterdir())), said.stderr
