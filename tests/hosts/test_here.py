"""This machine as a host."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from chaos.engine.hosts import Here, HostLost, HostTrouble
from chaos.outpost import ops
from chaos.outpost.trouble import Trouble


def _refuse() -> None:
    raise Trouble("denied", "not for you")


async def test_an_operation_gives_its_value() -> None:
    assert {"mono_ns", "wall_ns", "tz_s"} == (await Here().call("now")).keys()


async def test_an_operation_that_says_no_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ops.OPS, "refuse", _refuse)
    with pytest.raises(HostTrouble, match="not for you") as caught:
        await Here().call("refuse")
    assert "denied" == caught.value.kind


async def test_an_operation_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()
    monkeypatch.setitem(ops.OPS, "hang", free.wait)
    try:
        with pytest.raises(HostLost, match="did not end"):
            await Here().call("hang", timeout_s=0.05)
    finally:
        free.set()


async def test_a_stream_gives_what_it_sends_and_ends() -> None:
    assert [0, 1, 2] == [n async for n in Here().stream("ticks", count=3, every_s=0.0)]


async def test_a_stream_that_nobody_reads_any_more_is_stopped() -> None:
    stream = Here().stream("ticks", count=2, every_s=3600.0)
    assert 0 == await anext(stream)
    await stream.aclose()  # returns only once the thread has ended


async def test_streams_that_last_leave_operations_their_turn() -> None:
    streams = [Here().stream("ticks", count=2, every_s=3600.0) for _ in range(40)]
    assert [0] * 40 == [await anext(stream) for stream in streams]
    assert await Here().call("now")
    for stream in streams:
        await stream.aclose()


STUCK = """
import asyncio, threading
from chaos.engine.hosts import Here, HostLost
from chaos.outpost import ops
ops.OPS["hang"] = threading.Event().wait
async def main():
    try:
        await Here().call("hang", timeout_s=0.05)
    except HostLost:
        print("given up", flush=True)
asyncio.run(main())
"""


def test_an_operation_that_never_returns_does_not_keep_us_from_ending() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60, check=False)
    assert (0, "given up\n") == (done.returncode, done.stdout)
