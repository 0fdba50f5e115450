"""Faults of the network as the kernel makes them: between two hosts of our own, told by packets that arrive or not."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from netns import NetHost, two_hosts, why_not

from chaos.outpost import addresses
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

if reason := why_not():
    pytest.skip(reason, allow_module_level=True)

V4, V6 = 0, 1
SSH = 2222
QUIET_S = 0.5
"""On a veth pair a datagram is there before `sendto` returns; the ear reads it when it gets the CPU."""


@pytest.fixture(scope="module")
def wire() -> Iterator[tuple[NetHost, NetHost]]:
    with two_hosts() as hosts:
        yield hosts


@pytest.fixture
def hosts(wire) -> Iterator[tuple[NetHost, NetHost]]:
    yield wire
    near, _ = wire
    near.clear()


@pytest.fixture
def near(hosts) -> NetHost:
    return hosts[0]


@pytest.fixture
def far(hosts) -> NetHost:
    return hosts[1]


def plan(near: NetHost, far: NetHost, kind: str, number: int = 1, **what: Any) -> dict[str, Any]:
    return near.call(
        "net.plan", kind=kind, run="ab-12", number=number, near=[near.addresses[V4]], far=[*far.addresses], **what
    )


def apply(near: NetHost, far: NetHost, kind: str, **what: Any) -> dict[str, Any]:
    planned = plan(near, far, kind, **what)
    near.call("net.carry_out", steps=planned["steps"])
    return planned


def arrives(sender: NetHost, hearer: NetHost, family: int = V4, count: int = 20) -> int:
    """How many of so many datagrams arrive."""
    ear = hearer.call("net.ear", name=hearer.addresses[family], lasts_s=60)
    send = {"name": hearer.addresses[family], "port": ear["udp"], "secret": ear["secret"], "v4": ear["v4"]}
    sender.call("net.shower", **send, count=count, every_ms=1)
    deadline = time.monotonic() + QUIET_S
    while (got := hearer.call("net.heard", ear=ear["id"])["datagrams"]) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    hearer.call("net.close_ear", ear=ear["id"])
    return got


def standing(host: NetHost) -> set[str]:
    """What a sweep would find of the network."""
    return {one["what"] for one in host.call("sweep", dry=True) if one["kind"] in ("table", "qdisc")}


def knocks(near: NetHost, far: NetHost, port: int, family: int = V4) -> str:
    told = near.call("net.knock", name=far.addresses[family], port=port, wait_s=0.5)
    return next(answer for answer in ("open", "refused", "silent") if told[answer])


@pytest.mark.parametrize("family", [V4, V6])
@pytest.mark.parametrize(
    ("direction", "inward", "outward"), [("both", 0, 0), ("in", 0, 20), ("out", 20, 0)], ids=["both", "in", "out"]
)
def test_a_partition_drops_what_comes_and_what_goes_as_it_says_and_nothing_once_undone(
    near, far, family, direction, inward, outward
) -> None:
    assert (20, 20) == (arrives(far, near, family), arrives(near, far, family))
    planned = apply(near, far, "partition", direction=direction)
    assert (inward, outward) == (arrives(far, near, family), arrives(near, far, family))
    assert ("silent", "silent") == (knocks(near, far, 9, family), knocks(far, near, 9, family))
    counted = near.call("net.counters", **planned["watch"])
    assert (direction != "out", direction != "in") == (
        bool(counted.get("dropped-in")),
        bool(counted.get("dropped-out")),
    )
    near.call("net.carry_out", steps=planned["undo"])
    assert (20, 20) == (arrives(far, near, family), arrives(near, far, family))
    assert ("refused", "refused") == (knocks(near, far, 9, family), knocks(far, near, 9, family))
    with pytest.raises(Trouble) as gone:
        near.call("net.counters", **planned["watch"])
    assert "gone" == gone.value.kind


@pytest.mark.parametrize("family", [V4, V6])
def test_ssh_passes_a_partition_in_both_directions_and_is_counted(near, far, family) -> None:
    planned = apply(near, far, "partition", ssh_ports=[SSH])
    assert ["refused"] * 4 == [
        knocks(one, other, port, family) for one, other in ((near, far), (far, near)) for port in (22, SSH)
    ]
    assert "silent" == knocks(far, near, 23, family)
    assert near.call("net.counters", **planned["watch"])["ssh-in"] >= 4


@pytest.mark.parametrize("family", [V4, V6])
def test_a_blocked_port_is_silent_and_its_neighbour_answers(near, far, family) -> None:
    apply(near, far, "port-block", ports=[8998, 9000])
    assert ["silent", "refused", "silent"] == [knocks(far, near, port, family) for port in (8998, 8999, 9000)]
    assert "refused" == knocks(near, far, 8998, family)
    assert 20 == arrives(far, near, family)


def test_what_a_loss_drops_is_counted_by_its_rules_and_missed_at_the_other_end(near, far) -> None:
    planned = apply(near, far, "loss", share=0.3)
    before = near.call("net.counters", **planned["watch"])
    got = arrives(far, near, count=1000)
    counted = near.call("net.counters", **planned["watch"])
    seen, dropped = (counted[what] - before[what] for what in ("seen-in", "dropped-in"))
    assert (1000, 1000 - got) == (seen, dropped)
    assert 200 <= dropped <= 400  # 300 expected; seven standard deviations of 14.5
    assert 20 == arrives(near, far)


def throughput(near: NetHost, far: NetHost, family: int, most_bytes: int) -> float:
    """Bytes per second that come from `near` to `far`."""
    ear = far.call("net.ear", name=far.addresses[family], lasts_s=60)
    send = {"name": far.addresses[family], "port": ear["tcp"], "secret": ear["secret"], "v4": ear["v4"]}
    near.call("net.burst", **send, most_bytes=most_bytes, most_s=2)
    told = far.call("net.heard", ear=ear["id"])
    far.call("net.close_ear", ear=ear["id"])
    return told["bytes"] / max(told["seconds"], 1e-9)


@pytest.mark.parametrize("family", [V4, V6])
def test_a_rate_limits_what_goes_to_the_peer_and_not_what_comes(near, far, family) -> None:
    planned = apply(near, far, "rate", bit_per_s=2_000_000)
    assert throughput(near, far, family, 400_000) < 2 * 250_000
    assert throughput(far, near, family, 4_000_000) > 2 * 250_000
    counted = near.call("net.counters", **planned["watch"])
    assert counted["bytes"] > 100_000
    assert counted["held_up"]
    near.call("net.carry_out", steps=planned["undo"])
    assert throughput(near, far, family, 4_000_000) > 2 * 250_000
    assert "noqueue 0: root" in near.tool("tc", "qdisc", "show", "dev", near.device)


def test_ssh_is_not_slowed_down(near, far) -> None:
    planned = apply(near, far, "rate", bit_per_s=2_000_000, ssh_ports=[SSH])
    for port in (22, SSH):
        knocks(near, far, port)
        knocks(far, near, port)
    assert 0 == near.call("net.counters", **planned["watch"])["packets"]
    knocks(near, far, 23)
    assert near.call("net.counters", **planned["watch"])["packets"]


def test_a_qdisc_that_somebody_chose_is_left_alone(near, far) -> None:
    chosen = ["tbf", "rate", "1gbit", "burst", "1m", "latency", "9ms"]
    near.tool("tc", "qdisc", "add", "dev", near.device, "root", "handle", "5:", *chosen)
    try:
        with pytest.raises(Trouble, match=r"somebody chose the qdisc of \S+ \(tbf 5:\)") as refused:
            plan(near, far, "rate", bit_per_s=1_000_000)
        assert "taken" == refused.value.kind
        assert "tbf 5: root" in near.tool("tc", "qdisc", "show", "dev", near.device)
    finally:
        near.tool("tc", "qdisc", "del", "dev", near.device, "root")


def test_what_stands_is_found_by_its_name_and_only_that(near, far) -> None:
    near.tool("nft", "add", "table", "inet", "others")
    try:
        orders = (("partition", {"number": 1}), ("loss", {"number": 2, "share": 0.1}), ("rate", {"bit_per_s": 10**6}))
        undo = [step for kind, what in orders for step in apply(near, far, kind, **what)["undo"]]
        assert standing(near) == {
            "nft table inet pdchaos_ab_12_1",
            "nft table inet pdchaos_ab_12_2",
            f"htb 7db1: of {near.device}",
        }
        with pytest.raises(Trouble, match="shaped by pdchaos already"):
            plan(near, far, "rate", bit_per_s=1_000_000)
        near.call("net.carry_out", steps=undo)
        assert set() == standing(near)
        assert re.findall(r"table \S+ \S+", near.tool("nft", "list", "tables")) == ["table inet others"]
    finally:
        near.tool("nft", "delete", "table", "inet", "others")


def test_a_plan_touches_nothing(near, far) -> None:
    plan(near, far, "partition")
    plan(near, far, "rate", bit_per_s=1_000_000)
    assert set() == standing(near)


def has_netem() -> bool:
    tried = ["unshare", "-n", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    return not subprocess.run(tried, capture_output=True, check=False).returncode


@pytest.mark.skipif(has_netem(), reason="this kernel has netem")
def test_a_delay_that_this_kernel_cannot_make_is_refused_with_its_reason(near, far) -> None:
    with pytest.raises(Trouble, match="this kernel cannot do it: netem: ") as refused:
        plan(near, far, "delay", delay_ms=100.0, jitter_ms=5.0)
    assert ("kernel", set()) == (refused.value.kind, standing(near))


@pytest.mark.skipif(not has_netem(), reason="this kernel has no netem")
def test_a_delay_holds_up_what_goes_to_the_peer(near, far) -> None:
    apply(near, far, "delay", delay_ms=100.0, jitter_ms=5.0)
    ms = near.call("net.knock", name=far.addresses[V4], port=9, times=5)["ms"]
    assert 80 < sorted(ms)[2] < 1000


def test_peers_at_an_address_of_this_host_are_refused(near) -> None:
    for name in (near.addresses[V6], "127.0.0.1", "localhost"):
        with pytest.raises(Trouble, match="no network lies between them") as refused:
            near.call("net.plan", kind="partition", run="x", number=1, near=[near.addresses[V4]], far=[name])
        assert "shared" == refused.value.kind


@pytest.mark.skipif(addresses.ssh() is not None, reason="these tests were started over SSH, which is found")
def test_a_host_that_does_not_tell_how_we_came_is_refused_when_we_came_over_ssh(near, far) -> None:
    with pytest.raises(Trouble) as refused:
        plan(near, far, "partition", over_ssh=True)
    assert "ssh-unknown" == refused.value.kind


def test_a_root_that_may_not_change_the_network_is_refused(near, far) -> None:
    code = f"""
from chaos.outpost import net
from chaos.outpost import addresses
from chaos.outpost.trouble import Trouble
try:
    net.plan("partition", "x", 1, ["{near.addresses[V4]}"], ["{far.addresses[V4]}"])
except Trouble as trouble:
    print(trouble.kind, trouble.text)
"""
    told = near.tool("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", sys.executable, "-c", code)
    assert told.startswith("denied this user may not change the network of this host")
