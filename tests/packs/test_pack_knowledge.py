# ruff: noqa: E501 - log lines stand here as they are written
"""What the shipped packs claim: every signature runs over its own samples and over everybody else's."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, get_args

import pytest

from chaos import library
from chaos.model.events import HitClass, Role

if TYPE_CHECKING:
    from chaos.model.pack import Pack, Signature

PACKS: dict[str, Pack] = {name: loaded.value for name, loaded in library.load_packs().items()}
SIGNATURES = [
    pytest.param(pack, signature, id=f"{name}-{signature.id}")
    for name, pack in PACKS.items()
    for signature in pack.signatures
]

# Lines that mean nothing, whatever they look like: a healthy engine under load, and pieces of known tracebacks.
NOISE = [
    '[2026-06-20 14:02:30] INFO:     10.0.0.9:41712 - "GET /health HTTP/1.1" 200 OK',
    '[2026-06-20 14:02:30] INFO:     10.0.0.9:41712 - "GET /health HTTP/1.1" 503 Service Unavailable',
    '[2026-06-20 14:02:30] INFO:     10.0.0.9:41712 - "POST /abort_request HTTP/1.1" 200 OK',
    '[2026-06-20 14:02:30] INFO:     10.0.0.9:41712 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error',
    '[2026-06-20 14:02:30] INFO:     10.0.0.9:41712 - "PRI * HTTP/2.0" 404 Not Found',
    "[2026-06-20 14:02:40 TP0] Prefill batch, #new-seq: 1, #new-token: 1, #cached-token: 0, token usage: 0.02, #running-req: 0, #queue-req: 0, #pending-token: 0, #bootstrap-req: 3, #inflight-req: 0, cuda graph: False, input throughput (token/s): 0.07",
    "[2026-06-20 15:10:18 TP0] Decode batch, #running-req: 22, #token: 48800, token usage: 0.29, pre-allocated usage: 0.10, #prealloc-req: 4, #transfer-req: 9, #retracted-req: 0, cuda graph: True, gen throughput (token/s): 1411.70, #queue-req: 0",
    "[2026-06-20 14:02:30] Start of pd disaggregation warmup ...",
    "[2026-06-20 14:02:30] End of disaggregation warmup",
    "[2026-06-20 14:02:30] Cache flushed successfully!",
    "[2026-06-20 14:02:30] Attempting to reconnect to 10.0.0.1:8998...",
    "Traceback (most recent call last):",
    '  File "/usr/lib/python3.12/threading.py", line 1075, in _bootstrap_inner',
    "    self.run()",
    "    self._target(*self._args, **self._kwargs)",
    '  File "/opt/venv/lib/python3.12/site-packages/sglang/srt/disaggregation/nixl/conn.py", line 1849, in bootstrap_thread',
    "    assert (",
    "    waiting_req_bytes[0] == GUARD",
    "    assert room in self.transfer_infos",
    "AssertionError",
    "",
    " 37%|███▋      | 3/8 [00:01<00:02,  2.10it/s]",
    "2026-06-20 13:55:38  INFO smg::core: Worker http://127.0.0.1:30000 is healthy",
]


def meaning(pack: Pack, line: str) -> Signature | None:
    """The first signature that matches, as the scanner does it."""
    return next((signature for signature in pack.signatures if re.search(signature.pattern, line)), None)


@pytest.mark.parametrize(("pack", "signature"), SIGNATURES)
def test_a_signature_gives_its_own_lines_their_meaning_and_no_others(pack: Pack, signature: Signature) -> None:
    for line in signature.samples.match:
        assert signature is meaning(pack, line), line
        if signature.key:
            match = re.search(signature.pattern, line)
            assert match
            assert match[signature.key]
    for line in signature.samples.no_match:
        assert re.search(signature.pattern, line) is None, line


@pytest.mark.parametrize(("pack", "signature"), SIGNATURES)
def test_a_signature_is_honest_about_its_versions_and_roles(pack: Pack, signature: Signature) -> None:
    assert signature.samples.no_match, "a signature needs a line that it must not match"
    assert not signature.fixed_in or signature.upstream, "fixed, but by what?"
    assert len(signature.roles) == len(set(signature.roles))
    if signature.ends:
        assert signature.klass in ("fatal", "crash", "traceback", "symptom")


@pytest.mark.parametrize("pack", PACKS.values(), ids=PACKS)
def test_noise_means_nothing(pack: Pack) -> None:
    assert [] == [line for line in NOISE if meaning(pack, line)]


@pytest.mark.parametrize(("pack", "signature"), SIGNATURES)
def test_a_pattern_is_cheap_on_a_long_line_that_almost_matches(pack: Pack, signature: Signature) -> None:
    """Patterns backtrack over bounded pieces only: half a second of CPU is a thousand times what they need."""
    started = time.process_time()
    for line in signature.samples.match:
        for hostile in (line[:-1] * 200, line[: len(line) // 2] * 400, "(" * 5000 + line[:-1], "rid='" * 2000):
            re.search(signature.pattern, hostile)
    assert 2.0 > time.process_time() - started


def test_the_killer_of_the_incident_is_named_with_its_fix() -> None:
    line = "AssertionError: First message should be b'NixlMsgGuard'. Foreign traffic?"
    killer = meaning(PACKS["sglang"], line)
    assert killer
    assert ("fatal", "prefill", "thread") == (killer.klass, killer.side, killer.ends)
    assert ("sgl-project/sglang#30352", "0.5.16") == (killer.upstream, killer.fixed_in)
    assert ["prefill"] == killer.roles


@pytest.mark.parametrize(
    ("line", "klass", "ends"),
    [
        ("Exception in thread Thread-6 (bootstrap_thread):", "fatal", "thread"),
        ("Exception in thread Thread-99 (some_new_thread):", "traceback", "thread"),
        ("[2026-06-20 14:02:12 TP0] Unexpected transfer worker error for room 5975098084415727586", "symptom", ""),
        ("[2026-06-20 16:24:02] The server is fired up and ready to roll!", "restart", ""),
        (
            "[2026-06-20 16:20:07 TP3] Scheduler hit an exception: Traceback (most recent call last):",
            "crash",
            "process",
        ),
    ],
)
def test_dead_threads_symptoms_and_crashes_are_told_apart(line: str, klass: str, ends: str) -> None:
    found = meaning(PACKS["sglang"], line)
    assert found
    assert (klass, ends) == (found.klass, found.ends)


@pytest.mark.parametrize(
    "line",
    [
        "[2026-06-20 14:07:41 TP0] Some requests timed out when bootstrapping, which means prefill instances fail to receive the KV indices from the decode instance of this request.",
        "[2026-06-20 14:07:41 TP0] Some requests fail to receive KV Cache transfer done signal after bootstrapping.",
    ],
)
def test_a_line_that_a_process_prints_only_once_is_a_symptom_and_counts_nothing(line: str) -> None:
    """Trap 22: `warning_once` makes the first wave look bad and every later one clean."""
    found = meaning(PACKS["sglang"], line)
    assert found
    assert ("symptom", "", "") == (found.klass, found.ends, found.key)
    assert "once per process" in found.note


def test_an_exception_without_any_text_is_recognised() -> None:
    """Trap 24: a bare assertion leaves nothing behind `with exception `."""
    found = meaning(PACKS["sglang"], failed("9f3c", 7, "").partition(" KVTransferError")[0] + " ")
    assert found
    assert ("request-failed", "symptom") == (found.id, found.klass)


def failed(rid: str, room: int, reason: str, *, rank: int = 0) -> str:
    return (
        f"[2026-06-20 14:02:12 TP{rank}] Decode transfer failed for request rank={rank} decode_req.req.rid='{rid}' "
        f"decode_req.req.bootstrap_room={room} with exception KVTransferError(bootstrap_room={room}): {reason}"
    )


def test_an_abort_is_counted_by_its_room_once_for_all_ranks() -> None:
    keys = set()
    for rank in (0, 1):
        line = failed("agents-s0001-r0000", 77, "Aborted by AbortReq.", rank=rank)
        found = meaning(PACKS["sglang"], line)
        assert found
        assert "abort" == found.klass
        match = re.search(found.pattern, line)
        assert match
        keys.add(match[found.key])
    assert {"77"} == keys


@pytest.mark.parametrize(
    ("rid", "room"), [("HEALTH_CHECK_1f", 0), ("HEALTH_CHECK_1f", 5), ("canary-7f-000001", 5), ("x", 0)]
)
@pytest.mark.parametrize("reason", ["Aborted by AbortReq.", "Aborted by decode-side abort notification."])
def test_an_aborted_health_check_or_canary_is_no_abort_of_ours(rid: str, room: int, reason: str) -> None:
    found = meaning(PACKS["sglang"], failed(rid, room, reason))
    assert found is None or "abort" != found.klass


def test_every_class_and_role_is_one_the_events_know() -> None:
    for pack in PACKS.values():
        for signature in pack.signatures:
            assert signature.klass in get_args(HitClass)
            assert set(signature.roles) <= set(get_args(Role))


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("0.5.11", "sglang:num_prefill_prealloc_queue_reqs"),
        ("0.5.12.post1", "sglang:num_prefill_bootstrap_queue_reqs"),
        ("0.5.14", "sglang:num_prefill_bootstrap_queue_reqs"),
        ("0.5.23", "sglang:num_prefill_bootstrap_queue_reqs"),
    ],
)
def test_the_bootstrap_queue_has_the_name_of_its_version(version: str, name: str) -> None:
    queue = next(metric for metric in PACKS["sglang"].metrics if metric.name == "prefill_bootstrap_queue")
    assert (name,) == queue.exposed_as(version)
    assert 2 == len(queue.exposed_as(""))


def test_a_reading_tells_the_numbers_of_its_own_lines_and_of_no_others() -> None:
    for pack in PACKS.values():
        for reading in pack.readings:
            assert reading.samples.no_match
            assert reading.note
            for line in reading.samples.match:
                match = re.search(reading.pattern, line)
                assert match, line
                assert [] == [level.group for level in reading.levels if not match[level.group]]
            for line in reading.samples.no_match:
                assert re.search(reading.pattern, line) is None, line


def test_a_reading_names_queues_as_the_metrics_do() -> None:
    for pack in PACKS.values():
        named = {metric.name for metric in pack.metrics}
        levels = [level for reading in pack.readings for level in reading.levels]
        assert [] == [level.metric for level in levels if level.use != "heartbeat" and level.metric not in named]


def test_every_metric_and_timeout_is_documented() -> None:
    for pack in PACKS.values():
        assert [] == [metric.name for metric in pack.metrics if not metric.note]
        assert [] == [
            timeout.name
            for timeout in pack.timeouts
            if not (timeout.source and timeout.note and (timeout.env or "There is no setting" in timeout.note))
        ]


def test_what_frees_a_queue_is_a_timeout_that_some_pack_knows() -> None:
    timeouts = {timeout.name for pack in PACKS.values() for timeout in pack.timeouts}
    freed = {metric.name: metric.freed_by for pack in PACKS.values() for metric in pack.metrics if metric.freed_by}
    assert {"decode_transfer_queue", "decode_prealloc_queue", "worker_inflight"} <= freed.keys()
    assert {*freed.values()} <= timeouts


def test_each_side_has_progress_and_queues_to_look_at() -> None:
    for role in ("prefill", "decode"):
        for use in ("queue", "progress", "aborts"):
            assert [m for m in PACKS["sglang"].metrics if m.use == use and role in m.roles], f"{use} of {role}"


def test_counters_of_aborts_do_not_count_streams_that_were_running() -> None:
    """A killed stream raises num_aborted_requests_total without any abort frame: it must not make a wave landed."""
    counted = {name for m in PACKS["sglang"].metrics if m.use == "aborts" for name in m.exposed_as()}
    assert "sglang:num_aborted_requests_total" not in counted
    assert counted
