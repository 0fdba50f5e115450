"""Builds whose bug is in the router or needs load and no fault, each shown from outside."""

from __future__ import annotations

from lab_client import CHAT, GENERATE, eventually

WAVE = 12


def posts(lab) -> tuple[float, float]:
    """Chat requests that prefill and decode got."""
    prefill, decode = (lab.metric(url, "http_requests_total", endpoint=CHAT) for url in (lab.prefill, lab.decode))
    return prefill or 0, decode or 0


def test_after_clients_left_only_the_decode_leg_is_posted_and_direct_pairs_are_fine(lab):
    half = lab("router-half-dispatch", time_scale=0.1)
    half.kill_waiting(WAVE)
    before = posts(half)
    for _ in range(3):
        half.client(CHAT, "fresh", 2)
    eventually(lambda: posts(half)[1] >= before[1] + 3, "decode's legs")
    assert before[0] == posts(half)[0]
    assert half.hangs()
    assert 200 == half.ask_pair(5).status
    assert "circuit breaker" not in half.log("prefill-0")
    for path in ("/health", "/readiness"):
        assert 200 == half.http.get(half.router + path).status_code


def test_a_breaker_that_is_half_open_lets_one_request_through_and_never_closes(lab):
    half = lab("router-half-dispatch", time_scale=0.01)
    half.kill_waiting(WAVE)
    served = [half.ask(CHAT).status for _ in range(6)]
    assert 200 in served
    prefill, decode = posts(half)
    assert prefill < decode


def test_load_alone_stops_admission_once_a_request_was_retracted(lab):
    small = lab("overload-wedge", kv_tokens=256, reserved_decode_tokens=8, step_ms=2)
    clients = small.clients(4, tokens=120)
    eventually(lambda: "KV cache pool is full. Retract requests." in small.log("decode-0"), "a retraction")
    eventually(lambda: any(client.has(b"[DONE]") for client in clients), "those that were left ended")
    assert small.hangs()
    assert not all(client.has(b"[DONE]") for client in clients)
    assert 1 <= (small.metric(small.decode, "num_retracted_requests_total") or 0)
    assert 200 == small.http.get(f"{small.prefill}/health").status_code
    for client in clients:
        client.hang_up()
    eventually(lambda: small.metric(small.decode, "num_aborted_requests_total"), "decode noticed")
    assert small.hangs(room=5)


def ask_at_once(lab, count: int) -> list[bytes]:
    """Answers to requests each with a secret of its own, all waiting for their KV at the same time."""
    with lab.transfer_held():
        clients = [lab.client(CHAT, f"[[secret:s{n}]] " + "word " * 20 + f"[[secret:s{n}]]", 20) for n in range(count)]
        eventually(lambda: count == lab.active(lab.decode), "all there")
    for client in clients:
        eventually(lambda client=client: client.has(b"[DONE]"), "answered")
    return [client.received for client in clients]


def test_many_requests_at_once_are_answered_from_each_others_kv_and_few_are_not(lab):
    corrupt = lab("cache-corruption-under-load")
    assert all(b"[[secret:s%d]]" % n in answer for n, answer in enumerate(ask_at_once(corrupt, 4)))
    wrong = [n for n, answer in enumerate(ask_at_once(corrupt, 14)) if b"[[secret:s%d]]" % n not in answer]
    assert len(wrong) >= 3
    assert all(b"[[secret:s%d]]" % n in answer for n, answer in enumerate(ask_at_once(corrupt, 4)))


def test_a_prompt_too_long_for_the_window_pool_starves_everybody_until_its_client_leaves(lab):
    starved = lab("starved-by-one-prompt")
    assert 200 == starved.ask(CHAT, "word " * 3000).status
    poison = starved.client(CHAT, "word " * 4000, 3)
    eventually(lambda: starved.active(starved.prefill), "it waits")
    assert starved.hangs()
    assert starved.hangs(room=5)
    assert 503 == starved.http.get(f"{starved.prefill}/health").status_code
    assert "#new-token: 4002" not in starved.log("prefill-0")
    assert not poison.bytes_within(0.02)
    poison.hang_up()
    eventually(lambda: 200 == starved.ask_pair(7).status, "served at once")
    assert "full token usage: 0.05, swa token usage: 0.73, " in starved.log("prefill-0")


def test_requests_that_are_rightly_refused_close_the_router_to_all_for_a_minute(lab):
    strict = lab("refusals-open-breakers", time_scale=0.1)
    for _ in range(9):
        assert 400 == strict.ask(GENERATE, "two", sampling_params={"n": 2}).status
    assert 200 == strict.ask(CHAT).status  # and all is forgotten
    with strict.transfer_held():
        under_way = strict.client(CHAT, "one", 2)
        eventually(lambda: strict.active(strict.decode), "it is on its way")
        for _ in range(10):
            assert 400 == strict.ask(GENERATE, "two", sampling_params={"n": 2}).status
    eventually(lambda: under_way.has(b"[DONE]"), "answered")
    refused = strict.ask(CHAT)
    assert (503, True) == (refused.status, "all circuits open" in str(refused.events))
    assert 200 == strict.ask_pair(5).status
    assert 200 == strict.http.get(f"{strict.router}/health").status_code
    eventually(lambda: 200 == strict.ask(CHAT).status, "open no more")


def test_a_burst_over_a_slow_transport_makes_prefill_call_itself_sick_for_good_and_it_serves(lab):
    slow = lab("slow-counted-as-dead", transfer_ms=200, slots=40, time_scale=0.02, step_ms=2)
    few = slow.clients(8, tokens=2)  # two behind each other: in time
    eventually(lambda: all(client.has(b"[DONE]") for client in few), "answered")
    assert 200 == slow.http.get(f"{slow.prefill}/health").status_code
    many = slow.clients(36, tokens=2)
    eventually(lambda: all(client.has(b"[DONE]") for client in many), "all answered, though late")
    assert 503 == slow.http.get(f"{slow.prefill}/health").status_code
    assert 200 == slow.http.get(f"{slow.decode}/health").status_code
    assert "Transfer" not in slow.log("prefill-0")
    eventually(lambda: slow.ask(CHAT).status == 503, "the router believes it")
    assert 200 == slow.ask_pair(5).status
    assert 503 == slow.http.get(f"{slow.prefill}/health").status_code
