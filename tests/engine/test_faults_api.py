"""Faults as context managers: what they promise on entering and leaving, and that a fault that failed is no fault."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from servers import HeldServer
from test_load_and_waves import until

from chaos import faults
from chaos.model.errors import Refused
from chaos.model.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def target(url: str = "http://127.0.0.1:1", pid: int | None = None, **more: object) -> Target:
    return Target.model_validate(
        {
            "version": 1,
            "name": "here",
            "model": "m",
            "router": {"url": url},
            "prefill": [{"url": url}],
            "decode": [{"url": url, "pid": pid}],
            "allow": ["kill", "signal", "restart", "request"],
            **more,
        }
    )


def state(process: subprocess.Popen[bytes]) -> str:
    return psutil.Process(process.pid).status()


async def test_a_process_is_stopped_inside_and_runs_again_outside(sleeper: subprocess.Popen[bytes]) -> None:
    async with faults.signal(target(pid=sleeper.pid), "STOP", role="decode") as frozen:
        assert psutil.STATUS_STOPPED == state(sleeper)
        assert "1 of 1 processes stopped" in frozen.measured["decode-0"]
    assert psutil.STATUS_STOPPED != state(sleeper)
    assert ["applied", "verified", "reverted", "revert-verified"] == [step.stage for step in frozen.steps]


async def test_an_error_inside_comes_out_as_it_is_and_the_fault_is_undone(sleeper: subprocess.Popen[bytes]) -> None:
    with pytest.raises(ZeroDivisionError):
        async with faults.signal(target(pid=sleeper.pid), "STOP", role="decode"):
            _ = 1 / 0
    assert psutil.STATUS_STOPPED != state(sleeper)


async def test_a_fault_that_cannot_be_applied_raises(sleeper: subprocess.Popen[bytes]) -> None:
    with pytest.raises(faults.NotLanded, match="no child that is called 'scheduler'"):
        async with faults.signal(target(pid=sleeper.pid), "STOP", role="decode", child="scheduler"):
            pytest.fail("there is no such child")


async def test_what_the_target_does_not_allow_is_refused(sleeper: subprocess.Popen[bytes]) -> None:
    with pytest.raises(Refused, match="does not allow: signal"):
        async with faults.signal(target(pid=sleeper.pid, allow=["kill"]), "KILL", role="decode"):
            pytest.fail("it was not allowed")
    assert sleeper.poll() is None


@pytest.mark.parametrize("how", ["rst", "stall"])
async def test_clients_are_broken_inside_of_their_own_context(how: str) -> None:
    server = HeldServer(trickle=True)
    async with server.running():
        server.gate.set()
        async with faults.clients(target(server.url), sessions=4, max_tokens=500, timeout=60.0) as agents:
            await until(lambda: (agents.fleet.census() or {}).get("streaming") == 4, "all stream")
            async with faults.kill(agents, how) as broken:
                assert "4" == (broken.measured.get("held") or broken.measured["connections"])
                if how == "rst":
                    await until(lambda: server.hung_up == 4, "the server saw them leave")
                else:
                    assert 0 == server.hung_up
        await until(lambda: server.hung_up == 4, "nobody is left")


async def test_poison_tells_what_came_back() -> None:
    server = HeldServer()
    async with server.running():
        server.gate.set()
        server.finish.set()
        async with faults.poison(target(server.url), "n2", count=3) as asked:
            assert {"answered": "3", "hanging": "0"} == asked.measured
