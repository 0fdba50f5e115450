"""Administration and information endpoints of a node."""

from __future__ import annotations

import re

from lab_client import CHAT, GENERATE, eventually


def test_abort_request_matches_its_rid_as_a_prefix(calm):
    node = calm
    clients = {rid: node.client(CHAT, rid, 3000, rid=rid) for rid in ("job-1", "job-10", "job-2")}
    for client in clients.values():
        eventually(lambda client=client: client.has(b"data: "), "streaming")
    assert (200, b"") == ((reply := abort(node, rid="job-1")).status_code, reply.content)
    for rid in ("job-1", "job-10"):
        eventually(lambda rid=rid: clients[rid].has(b'"finish_reason":"abort"'), f"{rid} was aborted")
    assert not clients["job-2"].has(b"[DONE]")
    abort(node, abort_all=True)
    eventually(lambda: clients["job-2"].has(b'"finish_reason":"abort"'), "all were aborted")


def abort(node, **body: object):
    return node.http.post(f"{node.decode}/abort_request", json=body)


def test_abort_request_is_always_200(calm):
    assert [200, 200] == [abort(calm, rid="unknown").status_code, abort(calm, rid="").status_code]
    assert "Ignore abort_request with empty rid and abort_all=False" in calm.log("decode-0")


def test_flush_cache_is_refused_while_anything_runs(calm):
    calm.until_idle()
    client = calm.client(CHAT, "hello", 5000)
    eventually(lambda: client.has(b"data: "), "streaming")
    reply = calm.http.post(f"{calm.decode}/flush_cache")
    assert (400, "Flush cache failed.\n") == (reply.status_code, reply.text)
    assert 400 == calm.http.get(f"{calm.decode}/flush_cache?timeout=0.05").status_code
    client.hang_up()
    assert 200 == calm.http.post(f"{calm.decode}/flush_cache?timeout=20").status_code
    assert "Cache not flushed because there are pending requests. #queue-req: 0, #running-req: 1" in calm.log(
        "decode-0"
    )


def test_server_info_tells_version_and_role(calm):
    for url, role in ((calm.prefill, "prefill"), (calm.decode, "decode")):
        info = calm.http.get(f"{url}/server_info").json()
        assert ("0.5.16", role) == (info["version"], info["disaggregation_mode"])
    assert calm.http.get(f"{calm.prefill}/server_info").json()["disaggregation_bootstrap_port"] == calm.bootstrap_port


def test_the_router_answers_information_and_health(calm):
    assert ["sim-llm"] == [card["id"] for card in calm.http.get(f"{calm.router}/v1/models").json()["data"]]
    for path in ("/health", "/liveness", "/readiness"):
        assert 200 == calm.http.get(calm.router + path).status_code
    passed = f"Health generate passed on selected pair: prefill={calm.prefill}, decode={calm.decode}"
    assert passed == calm.http.get(f"{calm.router}/health_generate").text
    workers = calm.http.get(f"{calm.router}/workers").json()["workers"]
    assert [("prefill", True), ("decode", True)] == [(w["worker_type"], w["is_healthy"]) for w in workers]
    assert 422 == calm.http.post(calm.router + GENERATE, json={"text": ["a", "b"]}).status_code


def test_a_gate_that_does_not_exist_is_refused(calm):
    assert 400 == calm.http.post(f"{calm.decode}/_sim/gates", json={"prefill": "hold"}).status_code
    assert 400 == calm.http.post(f"{calm.prefill}/_sim/gates", json={"prefill": "shut"}).status_code
    assert {"prefill": "open", "transfer": "open"} == calm.http.get(f"{calm.prefill}/_sim/gates").json()["gates"]
    assert "gates" not in calm.log("prefill-0")


def test_the_prefill_gate_holds_users_requests_and_lets_health_checks_pass(calm):
    calm.gates(calm.prefill, prefill="hold")
    client = calm.client(CHAT, "held", 2)
    eventually(lambda: calm.active(calm.prefill), "dispatched")
    assert 200 == calm.http.get(f"{calm.prefill}/health").status_code
    assert b"" == client.bytes_within(0.05)
    calm.gates(calm.prefill, prefill="open")
    assert eventually(lambda: client.has(b"[DONE]"), "let through")


def test_decodes_own_transfer_gate_keeps_kv_that_arrived_from_being_used(calm):
    calm.gates(calm.decode, transfer="hold")
    client = calm.client(CHAT, "held", 2)
    eventually(lambda: not calm.active(calm.prefill) and calm.active(calm.decode), "prefill is done with it")
    assert b"" == client.bytes_within(0.05)
    calm.gates(calm.decode, transfer="open")
    assert eventually(lambda: client.has(b"[DONE]"), "let through")


def test_status_and_access_lines_look_like_the_engines(calm):
    node = calm
    assert 200 == node.ask(CHAT, tokens=90).status
    stamp = r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] "
    prefill = stamp + (
        r"Prefill batch, #new-seq: 1, #new-token: \d+, #cached-token: 0, token usage: 0\.\d\d, #running-req: \d+, "
        r"#queue-req: 0, #pending-token: 0, #bootstrap-req: 0, #inflight-req: 0, cuda graph: False, "
        r"input throughput \(token/s\): \d+\.\d\d$"
    )
    decode = stamp + (
        r"Decode batch, #running-req: 1, #token: \d+, token usage: 0\.\d\d, pre-allocated usage: 0\.\d\d, "
        r"#prealloc-req: 0, #transfer-req: 0, #retracted-req: 0, cuda graph: True, "
        r"gen throughput \(token/s\): \d+\.\d\d, #queue-req: 0$"
    )
    access = stamp + r'INFO:     127\.0\.0\.1:\d+ - "POST /v1/chat/completions HTTP/1\.1" 200 OK$'
    for name, pattern in (("prefill-0", prefill), ("decode-0", decode), ("prefill-0", access), ("decode-0", access)):
        assert re.search(pattern, node.log(name), re.MULTILINE), pattern
    for name in ("prefill-0", "decode-0"):
        assert "The server is fired up and ready to roll!" in node.log(name)


def test_a_full_kv_pool_retracts_requests_and_finishes_them_all(lab):
    node = lab(kv_tokens=256, reserved_decode_tokens=8, step_ms=2)
    clients = node.clients(4, tokens=120)
    for client in clients:
        eventually(lambda client=client: client.has(b"[DONE]"), "finished")
        assert b'"finish_reason":"length"' in client.received
        assert 120 == client.received.count(b'"content":" ')
    assert "KV cache pool is full. Retract requests. #retracted_reqs: " in node.log("decode-0")
    assert node.metric(node.decode, "num_retracted_requests_total") >= 1
    node.until_idle()
