"""A run beside the main thread hears what the main thread hears, and never outlives whoever waits for it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest

from chaos.engine.safety import Interrupt
from chaos.launch.aside import run_aside

PATIENCE_S = 30.0


class Work:
    """Stands for a run: it listens, and ends when it is told to."""

    def __init__(self, interrupt: Interrupt) -> None:
        self.interrupt = interrupt
        self.ended_by = ""

    async def until(self, wish: asyncio.Event) -> str:
        with self.interrupt.installed():
            os.kill(os.getpid(), signal.SIGINT)
            async with asyncio.timeout(PATIENCE_S):
                await wish.wait()
            self.ended_by = self.interrupt.reason
            return self.ended_by


def test_a_signal_reaches_the_run_and_not_whoever_waits_and_is_theirs_again_afterwards() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    said: list[str] = []
    interrupt = Interrupt(said.append)
    assert "SIGINT" == run_aside(Work(interrupt).until(interrupt.gentle), interrupt)
    assert (1, False) == (len(said), interrupt.now.is_set())
    assert before == {number: signal.getsignal(number) for number in before}


async def test_it_runs_where_a_loop_runs_already_and_leaves_that_alone() -> None:
    ours = asyncio.get_running_loop()

    async def where() -> tuple[bool, bool]:
        return asyncio.get_running_loop() is ours, threading.current_thread() is threading.main_thread()

    assert (False, False) == run_aside(where(), Interrupt(lambda _: None))
    assert ours is asyncio.get_running_loop()
    await asyncio.sleep(0)


def test_its_own_error_is_raised_as_it_is() -> None:
    async def fails() -> None:
        raise LookupError("as it is")

    with pytest.raises(LookupError, match="as it is"):
        run_aside(fails(), Interrupt(lambda _: None))


def test_what_ends_the_waiting_makes_the_run_leave_at_once_first() -> None:
    class TimeIsUpError(BaseException):
        pass

    def time_is_up(_number: int, _frame: object) -> None:
        raise TimeIsUpError

    before = signal.signal(signal.SIGALRM, time_is_up)
    interrupt = Interrupt(lambda _: None)
    work = Work(interrupt)

    async def alarmed() -> None:
        with interrupt.installed():
            os.kill(os.getpid(), signal.SIGALRM)
            async with asyncio.timeout(PATIENCE_S):
                await interrupt.now.wait()
            work.ended_by = interrupt.reason

    try:
        with pytest.raises(TimeIsUpError):
            run_aside(alarmed(), interrupt)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert ("TimeIsUpError", False) == (work.ended_by, interrupt.blindly.is_set())


def test_what_comes_before_anybody_waits_keeps_the_run_from_beginning(monkeypatch) -> None:
    class TimeIsUpError(BaseException):
        pass

    class Struck(ThreadPoolExecutor):
        def submit(self, *args: object, **more: object) -> NoReturn:
            super().submit(*args, **more)  # type: ignore[arg-type]
            raise TimeIsUpError

    begun = []

    async def run() -> None:
        begun.append(True)

    monkeypatch.setattr("chaos.launch.aside.ThreadPoolExecutor", Struck)
    with pytest.raises(TimeIsUpError):
        run_aside(run(), Interrupt(lambda _: None))
    assert [] == begun
