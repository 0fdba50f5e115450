"""What clients get from a lab: the three APIs, streamed and not, and each API's own way of failing."""

from __future__ import annotations

import json

import pytest
from lab_client import CHAT, COMPLETIONS, FATAL, GENERATE, body_for, eventually, read_answer

from chaos.lab.sim import kv

ECHOED = "[[secret:Qx7-19]]"


def text_after(prompt: str, tokens: int) -> str:
    """What the sim generates, by the definition of its KV."""
    continuation = kv.Continuation.of(kv.make_kv(kv.tokenize(prompt)))
    return "".join(continuation.token(index) for index in range(tokens))


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", [GENERATE, COMPLETIONS])
def test_a_lone_request_is_answered_with_the_text_that_follows_from_its_kv(calm, path, stream):
    prompt = f"tell me {ECHOED} and more"
    answer = calm.ask(path, prompt, tokens=5, stream=stream)
    assert text_after(prompt, 5) == answer.text
    assert answer.text.startswith(ECHOED)
    assert (200, "length", stream) == (answer.status, answer.finish, answer.done)


@pytest.mark.parametrize("stream", [True, False])
def test_a_chat_is_answered_with_the_last_secret_of_its_messages(calm, stream):
    messages = [
        {"role": "user", "content": "first [[secret:old]]"},
        {"role": "assistant", "content": "[[secret:old]] words"},
        {"role": "user", "content": f"then {ECHOED}"},
    ]
    usage = {"stream_options": {"include_usage": True}}
    answer = calm.ask(CHAT, tokens=4, stream=stream, messages=messages, **usage)
    assert answer.text.startswith(ECHOED)
    assert "old" not in answer.text
    assert (200, "length", 4, stream) == (answer.status, answer.finish, answer.tokens, answer.done)


def test_a_native_stream_repeats_the_text_so_far_and_counts_its_tokens(calm):
    answer = calm.ask(GENERATE, "count", tokens=3, stream=True)
    assert [1, 2, 3] == [event["meta_info"]["completion_tokens"] for event in answer.events]
    assert [None, None, {"type": "length", "length": 3}] == [
        event["meta_info"]["finish_reason"] for event in answer.events
    ]
    for shorter, longer in zip(answer.events, answer.events[1:], strict=False):
        assert longer["text"].startswith(shorter["text"])


def test_a_different_prompt_gives_a_different_text(calm):
    assert calm.ask(GENERATE, "one prompt", tokens=8).text != calm.ask(GENERATE, "one Prompt", tokens=8).text


def test_a_pair_can_be_asked_without_the_router(calm):
    pair = {"bootstrap_host": "127.0.0.1", "bootstrap_port": calm.bootstrap_port, "bootstrap_room": 77}
    prefill = calm.client(GENERATE, "direct", 3, stream=False, url=calm.prefill, **pair)
    reply = calm.http.post(calm.decode + GENERATE, json=body_for(GENERATE, "direct", 3, stream=False, **pair))
    assert text_after("direct", 3) == read_answer(GENERATE, reply).text
    eventually(lambda: prefill.has(b'"completion_tokens": 1'), "prefill answered with one token")


def test_a_request_without_a_room_is_refused_and_logged(calm):
    reply = calm.http.post(calm.prefill + GENERATE, json={"text": "x", "rid": "lost"})
    message = "Invalid request: Disaggregated request received without bootstrap room id. req.rid='lost'"
    assert (400, message) == (reply.status_code, reply.json()["message"])
    assert message in calm.log("prefill-0")


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"text": ["a", "b"], "bootstrap_room": 1}',
        b'{"text": "", "bootstrap_room": 1}',
        b'{"text": "x", "bootstrap_room": 1, "sampling_params": {"max_new_tokens": "many"}}',
        b'{"text": "x", "bootstrap_room": 1, "sampling_params": {"n": 2}}',
    ],
)
def test_a_bad_body_is_refused_with_400(calm, body):
    reply = calm.http.post(calm.decode + GENERATE, content=body)
    assert (400, "error") == (reply.status_code, reply.json()["object"])


def test_a_prompt_over_the_context_length_is_refused_through_the_router_too(calm):
    answer = calm.ask(GENERATE, "word " * 20_000)
    assert 400 == answer.status
    message = "The input (20000 tokens) is longer than the model's context length (20000 tokens)."
    assert message == answer.events[0]["message"]


def test_an_openai_stream_sends_no_headers_before_its_first_token_but_a_native_one_does(calm):
    with calm.transfer_held():
        chat = calm.client(CHAT, "held", 3)
        native = calm.client(GENERATE, "held", 3)
        eventually(lambda: calm.active(calm.prefill) >= 2 and calm.active(calm.decode) >= 2, "both dispatched")
        pair = {"bootstrap_host": "127.0.0.1", "bootstrap_port": calm.bootstrap_port, "bootstrap_room": 78}
        direct = calm.client(GENERATE, "held", 3, url=calm.decode, **pair)
        assert eventually(lambda: direct.has(b"200 OK"), "headers of a native stream from the engine itself")
        assert b"data:" not in direct.received
        assert b"" == chat.bytes_within(0.05)
        # the router waits for the prefill's whole body before it answers at all
        assert b"" == native.bytes_within(0.05)
        direct.hang_up()
    assert eventually(lambda: chat.has(b"[DONE]"), "the chat stream ends")
    assert eventually(lambda: native.has(b"[DONE]"), "the native stream ends")
    calm.until_idle()


def test_a_transfer_that_never_comes_fails_after_the_waiting_timeout_in_each_apis_own_way(lab):
    # every request's own timeout sends an ABORT, so this alone is enough to end a vulnerable prefill's control thread
    wedged = lab("nixl-abort-unhandled", time_scale=0.01)
    with wedged.transfer_held():
        asked = {}
        for room, (path, stream) in enumerate(((COMPLETIONS, False), (GENERATE, True), (CHAT, True))):
            pair = {"bootstrap_host": "127.0.0.1", "bootstrap_port": wedged.bootstrap_port, "bootstrap_room": room}
            wedged.client(path, "stuck", 3, stream=stream, url=wedged.prefill, **pair)
            asked[room] = wedged.client(path, "stuck", 3, stream=stream, url=wedged.decode, **pair)
        reason = b"in KVPoll.WaitingForInput"
        for client in asked.values():
            assert eventually(lambda client=client: client.has(reason), "the waiting timeout")
    whole, native, chat = (asked[room].received for room in range(3))
    assert whole.startswith(b"HTTP/1.1 500")
    assert json.loads(whole.rpartition(b"\r\n\r\n")[2])["object"] == "error"
    assert native.startswith(b"HTTP/1.1 200")
    assert b'"finish_reason":{"type":"abort"' in native
    assert b'"status_code":500' in native
    assert chat.startswith(b"HTTP/1.1 200")
    assert b'data: {"error":{"object":"error"' in chat
    log = wedged.log("decode-0")
    assert 1 == log.count("Some requests fail to receive KV Cache transfer done signal after bootstrapping.")
    assert 3 == log.count("Decode transfer failed for request rank=0 decode_req.req.rid='")
    eventually(lambda: FATAL.search(wedged.log("prefill-0")), "the timeout's own ABORT ended the control thread")
