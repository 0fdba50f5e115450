"""The hosts of a target: reached, their clocks, who uses them, what was left there, what they lack."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from chaos.engine.cleaning import STANDING
from chaos.engine.doctor.row import Row, State
from chaos.engine.hosts.host import HostLost, HostTrouble
from chaos.engine.hosts.lock import lock_keys
from chaos.engine.hosts.remote import Remote
from chaos.engine.leftovers import Item, living_runs, locks_at
from chaos.engine.probes.http import transport_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from chaos.engine.hosts import Host, Hosts
    from chaos.engine.hosts.lock import Lock
    from chaos.model.target import Target

ASK_S = 30.0
FAST = ("httptools", "orjson", "uvloop")
LONGEST = 100
TOLD = 3
"""Of the runs of others on a host so many are named."""
DOUBTFUL_NS = 50_000_000
"""Beyond this, which of two things came first can be told wrongly."""


def look(host: Host, target: Target, hosts: Hosts, *, again: str, run: str) -> Iterator[Row]:
    """Everything about one host. `again` names the target for a command line, `run` is this look's own. Blocks."""
    if isinstance(host, Remote):
        yield from _reached(host)
    try:
        keys = next((keys for at, keys in lock_keys(target, hosts) if at is host), [])
        locks = locks_at(host)
        mine = [lock for lock in locks if lock.key in keys]
        yield _lock(host, mine)
        yield from _left(host, again, {run, *(lock.run for lock in mine)}, locks)
        yield from _lacks(host, loads=host is hosts.load)
        if host is hosts.load and host.remote:
            yield _lacking_here()
    except (HostTrouble, HostLost) as error:
        yield Row(host.label, "host", State.PROBLEM, str(error))


def _reached(host: Remote) -> Iterator[Row]:
    hello, clock = host.hello, host.clock
    as_whom = "root" if hello.get("uid") == 0 else f"uid {hello.get('uid')}"
    yield Row.ok(host.label, "ssh", f"reached as {as_whom}, host key known, Python {hello.get('python')}")
    ahead_s = -(clock.wall_offset_ns + time.time_ns() - time.monotonic_ns()) / 1e9
    side = "ahead of" if ahead_s >= 0 else "behind"
    said = f"{abs(ahead_s):.3f} s {side} ours, known to ±{clock.uncertainty_ns / 1e6:.1f} ms"
    if clock.uncertainty_ns > DOUBTFUL_NS:
        fix = "events there are put on the axis no more exactly than that; a quicker connection helps"
        yield Row(host.label, "clock", State.NOTE, said, fix)
    else:
        yield Row.ok(host.label, "clock", said)


def _lock(host: Host, locks: Sequence[Lock]) -> Row:
    live = [lock for lock in locks if lock.live]
    if live:
        fix = "wait for it, or take it with --steal-lock REASON"
        return Row(host.label, "lock", State.REFUSED, f"in use by {live[0].told}", fix)
    dead = f"; run {locks[0].run}, which is gone, left it behind, and the next run takes it over" if locks else ""
    return Row.ok(host.label, "lock", f"free{dead}")


def _left(host: Host, again: str, known: Collection[str], locks: Sequence[Lock]) -> Iterator[Row]:
    """What was left there, and who else lives there but the runs that are `known`."""
    said = host.call_now("sweep", timeout_s=ASK_S, dry=True, runs=[])
    items = msgspec.convert(said, list[Item])
    left = [item for item in items if not item.lives]
    for item in left:
        told = f"{item.kind} {item.what[:LONGEST]} of run {item.run or '?'}"
        state = State.REFUSED if item.kind in STANDING else State.NOTE
        yield Row(host.label, "leftover", state, told, f"pdchaos sweep --target {again}")
    if not left:
        yield Row.ok(host.label, "leftovers", "none")
    items += [Item("lock", lock.run, "", lives=True, gone=False, why="") for lock in locks if lock.live]
    others = [run.who for run in living_runs(host, items, locks, known) if not run.ours]
    if len(others) == 1:
        yield Row.ok(host.label, "other run", f"{others[0]}: it lives, and is left alone")
    elif others:
        more = [f"and {len(others) - TOLD} more"] if len(others) > TOLD else []
        told = "; ".join([*others[:TOLD], *more])
        yield Row.ok(host.label, "other runs", f"{len(others)} other runs live here and are left alone: {told}")


def _lacks(host: Host, *, loads: bool) -> Iterator[Row]:
    modules = FAST if loads else ()
    said = host.call_now("fitness", programs=["py-spy"], modules=modules)
    missing = [name for name in said["missing"] if name in FAST]
    if missing:
        fix = "pip install 'pdchaos[fast]'" + (" for its Python" if host.remote else "")
        told = f"{', '.join(missing)} not there: the load costs more CPU"
        yield Row(host.label, "fast libraries", State.NOTE, told, fix)
    elif loads:
        yield Row.ok(host.label, "fast libraries", f"all there: {', '.join(FAST)}")
    if "py-spy" in said["missing"]:
        fix = "pip install py-spy" + (" there" if host.remote else "")
        yield Row(host.label, "py-spy", State.NOTE, "not there: no names and stacks of threads", fix)
    else:
        yield Row.ok(host.label, "py-spy", "there")


def _lacking_here() -> Row:
    """Beside a load elsewhere: what our own requests are made with."""
    if transport_name() == "httpx":
        said = "httpx-aiohttp is not there: probes cost more CPU"
        return Row("this machine", "fast libraries", State.NOTE, said, "pip install httpx-aiohttp")
    return Row.ok("this machine", "fast libraries", f"requests are made with {transport_name()}")
