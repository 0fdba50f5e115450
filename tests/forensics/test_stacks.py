"""py-spy at real processes: names, stacks, and every reason why there are none."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING

import psutil
import pytest

from chaos.engine.forensics import stacks as stacks_there
from chaos.engine.hosts import Here
from chaos.outpost import stacks
from chaos.outpost.proc import stat
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chaos.engine.forensics.stacks import Thread


@pytest.fixture
def program() -> str:
    found = stacks.py_spy()
    assert found is not None, "py-spy belongs to the development tools"
    return found


async def read(process: object) -> list[Thread]:
    told = await stacks_there.read(Here(), process.located, 60.0)
    assert {} == told.failed
    return told.threads[str(process.pid)]


async def test_names_tell_which_function_a_thread_runs(start: Callable) -> None:
    threads = await read(start())
    assert ["MainThread", "Thread-1 (control_thread)", "east (worker)"] == [thread.label for thread in threads]


async def test_a_thread_that_has_ended_is_not_there_any_more(start: Callable) -> None:
    process = start()
    process.end_control_thread()
    assert ["MainThread", "east (worker)"] == [thread.label for thread in await read(process)]


async def test_stacks_are_told_innermost_call_first(start: Callable) -> None:
    text = stacks_there.text(await read(start()))
    control = text[text.index("Thread-1 (control_thread)") :]
    assert control.index("wait (") < control.index("control_thread (<string>:")


def test_looking_does_not_stop_the_process(start: Callable, program: str) -> None:
    process = start()
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            seen.add(stat(process.pid).state)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        for _ in range(5):
            stacks.stacks_of(program, process.pid)
    finally:
        over.set()
        watching.join()
    assert seen <= {"S", "R", "D"}  # a tool that stops its object has it in "t" for about as long as a look takes


def test_a_stopped_process_can_be_looked_into(start: Callable, program: str) -> None:
    process = start()
    os.kill(process.pid, signal.SIGSTOP)
    assert 3 == len(stacks.stacks_of(program, process.pid))
    assert psutil.STATUS_STOPPED == psutil.Process(process.pid).status()


def test_a_process_without_an_interpreter_has_nothing_to_miss(program: str) -> None:
    sleeping = subprocess.Popen(["sleep", "60"])
    try:
        with pytest.raises(Trouble, match="not a Python process") as caught:
            stacks.stacks_of(program, sleeping.pid)
        assert "not-python" == caught.value.kind
    finally:
        sleeping.kill()
        sleeping.wait()


def test_a_process_that_is_gone_is_told(start: Callable, program: str) -> None:
    process = start()
    process.popen.kill()
    process.popen.wait()
    with pytest.raises(Trouble, match="py-spy failed"):
        stacks.stacks_of(program, process.pid)


def tool(tmp_path: Path, script: str) -> str:
    path = tmp_path / "py-spy"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'Permission Denied: Try running again with elevated permissions' >&2; exit 1", "not permitted"),
        ("echo 'Error: Operation not permitted (os error 1)' >&2; exit 1", "not permitted"),
        ("echo 'Error: Failed to get stack trace' >&2; exit 1", "py-spy failed: Error: Failed to get stack trace"),
        ("exit 1", "it said nothing"),
        ("echo '{\"no\": 1}'", "something else than expected"),
        ("exec sleep 30", "did not answer"),
    ],
)
def test_every_failure_of_the_tool_is_a_reason(
    tmp_path: Path, script: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "STACKS_S", 0.5)
    with pytest.raises(Trouble, match=why):
        stacks.stacks_of(tool(tmp_path, script), os.getpid())


def test_a_stack_that_changed_under_its_eyes_is_read_again(tmp_path: Path) -> None:
    counter = tmp_path / "count"
    script = f'echo x >> {counter}; [ "$(wc -l < {counter})" -ge 3 ] && echo "[]" || exit 1'
    assert [] == stacks.stacks_of(tool(tmp_path, script), os.getpid())


def test_a_tool_that_cannot_be_run_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(Trouble, match="cannot be run"):
        stacks.stacks_of(str(tmp_path / "none"), os.getpid())


async def test_without_the_tool_there_is_none(start: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    process = start()
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert stacks.py_spy() is None
    with pytest.raises(stacks_there.NoStacks, match="py-spy is not installed"):
        await read(process)


async def test_what_is_not_read_in_time_is_named_and_what_is_gone_is_told(start: Callable) -> None:
    process = start()
    told = stacks.stacks(process.pid, process.located.start_ticks, 0.0)
    assert (1, {}, {str(process.pid): "its time was up"}) == (told["alive"], told["threads"], told["failed"])
    gone = process.located
    process.popen.kill()
    process.popen.wait()
    with pytest.raises(stacks_there.NoStacks, match="its process is gone"):
        await stacks_there.read(Here(), gone, 60.0)
