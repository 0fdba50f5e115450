"""The metrics pages: real names, absent children, and gauges that go stale when the real ones do."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from lab_client import CHAT, GENERATE, eventually
from prometheus_client.parser import text_string_to_metric_families

from chaos.lab.sim.exposition import Exposition, Family

REAL = Path(__file__).parent / "data" / "families-0.5.14.txt"
NOT_IN_THE_SAMPLES = {
    # named in the engine's source; the samples' run did not touch them
    "sglang:inter_token_latency_seconds",
    "sglang:num_retracted_requests_total",
    "sglang:realtime_tokens_total",
    "sglang:max_total_num_tokens",
    "sglang:http_requests_total",
    "sglang:http_responses_total",
    "sglang:http_requests_active",
}


def exported(text: str) -> dict[str, tuple[str, str]]:
    """Type and label names of every family on a page."""
    found = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            found[name] = (kind, "")
    for family in text_string_to_metric_families(text):
        labels = {label for sample in family.samples for label in sample.labels}
        name = family.name if family.name in found else f"{family.name}_total"
        kind = found[name][0]
        found[name] = (kind, ",".join(sorted(labels - ({"le"} if kind == "histogram" else set()))))
    return found


def test_families_types_and_labels_are_those_of_the_real_collectors(calm):
    real = {}
    for line in REAL.read_text().splitlines():
        if not line.startswith("#"):
            name, kind, labels = line.split()
            real[name] = (kind, labels)
    assert 200 == calm.ask(CHAT).status
    with calm.transfer_held():  # one abort on each side, so that the failure counters exist
        client = calm.client(GENERATE, "x", 2)
        eventually(lambda: calm.active(calm.decode) and calm.active(calm.prefill), "dispatched")
        client.hang_up()
        for url in (calm.prefill, calm.decode):
            eventually(lambda url=url: calm.metric(url, "num_transfer_failed_reqs_total"), "a failed transfer")
    pages = {side: exported(calm.http.get(f"{url}/metrics").text)
             for side, url in (("prefill", calm.prefill), ("decode", calm.decode))}  # fmt: skip
    both = pages["prefill"] | pages["decode"]
    # nothing need have failed before its bootstrap here: then that family is absent, as on the real decode's sample
    assert real.keys() - both.keys() <= {"sglang:num_bootstrap_failed_reqs_total"}
    for page in pages.values():
        assert {name: real[name] for name in page if name in real} == {n: page[n] for n in page if n in real}
        assert page.keys() - real.keys() <= NOT_IN_THE_SAMPLES


def test_a_child_without_an_observation_is_absent_help_line_and_all(lab):
    fresh = lab()
    page = fresh.http.get(f"{fresh.decode}/metrics").text
    for absent in ("num_transfer_failed_reqs_total", "num_aborted_requests_total", "kv_transfer_latency_ms"):
        assert absent not in page
    assert "sglang:num_decode_transfer_queue_reqs{" in page


def test_both_roles_export_all_four_queue_gauges(calm):
    for url in (calm.prefill, calm.decode):
        for queue in ("prefill_bootstrap", "prefill_inflight", "decode_prealloc", "decode_transfer"):
            assert calm.metric(url, f"num_{queue}_queue_reqs") is not None


def test_decode_writes_its_gauges_at_every_40th_step_and_its_counters_at_every_step(lab):
    node = lab(time_scale=1, step_ms=20)
    assert (7, 0) == steps_and_running(node)  # of the warm-up, after which the gauges were written
    node.client(CHAT, "hello", 70)
    seen = []
    eventually(lambda: seen.append(steps_and_running(node)) or seen[-1][0] == 7 + 69, "the last step")
    assert len({steps for steps, _ in seen}) > 5
    assert {0} == {running for steps, running in seen if steps < 40}
    # it ended before the 80th step, and 30 s of idling are not over: the last value stays
    assert {1} == {running for steps, running in seen if steps >= 40}
    assert node.is_idle(node.decode)


def steps_and_running(node) -> tuple[float, float]:
    """Decode tokens counted live and the running gauge, from one page."""
    page = node.samples(node.decode)
    steps = sum(value for (name, _), value in page.items() if name == "sglang:realtime_tokens_total")
    return steps, sum(value for (name, _), value in page.items() if name == "sglang:num_running_reqs")


def test_an_idle_engine_writes_its_gauges_once_the_lag_is_over(calm):
    calm.until_idle()
    assert 200 == calm.ask(CHAT, tokens=100).status
    eventually(lambda: 0 == calm.metric(calm.decode, "num_running_reqs"), "written while idle")


def test_a_health_check_refreshes_prefills_gauges_and_not_decodes(calm):
    calm.until_idle()
    eventually(lambda: 0 == calm.metric(calm.decode, "num_running_reqs"), "written while idle")
    stuck = []
    for room, url in ((3, calm.prefill), (4, calm.decode)):  # two different rooms: neither ever meets its other side
        pair = {"bootstrap_host": "127.0.0.1", "bootstrap_port": calm.bootstrap_port, "bootstrap_room": room}
        stuck.append(calm.client(GENERATE, "x", 2, url=url, **pair))
        eventually(lambda url=url: calm.active(url), "there")
        assert 200 == calm.http.get(f"{url}/health").status_code
    assert 1 == calm.metric(calm.prefill, "num_prefill_bootstrap_queue_reqs")
    assert 0 == calm.metric(calm.decode, "num_decode_transfer_queue_reqs")
    assert (1, 1) == (calm.active(calm.prefill), calm.active(calm.decode))
    for client in stuck:
        client.hang_up()
    calm.until_idle()


def test_health_takes_a_second_of_the_engines_time_and_does_not_touch_the_transfer_path(calm):
    with calm.transfer_held():
        calm.client(CHAT, "stuck", 2)
        for path in ("/health", "/health_generate"):
            for url in (calm.prefill, calm.decode):
                began = time.monotonic()
                assert 200 == calm.http.get(url + path).status_code
                assert time.monotonic() - began >= 0.02
    calm.until_idle()


def test_health_of_decode_fails_when_stuck_rooms_hold_every_slot(lab):
    node = lab(slots=1)
    pair = {"bootstrap_host": "127.0.0.1", "bootstrap_port": node.bootstrap_port, "bootstrap_room": 3}
    node.client(GENERATE, "nobody prefills this", 2, url=node.decode, **pair)
    eventually(lambda: node.active(node.decode), "there")
    assert 503 == node.http.get(f"{node.decode}/health").status_code
    line = "Health check failed. Server couldn't get a response from detokenizer for last"
    assert line in node.log("decode-0")
    assert 200 == node.http.get(f"{node.prefill}/health").status_code


def test_the_router_has_a_metrics_page_on_a_port_of_its_own(calm):
    assert 200 == calm.ask(CHAT).status
    page = exported(calm.http.get(calm.router_metrics).text)
    for name in ("smg_http_requests_total", "smg_http_connections_active", "smg_worker_health", "smg_worker_pool_size",
                 "smg_worker_requests_active", "smg_router_requests_total"):  # fmt: skip
        assert name in page
    assert 404 == calm.http.get(f"{calm.router}/metrics").status_code


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (15360.0, "15360.0"), (1e6, "1e+06"), (1.1e6, "1.1e+06"), (float("nan"), "NaN"), (0.03, "0.03")],
)
def test_numbers_look_as_in_the_samples(value, text):
    page = Exposition([Family("n", "gauge", "none", "Help.")], {"none": {}})
    page.set("n", value)
    assert f"n {text}\n" == page.render().splitlines(keepends=True)[2]
