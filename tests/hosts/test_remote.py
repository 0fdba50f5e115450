"""A host behind a real sshd: operations, streams, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from sshd import Sshd, before_all, connected, needs_sshd, soon

from chaos.engine.hosts import HostLost, HostTrouble

if TYPE_CHECKING:
    from chaos.engine.hosts.remote import Remote

pytestmark = needs_sshd


async def test_an_operation_is_carried_out_on_the_host(sshd: Sshd, nothing_left: None) -> None:
    with connected(sshd.ssh()) as host:
        assert {"mono_ns", "wall_ns", "tz_s"} == (await host.call("now")).keys()
        assert 40 == len(host.call_now("filler", size=40))


async def test_a_hosts_no_is_told_from_its_silence(sshd: Sshd) -> None:
    with connected(sshd.ssh()) as host:
        with pytest.raises(HostTrouble, match="nothing that this version does") as caught:
            await host.call("conquer")
        assert "unknown" == caught.value.kind
        with pytest.raises(HostTrouble, match="unexpected keyword argument") as caught:
            host.call_now("filler", weight=3)
        assert "defect" == caught.value.kind


async def test_many_operations_run_at_once_and_each_gets_its_own_answer(sshd: Sshd) -> None:
    with connected(sshd.ssh()) as host:
        got = await asyncio.gather(*(host.call("filler", size=n, timeout_s=60.0) for n in range(200)))
        assert list(range(200)) == [len(text) for text in got]


async def test_a_long_answer_comes_whole_and_holds_up_no_other(sshd: Sshd) -> None:
    size = 30_000_000
    with connected(sshd.ssh()) as host:
        long = asyncio.ensure_future(host.call("filler", size=size, timeout_s=120.0))
        answered = 0
        while not long.done():
            await host.call("now", timeout_s=60.0)
            answered += 1
        assert size == len(await long)
        assert answered > 3


async def test_streams_flow_beside_each_other_and_end(sshd: Sshd) -> None:
    async def read(host: Remote, count: int) -> list[int]:
        return [n async for n in host.stream("ticks", count=count, every_s=0.0)]

    with connected(sshd.ssh()) as host:
        got = await asyncio.gather(*(read(host, count) for count in range(20)))
        assert [list(range(count)) for count in range(20)] == got
        with pytest.raises(HostTrouble, match="nothing that this version does"):
            await anext(host.stream("brook"))


async def test_a_stream_that_nobody_reads_any_more_ends_on_the_host(sshd: Sshd) -> None:
    with connected(sshd.ssh()) as host:
        outpost = psutil.Process(host.hello["pid"])
        before = outpost.num_threads()
        streams = [host.stream("ticks", count=2, every_s=3600.0) for _ in range(5)]
        assert [0] * 5 == [await anext(stream) for stream in streams]
        assert before + 5 == outpost.num_threads()
        for stream in streams:
            await stream.aclose()
        assert await soon(lambda: outpost.num_threads() == before)


async def test_an_answer_that_comes_too_late_is_not_waited_for(sshd: Sshd) -> None:
    with connected(sshd.ssh()) as host:
        sshd.signal(19)
        try:
            with pytest.raises(HostLost, match="did not answer within"):
                await host.call("now", timeout_s=0.2)
            with pytest.raises(HostLost, match="did not answer within"):
                host.call_now("now", timeout_s=0.2)
        finally:
            sshd.signal(18)
        assert await host.call("now", timeout_s=60.0)


async def test_nothing_of_ours_is_left_on_a_host_nor_was_written_to_it(sshd: Sshd) -> None:
    with connected(sshd.ssh()) as host:
        outpost = psutil.Process(host.hello["pid"])
        assert "a1b2c3d4" == outpost.environ()["PDCHAOS_RUN"]
        assert outpost.pid == os.getsid(outpost.pid)
        archive = next(word for word in outpost.cmdline() if word.startswith("/proc/self/fd/"))
        code = str(Path(archive.replace("self", str(outpost.pid))).readlink())  # noqa: ASYNC240 - of /proc
        assert code.startswith("/memfd:")
    assert await soon(lambda: not outpost.is_running())


async def test_an_outpost_whose_harness_was_killed_ends(sshd: Sshd) -> None:
    with connected(sshd.ssh()) as host:
        outpost = psutil.Process(host.hello["pid"])
        stream = host.stream("ticks", count=2, every_s=3600.0)
        await anext(stream)
        host._transport.sock.shutdown(socket.SHUT_RDWR)  # as when the kernel closes it for a killed process
        with pytest.raises(HostLost):
            await anext(stream)
        assert await soon(lambda: not outpost.is_running())


async def test_what_a_shell_prints_at_its_start_is_skipped(tmp_path: Path) -> None:
    noise = "echo welcome; printf 'no end of line'; echo and on stderr >&2"
    with Sshd(tmp_path / "sshd", **before_all(noise)) as sshd, connected(sshd.ssh()) as host:
        assert await host.call("now")
