"""Secrets by reference: found, refused with what to do, never shown, and never waited for too long."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from chaos.engine import secrets
from chaos.engine.secrets import concealed, header_values, known_secrets, look_up, look_up_all, request_headers
from chaos.model.errors import UsageError
from chaos.model.scenario import Scenario
from chaos.model.target import Target

URLS = {"router": {"url": "http://h:1"}, "prefill": [{"url": "http://h:2"}], "decode": [{"url": "http://h:3"}]}


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", set())
    secrets._output_of.cache_clear()


def target(**more) -> Target:
    return Target.model_validate({"version": 1, "name": "t", **URLS, **more})


def test_each_kind_of_reference_leads_to_its_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "from-env")
    (tmp_path / "key").write_text("from-file\n")
    assert "from-env" == look_up("env:A_KEY")
    assert "from-file" == look_up(f"file:{tmp_path / 'key'}")
    assert "from-cmd" == look_up("cmd:printf 'from-cmd\\n'; echo chatter >&2")
    assert look_up(None) is None
    assert {"from-env", "from-file", "from-cmd"} == known_secrets()
    assert "a [redacted] b [redacted]" == concealed("a from-file b from-cmd")


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("env:NOT_SET_ANYWHERE", "api_key: the environment variable NOT_SET_ANYWHERE is not set"),
        ("file:/nowhere/key", "api_key: /nowhere/key cannot be read: No such file or directory"),
        ("file:/dev/null", "api_key: /dev/null is empty"),
        ("cmd:true", "api_key: what the command for it prints is empty"),
        ("cmd:echo s3cret; exit 3", "api_key: the command for it ended with 3"),
        ("cmd:printf 's3cret\\nmore'", "api_key: what the command for it prints does not give one line of ASCII text"),
        ("cmd:printf 's3cr\\303\\251t'", "api_key: what the command for it prints does not give one line"),
        ("cmd:cat", "api_key: what the command for it prints is empty"),  # stdin is empty, no terminal to ask
    ],
)
def test_what_cannot_be_had_is_told_without_what_was_said(reference: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        look_up(reference)
    assert caught.value.message.startswith(says)
    assert "s3cr" not in caught.value.message + caught.value.hint


def test_a_command_that_does_not_end_is_given_up_with_all_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "COMMAND_S", 0.5)
    pids = tmp_path / "pids"
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"did not end within 0.5 s"):
        look_up(f"cmd:sleep 300 & echo $! > {pids}; wait")
    assert time.monotonic() - began < 30
    child = Path(f"/proc/{pids.read_text().strip()}/stat")
    assert not child.exists() or " Z " in child.read_text()


def test_a_command_runs_once(tmp_path: Path) -> None:
    counted = tmp_path / "count"
    reference = f"cmd:echo x >> {counted}; echo secret-value"
    assert [look_up(reference), look_up(reference)] == ["secret-value"] * 2
    assert "x\n" == counted.read_text()


def test_headers_are_text_or_secrets_and_every_request_carries_the_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "from-env")
    one = target(api_key="env:A_KEY", headers={"x-team": "chaos", "x-gate": {"secret": "cmd:echo gate-key"}})
    wanted = {"x-team": "chaos", "x-gate": "gate-key"}
    assert wanted == header_values(one.headers)
    assert {**wanted, "authorization": "Bearer from-env"} == request_headers(one)


def test_a_missing_secret_of_a_load_is_known_before_anything_is_touched() -> None:
    scenario = Scenario.model_validate(
        {"version": 1, "name": "s", "load": [{"name": "agents", "headers": {"x-key": {"secret": "env:NOT_SET"}}}]}
    )
    with pytest.raises(UsageError, match=r"load agents: headers.x-key: the environment variable NOT_SET is not set"):
        look_up_all(target(), scenario, print)


def test_a_ctrl_c_while_a_command_asks_ends_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(self: subprocess.Popen, timeout: float | None = None) -> tuple[bytes, bytes]:
        if timeout is not None:
            raise KeyboardInterrupt
        return communicate(self)

    communicate = subprocess.Popen.communicate
    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        look_up(f"cmd:echo $$ > {tmp_path / 'pid'}; sleep 300")
    assert not (tmp_path / "pid").exists() or not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
