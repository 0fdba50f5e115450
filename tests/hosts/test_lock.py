"""A run takes the locks of a whole deployment or none, and hears when somebody takes them from it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from sshd import Sshd, connected, needs_sshd, soon

from chaos.engine.hosts import Here, Hosts, HostTrouble, lock
from chaos.engine.hosts.lock import TargetLock, lock_keys
from chaos.model.errors import Refused
from chaos.model.target import Target
from chaos.outpost import state

if TYPE_CHECKING:
    from pathlib import Path

TARGET = Target.model_validate(
    {
        "version": 1,
        "name": "shared",
        "router": {"url": "http://h:1"},
        "prefill": [{"url": "http://h:2"}],
        "decode": [{"url": "http://h:3"}],
    }
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(state, "SHARED", (f"{tmp_path}/locks",))
    return tmp_path / "locks"


class Deaf(Here):
    """A host on which nothing can be written."""

    label = "full@disk"

    def call_now(self, op: str, /, *, timeout_s: float = 10.0, **args: object) -> object:
        raise HostTrouble("no-state", "no space left on device")


def test_a_deployment_in_use_is_refused_with_who_and_since_when(folder: Path) -> None:
    hosts = Hosts.here(TARGET)
    first, second = TargetLock(TARGET, hosts, "aaaa"), TargetLock(TARGET, hosts, "bbbb")
    assert () == first.take()
    assert 3 == len(list(folder.iterdir()))
    with pytest.raises(
        Refused, match=r"shared is in use by run aaaa of .+@.+ on shared, since .+ UTC, renewed until .+"
    ):
        second.take()
    first.release()
    assert () == second.take()
    second.release()
    assert not folder.exists()


def test_stealing_is_told_without_a_name_of_a_machine_and_the_other_hears_of_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = Hosts.here(TARGET)
    first, second = TargetLock(TARGET, hosts, "aaaa"), TargetLock(TARGET, hosts, "bbbb")
    first.take()
    assert ("the lock was stolen from run aaaa: it hangs",) == second.take("it hangs")
    monkeypatch.setattr(lock, "RENEW_S", 0.0)
    heard: list[str] = []
    asyncio.run(asyncio.wait_for(first.keep(heard.append), 60))
    assert ["run bbbb has stolen the lock of shared"] == heard
    first.release()
    assert 3 == len(list(folder.iterdir())), "the other's locks stay"
    second.release()


def test_what_was_taken_is_given_back_when_one_host_cannot(folder: Path) -> None:
    here, deaf = Here(), Deaf()
    hosts = Hosts({"router": here, "router-0": here, "prefill-0": here, "decode-0": deaf}, here)
    with pytest.raises(Refused, match="cannot be taken on full@disk: no space left"):
        TargetLock(TARGET, hosts, "aaaa").take()
    assert not folder.exists()


def test_a_host_that_does_not_take_it_back_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, deaf = Here(), Deaf()
    monkeypatch.setattr(deaf, "call_now", Here().call_now)
    mine = TargetLock(TARGET, Hosts({"router-0": here, "prefill-0": here, "decode-0": deaf}, here), "aaaa")
    mine.take()
    monkeypatch.undo()
    monkeypatch.setattr(state, "SHARED", (str(folder),))
    assert [deaf] == mine.release()
    assert [] == mine.release()


def test_everybody_goes_through_the_hosts_in_the_same_order() -> None:
    here, there = Here(), Deaf()
    ours = Hosts({"router-0": here, "prefill-0": there, "decode-0": here}, here)
    theirs = Hosts({"decode-0": here, "prefill-0": there, "router-0": here}, there)
    assert [keys for _, keys in lock_keys(TARGET, ours)] == [keys for _, keys in lock_keys(TARGET, theirs)]


@needs_sshd
async def test_the_lock_of_a_run_whose_connection_is_gone_blocks_nobody(sshd: Sshd) -> None:
    """Without a folder of its own: a remote process knows nothing of this one's. The keys are of nobody else."""
    urls = [{"url": f"http://lock-test-{sshd.port}:{n}"} for n in (1, 2, 3)]
    servers = {"router": urls[0], "prefill": urls[1:2], "decode": urls[2:]}
    unique = Target.model_validate({"version": 1, "name": "shared", **servers})
    here = Hosts.here(unique)
    ((_, keys),) = lock_keys(unique, here)
    with connected(sshd.ssh()) as remote:
        theirs = Hosts(dict.fromkeys(("router-0", "prefill-0", "decode-0"), remote), Here())
        TargetLock(unique, theirs, "aaaa").take()
        with pytest.raises(Refused, match="is in use by run aaaa of "):
            TargetLock(unique, here, "bbbb").take()
        assert 3 == len(Here().call_now("lock.seen", keys=keys))
        sshd.kill()
        assert await soon(lambda: not any(lock["live"] for lock in Here().call_now("lock.seen", keys=keys)))
    mine = TargetLock(unique, here, "bbbb")
    mine.take()
    mine.release()
    assert [] == Here().call_now("lock.seen", keys=keys)
