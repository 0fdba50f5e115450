"""`pdchaos doctor` finds what would spoil a run before anything is broken, and says what mends it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
import yaml

from chaos import library
from chaos.engine.hosts import Hosts
from chaos.engine.hosts.lock import TargetLock

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e


@pytest.fixture
def lab(kept_lab):
    return kept_lab("sim", time_scale="0.05")


def examined(pdchaos, lab, tmp_path: Path, change=dict.copy, *words: str) -> tuple[int, dict, str]:
    """Exit code, rows by (where, what), and what was printed."""
    plain = yaml.safe_load(lab.target.read_text())
    change(plain)
    target = lab.target.with_name("changed.yaml")
    target.write_text(yaml.safe_dump(plain))
    ran = pdchaos.finish(pdchaos.start("doctor", "--target", str(target), "--json", *words))
    assert "Traceback" not in ran.output
    told = json.loads(ran.output[ran.output.index("{") :])
    assert told["exit_code"] == ran.code
    return ran.code, {(row["where"], row["what"]): row for row in told["rows"]}, ran.output


def test_a_deployment_that_is_well_is_called_so_and_the_log_of_each_engine_grows(pdchaos, lab, tmp_path: Path) -> None:
    def elsewhere(plain: dict) -> None:
        (prefill,), (decode,) = plain["prefill"][0]["log"], plain["decode"][0]["log"]
        plain["prefill"][0]["log"] = [{"command": f"tail -n 0 -F {prefill['file']} >&2"}]
        plain["decode"][0]["log"] = [decode["file"].replace(".log", ".lo?")]

    code, rows, _ = examined(pdchaos, lab, tmp_path, elsewhere)
    assert 0 == code, rows
    for place in (("this machine", "lock"), ("routed", "canary"), ("prefill-0>decode-0", "canary")):
        assert "ok" == rows[place]["state"]
    for node in ("prefill-0", "decode-0"):
        for what in ("http", "log", "process", "signal", "restart", "log grows"):
            assert "ok" == rows[node, what]["state"], rows[node, what]
    assert rows["prefill-0", "process"]["said"] == f"pid {lab.pids['prefill-0']}"
    shown = pdchaos.finish(pdchaos.start("doctor", "--target", str(lab.target)))
    assert (0, True) == (shown.code, "lab-sim: all is well" in shown.output), shown.output


def test_each_thing_that_is_wrong_is_found_at_its_place_with_what_mends_it(pdchaos, lab, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.log"
    elsewhere.touch()

    def spoil(plain: dict) -> None:
        plain["router"]["metrics"] = plain["router"]["url"] + "/nothing-here"
        plain["router"]["pidfile"] = plain["prefill"][0]["pidfile"]
        plain["prefill"][0]["log"] = ["nowhere.log"]
        plain["prefill"][0].pop("bootstrap_port")
        plain["decode"][0]["pidfile"] = "nowhere.pid"
        plain["decode"][0]["log"] = [str(elsewhere)]
        plain["decode"][0].pop("restart")
        plain["allow"].append("network")

    code, rows, _ = examined(pdchaos, lab, tmp_path, spoil)
    assert 6 == code
    found = {place: row["state"] for place, row in rows.items()}
    assert ("problem", "problem", "problem") == (
        found["router", "metrics"],
        found["prefill-0", "log"],
        found["decode-0", "process"],
    )
    assert {"refused"} == {
        found[place] for place in (("decode-0", "restart"), ("prefill-0", "protocol"), ("decode-0", "network"))
    }
    shared = f"the same process (pid {lab.pids['prefill-0']}) is found for each of router, prefill-0"
    assert [("problem", shared)] * 2 == [
        (rows[node, "process"]["state"], rows[node, "process"]["said"]) for node in ("router", "prefill-0")
    ]
    assert ("note", "ok") == (found["decode-0", "log grows"], found["routed", "canary"])
    assert all(row["fix"] for row in rows.values() if row["state"] in ("problem", "refused")), rows


def test_a_deployment_in_use_is_refused_and_one_of_production_gets_no_canary(pdchaos, lab, tmp_path: Path) -> None:
    target = library.load_target(str(lab.target)).value
    lock = TargetLock(target, Hosts.here(target), "0badcafe")
    lock.take()
    try:
        code, rows, _ = examined(
            pdchaos, lab, tmp_path, lambda plain: plain.update(environment="production"), "--production"
        )
        assert (5, "refused", "ok") == (
            code,
            rows["this machine", "lock"]["state"],
            rows["routed", "canary"]["state"],
        )
        assert "in use by run 0badcafe of " in rows["this machine", "lock"]["said"]
    finally:
        lock.release()
    code, rows, _ = examined(pdchaos, lab, tmp_path, lambda plain: plain.update(environment="production"))
    assert (0, "note") == (code, rows["paths", "canary"]["state"])


def test_a_server_that_does_not_answer_or_serves_nothing_is_unfit(pdchaos, lab, tmp_path: Path) -> None:
    os.kill(lab.pids["decode-0"], 9)
    code, rows, _ = examined(pdchaos, lab, tmp_path)
    assert (6, "problem", "problem") == (code, rows["decode-0", "http"]["state"], rows["decode-0", "process"]["state"])
    assert "not every server can be asked" in rows["paths", "canary"]["said"]
