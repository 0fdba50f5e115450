"""One Ctrl-C stops gently, two leave, three leave without a last look; in a campaign the first is the campaign's."""

from __future__ import annotations

import asyncio
import os
import signal

from chaos.engine.safety import Interrupt


async def test_the_first_signal_is_gentle_and_the_second_leaves() -> None:
    said: list[str] = []
    interrupt = Interrupt(said.append)
    with interrupt.installed():
        os.kill(os.getpid(), signal.SIGINT)
        async with asyncio.timeout(5):
            await interrupt.gentle.wait()
        assert not interrupt.now.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(5):
            await interrupt.now.wait()
        assert not interrupt.blindly.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        async with asyncio.timeout(5):
            await interrupt.blindly.wait()
    assert ("SIGINT", 3) == (interrupt.reason, len(said))


async def test_whoever_hears_first_may_keep_a_signal_to_itself() -> None:
    heard: list[str] = []

    def once(reason: str) -> bool:
        heard.append(reason)
        return len(heard) == 1

    said: list[str] = []
    interrupt = Interrupt(said.append, once)
    interrupt.request("SIGINT")
    assert (["SIGINT"], False, []) == (heard, interrupt.gentle.is_set(), said)
    interrupt.request("SIGINT")
    assert (True, False, "SIGINT") == (interrupt.gentle.is_set(), interrupt.now.is_set(), interrupt.reason)
    interrupt.request("SIGINT")
    assert interrupt.now.is_set()


def test_whoever_stopped_the_run_is_told_how_long_it_waits_at_most() -> None:
    said: list[str] = []
    Interrupt(said.append).waits(64.6)
    assert ["waiting for open requests, up to 65 s more."] == said
