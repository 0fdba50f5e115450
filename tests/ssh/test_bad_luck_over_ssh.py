"""What goes wrong on the way to a host ends in a clear message, the right exit code, no hang, and nothing left over.

Wrong keys and changed ones: `tests/cli/test_hosts.py`.
"""

from __future__ import annotations

import time

import pytest
from laptops import SHORT, Laptop

pytestmark = pytest.mark.e2e
CONNECTING_S = 60.0


def disturbed(laptop: Laptop, disturb, *words: str):
    """A run that is disturbed once its load has begun."""
    process = laptop.start_run(SHORT, *words)
    laptop.await_output("phase     load", process)
    disturb()
    return laptop.finish(process)


def lost(ran) -> set[str]:
    return {event["node"] for event in ran.of("evidence.lost")}


def test_a_connection_that_is_cut_for_good_is_lost_evidence_and_never_health(laptop, healthy_bed) -> None:
    ran = disturbed(laptop, lambda: healthy_bed.cut("decode-0"))
    assert ran.code in (3, 8), ran.output
    assert "inconclusive" == ran.verdict["outcome"]
    assert "decode-0" in lost(ran)
    healthy_bed.mend()
    assert {} == laptop.leftovers()


def test_a_connection_that_comes_back_is_used_again(laptop, healthy_bed) -> None:
    def cut_for_a_while() -> None:
        healthy_bed.cut("decode-0")
        time.sleep(20)
        healthy_bed.mend()

    ran = disturbed(laptop, cut_for_a_while, "--with", "timeline.wave.at=40s")
    assert ran.code in (0, 3), ran.output
    assert "decode-0" in lost(ran)
    assert ran.of("log.covered")[-1]["t_ns"] > ran.of("evidence.lost")[-1]["to_ns"]
    assert {} == laptop.leftovers()


def test_an_ssh_server_that_is_restarted_with_all_its_connections_is_reached_again(laptop, healthy_bed) -> None:
    ran = disturbed(laptop, lambda: healthy_bed.sshd_restart("prefill-0"))
    assert ran.code in (0, 3), ran.output
    assert "prefill-0" in lost(ran)
    assert {} == laptop.leftovers()


def test_a_disk_that_fills_up_during_a_run_does_not_matter(laptop, healthy_bed) -> None:
    def fill() -> None:
        for host in healthy_bed.hosts:
            healthy_bed.fill_disk(host)

    ran = disturbed(laptop, fill)
    for host in healthy_bed.hosts:
        healthy_bed.empty_disk(host)
    assert (0, "healthy") == (ran.code, ran.verdict["outcome"]), ran.output
    assert {} == laptop.leftovers()


def test_where_not_even_a_lock_can_be_written_nothing_begins(laptop, healthy_bed) -> None:
    healthy_bed.fill_disk("decode-0")
    ran = laptop.finish(laptop.start_run(SHORT), within=CONNECTING_S)
    healthy_bed.empty_disk("decode-0")
    assert 5 == ran.code, ran.output
    assert "No space left on device" in ran.output
    assert {} == laptop.leftovers()


def test_a_host_that_hangs_during_a_run_does_not_hang_the_run(laptop, healthy_bed) -> None:
    ran = disturbed(laptop, lambda: healthy_bed.sshd_stop("prefill-0"))
    healthy_bed.sshd_cont("prefill-0")
    assert ran.code in (3, 8), ran.output
    assert "prefill-0" in lost(ran)
    assert {} == laptop.leftovers()


def test_a_host_that_hangs_before_a_run_is_named_within_a_bounded_time(laptop, healthy_bed) -> None:
    healthy_bed.sshd_stop("decode-0")
    ran = laptop.finish(laptop.start_run(SHORT), within=CONNECTING_S)
    healthy_bed.sshd_cont("decode-0")
    assert 6 == ran.code, ran.output
    assert healthy_bed.address("decode-0") in ran.output
    assert {} == laptop.leftovers()


def test_a_log_that_grows_by_fifty_megabytes_a_second_neither_hangs_nor_fills_anything(laptop, healthy_bed) -> None:
    ran = disturbed(laptop, lambda: healthy_bed.flood_log("prefill-0", 50, 8))
    assert ran.code in (0, 3), ran.output
    read = sum(event["end"] - event["start"] for event in ran.of("log.covered") if event["node"] == "prefill-0")
    missed = sum(event.get("lost", 0) for event in ran.of("log.covered") if event["node"] == "prefill-0")
    assert read + missed > 50 << 20
    assert not missed or "healthy" != ran.verdict["outcome"]
    assert {} == laptop.leftovers()
