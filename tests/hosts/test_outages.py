"""What breaks a connection, and what is known of it afterwards. Real sshd, really restarted, killed and stopped."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import psutil
import pytest
from sshd import Sshd, connected, needs_sshd, soon

from chaos.engine.hosts import HostLost, remote
from chaos.engine.hosts.hosts import Hosts
from chaos.engine.hosts.record import recorded
from chaos.model import events as ev

if TYPE_CHECKING:
    from chaos.engine.hosts.clock import HostClock

pytestmark = needs_sshd


@dataclass
class Told:
    outages: list[tuple[int, int, str]] = field(default_factory=list)
    jumps: list[str] = field(default_factory=list)
    clocks: list[HostClock] = field(default_factory=list)

    def outage(self, from_ns: int, to_ns: int, cause: str) -> None:
        self.outages.append((from_ns, to_ns, cause))

    def jump(self, from_ns: int, to_ns: int, cause: str) -> None:
        self.jumps.append(cause)

    def clock(self, clock: HostClock) -> None:
        self.clocks.append(clock)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PING_S", 0.1)
    monkeypatch.setattr(remote, "BACKOFF_S", (0.1, 0.2))


async def test_an_sshd_that_is_restarted_costs_nothing(sshd: Sshd) -> None:
    with connected(sshd.ssh()) as host:
        host.watcher = told = Told()
        stream = host.stream("ticks", count=2, every_s=1.0)
        assert 0 == await anext(stream)
        sshd.end_listener()
        sshd.start()
        assert 1 == await anext(stream)
        assert await host.call("now")
        assert [] == told.outages


async def test_a_connection_that_breaks_is_told_and_made_again(sshd: Sshd, nothing_left: None) -> None:
    with connected(sshd.ssh()) as host:
        host.watcher = told = Told()
        former = psutil.Process(host.hello["pid"])
        stream = host.stream("ticks", count=2, every_s=3600.0)
        assert 0 == await anext(stream)
        began_ns = time.monotonic_ns()
        sshd.kill()
        with pytest.raises(HostLost, match="its host is lost"):
            await anext(stream)
        assert await soon(lambda: bool(told.outages))
        with pytest.raises(HostLost, match="its host is lost"):
            await host.call("now")
        with pytest.raises(HostLost, match="its host is lost"):
            host.call_now("now")
        sshd.start()
        assert await soon(lambda: host.up)
        assert await host.call("now", timeout_s=60.0)
        assert former.pid != host.hello["pid"]
        assert await soon(lambda: not former.is_running())
        assert await soon(lambda: bool(told.clocks))
        assert told.outages[-1][1] > began_ns
        for before, after in pairwise(told.outages):
            assert before[1] == after[0]  # told without a gap
        assert not any("127.0.0.1" in cause for _, _, cause in told.outages)


async def test_a_host_that_hangs_is_noticed_by_its_silence(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    with connected(sshd.ssh()) as host:
        host.watcher = told = Told()
        await host.call("filler", size=3, timeout_s=60.0)
        sshd.signal(signal.SIGSTOP)
        asked = asyncio.ensure_future(host.call("filler", size=3, timeout_s=60.0))
        with monkeypatch.context() as hasty:
            hasty.setattr(remote, "SILENT_S", 0.5)
            hasty.setattr(remote, "PING_PATIENCE_S", 0.2)
            host._wake.set()
            with pytest.raises(HostLost, match=r"nothing came from it for 0.5 s"):
                await asked
        sshd.signal(signal.SIGCONT)
        assert await soon(lambda: host.up)
        assert await host.call("now", timeout_s=60.0)
        assert told.outages


async def test_a_host_that_hangs_does_not_keep_us(sshd: Sshd) -> None:
    with connected(sshd.ssh()) as host:
        sshd.signal(signal.SIGSTOP)
        began = time.monotonic()
        await asyncio.to_thread(host.close)
        assert time.monotonic() - began < remote.SILENT_S
        sshd.signal(signal.SIGCONT)


async def test_a_host_that_went_for_good_does_not_keep_us(sshd: Sshd, nothing_left: None) -> None:
    with connected(sshd.ssh()) as host:
        sshd.kill()
        assert await soon(lambda: not host.up)
        began = time.monotonic()
        await asyncio.to_thread(host.close)
        assert time.monotonic() - began < remote.SILENT_S


async def test_an_outpost_that_is_killed_is_started_again(sshd: Sshd) -> None:
    with connected(sshd.ssh()) as host:
        host.watcher = told = Told()
        psutil.Process(host.hello["pid"]).kill()
        assert await soon(lambda: bool(told.clocks))
        assert await host.call("now")
        assert {"the host ended our process"} == {cause for _, _, cause in told.outages}


async def test_a_clock_that_jumps_is_told(sshd: Sshd) -> None:
    with connected(sshd.ssh()) as host:
        host.watcher = told = Told()
        host._clock = replace(host.clock, offset_ns=host.clock.offset_ns + 40_000_000_000)
        assert await soon(lambda: bool(told.jumps))
        assert told.jumps[0].startswith("its clock went +40.0 s against ours")
        assert abs(host.offset_ns) < 1_000_000_000  # this very machine's own


async def test_a_run_records_clocks_and_outages_by_server_and_never_by_host(sshd: Sshd) -> None:
    events: list[ev.AnyEvent] = []
    with connected(sshd.ssh()) as host:
        hosts = Hosts({"prefill-0": host, "decode-0": host}, host)
        async with recorded(hosts, events.append):
            await asyncio.sleep(0)
            clocks = [event for event in events if isinstance(event, ev.ClockMeasured)]
            assert ["prefill-0, decode-0", "prefill-0, decode-0 (wall clock)"] == [clock.of for clock in clocks]
            assert abs(clocks[0].offset_ns) <= clocks[0].uncertainty_ns  # the very same clock
            sshd.kill()
            assert await soon(lambda: any(isinstance(event, ev.EvidenceLost) for event in events))
    lost = [event for event in events if isinstance(event, ev.EvidenceLost)]
    assert {("ssh", "prefill-0"), ("ssh", "decode-0")} == {(one.probe, one.node) for one in lost}
    for node in ("prefill-0", "decode-0"):
        told = [one for one in lost if one.node == node]
        assert len(told) > 1  # also at the end, for it is lost still
        assert all(before.to_ns == after.from_ns for before, after in pairwise(told))
    assert not any("127.0.0.1" in str(event) for event in events)


async def test_threads_are_few(sshd: Sshd) -> None:
    before = threading.active_count()
    with connected(sshd.ssh()) as host:
        await asyncio.gather(*(host.call("filler", size=1) for _ in range(50)))
        assert threading.active_count() - before == 4  # paramiko's, reader, writer, keeper
