"""Processes behind a real sshd: frozen, restarted, watched, looked into; and let go of when the connection breaks."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sshd import Sshd, connected, needs_sshd, soon

from chaos.engine.faults.kit import FaultKit
from chaos.engine.faults.registry import prepare
from chaos.engine.faults.restarts import CommandRestarter
from chaos.engine.forensics import processes as insides
from chaos.engine.forensics import stacks
from chaos.engine.hosts import Here, Hosts, remote
from chaos.engine.ports import SystemClock
from chaos.engine.probes.locate import locate
from chaos.engine.probes.process import ProcessProbe, ProcessSource
from chaos.model import events as ev
from chaos.model.scenario import Step
from chaos.outpost import state

if TYPE_CHECKING:
    from chaos.engine.hosts import Host

sys.path.append(str(Path(__file__).parent.parent / "engine"))

from processes import node, state_of

pytestmark = needs_sshd


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PING_S", 0.1)
    monkeypatch.setattr(remote, "BACKOFF_S", (0.1, 0.2))


class NoFleet:
    def census(self, group: str | None = None) -> dict[str, int]:
        return {}


class NoProbes:
    def readings(self) -> list[ev.QueueReading]:
        return []


def kit(host: Host, one: object, events: list[ev.AnyEvent], **more: object) -> FaultKit:
    return FaultKit(
        fleet=NoFleet(),
        probes=NoProbes(),
        emit=events.append,
        clock=SystemClock(),
        run_id="a1b2c3d4",
        servers=(one.server(),),
        hosts=Hosts({"decode-0": host}, Here()),
        **more,
    )


def step(**action: object) -> Step:
    return Step.model_validate({"id": "fault", "at": 0.0, **action}, strict=True)


FREEZE = step(signal={"where": {"role": "decode"}, "send": "STOP"})


def stages(events: list[ev.AnyEvent]) -> list[tuple[str, bool]]:
    return [(event.stage, event.ok) for event in events if isinstance(event, ev.FaultStep)]


def frozen(one: object) -> bool:
    return (state_of(one.pid), state_of(one.child)) == ("T", "T")


def records() -> list[Path]:
    return [path for folder in state.private_folders() for path in folder.glob("a1b2c3d4-*")]


async def test_a_freeze_over_ssh_is_measured_and_undone_and_leaves_no_record(tmp_path: Path, sshd: Sshd) -> None:
    events: list[ev.AnyEvent] = []
    with node(tmp_path) as one, connected(sshd.ssh()) as host:
        async with prepare(FREEZE, kit(host, one, events)):
            assert frozen(one)
            assert 1 == len(records())
        assert "T" not in (state_of(one.pid), state_of(one.child))
    assert [(stage, True) for stage in ("applied", "verified", "reverted", "revert-verified")] == stages(events)
    assert [] == records()


async def test_a_connection_that_breaks_ends_a_freeze_at_once_and_that_is_seen(tmp_path: Path, sshd: Sshd) -> None:
    events: list[ev.AnyEvent] = []
    with node(tmp_path) as one, connected(sshd.ssh()) as host:
        async with prepare(FREEZE, kit(host, one, events)):
            sshd.signal(signal.SIGKILL)  # to what serves connections, and to nothing that runs in them
            assert await soon(lambda: "T" not in (state_of(one.pid), state_of(one.child)))
            assert await soon(lambda: records() == [])
            sshd.kill()
            sshd.start()
            assert await soon(lambda: host.up)
    assert [
        ("applied", True),
        ("verified", True),
        ("verified", False),
        ("reverted", True),
        ("revert-verified", True),
    ] == stages(events)


HARNESS = """
import asyncio, sys
sys.path[:0] = sys.argv[3:]
from sshd import Sshd, connected
from test_faults_there import FREEZE, kit
from chaos.engine.faults.registry import prepare
from chaos.model.target import Server, ServerSpec, Ssh
class One:
    def server(self):
        return Server("decode-0", "decode", ServerSpec(url="http://127.0.0.1:1", pidfile=sys.argv[1]))
async def main():
    with connected(Ssh.model_validate_json(sys.argv[2])) as host:
        async with prepare(FREEZE, kit(host, One(), [])):
            print("frozen", flush=True)
            await asyncio.sleep(600)
asyncio.run(main())
"""


def test_nothing_stays_stopped_on_a_host_when_pdchaos_is_killed(tmp_path: Path, sshd: Sshd) -> None:
    folders = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "engine")]
    with node(tmp_path) as one:
        words = [sys.executable, "-c", HARNESS, str(one.pidfile), sshd.ssh().model_dump_json(), *folders]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as harness:
            assert b"frozen\n" == harness.stdout.readline()
            assert frozen(one)
            harness.kill()
        assert asyncio.run(soon(lambda: "T" not in (state_of(one.pid), state_of(one.child))))
        assert asyncio.run(soon(lambda: records() == []))


async def test_a_restart_command_runs_on_the_host_and_carries_no_mark_of_ours(tmp_path: Path, sshd: Sshd) -> None:
    events: list[ev.AnyEvent] = []
    seen = tmp_path / "environment"
    with node(tmp_path) as one, connected(sshd.ssh()) as host:
        command = f"env > {seen}; {one.command()}"
        restarter = CommandRestarter({("decode-0", None): command})
        again = step(restart={"where": {"role": "decode"}, "timeout": 20.0})
        async with prepare(again, kit(host, one, events, restarter=restarter)):
            pass
    assert [("applied", True), ("verified", True)] == stages(events)
    assert "SSH_CONNECTION=" in seen.read_text()
    assert "PDCHAOS_" not in seen.read_text()


async def test_processes_are_watched_over_ssh_and_a_gap_is_told_as_one(tmp_path: Path, sshd: Sshd) -> None:
    events: list[ev.AnyEvent] = []
    with node(tmp_path) as one, connected(sshd.ssh()) as host:
        spec = one.server().spec
        source = ProcessSource(node="decode-0", spec=spec, host=host, found=await locate(host, spec))
        probe = ProcessProbe([source], emit=events.append, clock=SystemClock())
        await probe.look()
        sshd.kill()
        assert await soon(lambda: not host.up)
        await probe.look()
        sshd.start()
        assert await soon(lambda: host.up)
        os.kill(one.child, signal.SIGKILL)
        assert await soon(lambda: state_of(one.child) in ("", "Z"))
        await probe.look()
    before, lost, closed, after = events
    assert (True, [True]) == (before.alive, [child.alive for child in before.children])
    assert ("process", "decode-0", lost.to_ns) == (lost.probe, lost.node, closed.from_ns)
    assert (True, [False]) == (after.alive, [child.alive for child in after.children])
    assert before.start_time == after.start_time


async def test_the_inside_of_a_process_is_read_over_ssh(tmp_path: Path, sshd: Sshd) -> None:
    with node(tmp_path) as one, connected(sshd.ssh()) as host:
        root = await locate(host, one.server().spec)
        read = await stacks.read(host, root, 30.0)
        assert any(thread.label.startswith("MainThread") for thread in read.threads[str(one.pid)])
        told = await insides.inspect(host, root)
        assert {one.pid, one.child} == {process["pid"] for process in told}
