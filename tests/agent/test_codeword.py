"""Codewords: whose they are can be told from an answer alone, and only when they are whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import scripted
from scripted import Connection, Server, make_config

from chaos.agent import prompts
from chaos.agent.codeword import check, codeword, owners, request

if TYPE_CHECKING:
    from collections.abc import Callable

    Start = Callable[..., scripted.Process]

MINE, OTHER = codeword("run", "g0-1-0"), codeword("run", "c-7")


def test_an_answer_with_its_own_codeword_is_right() -> None:
    assert ("ok", "") == check("run", "g0-1-0", f"sure: {MINE} and so on")


def test_an_answer_with_somebody_elses_codeword_is_wrong_even_beside_its_own() -> None:
    assert ("corrupted", "c-7") == check("run", "g0-1-0", f"{MINE} {OTHER}")


def test_a_codeword_that_is_cut_made_up_or_of_another_run_is_nobodys() -> None:
    made_up = "[[secret:g0-2-0-00000000]]"
    texts = [MINE[:-3], made_up, codeword("another", "g0-1-0"), "[[secret:x]]", ""]
    assert [("missing", "")] * 5 == [check("run", "g0-1-0", text) for text in texts]


def test_earlier_rounds_of_the_same_session_are_no_news_but_no_answer_either() -> None:
    earlier = codeword("run", "g0-1-0")
    assert ("missing", "") == check("run", "g0-1-1", earlier, ours="g0-1-")
    assert ("corrupted", "g0-1-0") == check("run", "g0-11-0", earlier, ours="g0-11-")


def test_owners_are_told_in_order_and_once() -> None:
    assert ["c-7", "g0-1-0"] == owners("run", OTHER + MINE + OTHER)


def test_each_round_asks_for_a_codeword_of_its_own_within_the_ordered_length() -> None:
    talk = prompts.Conversation(make_config("http://h", owner="g2", prompt_tokens=300, max_tokens=100), 5)
    asked = json.loads(talk.ask(0))["messages"][-1]["content"]
    assert asked.endswith(request("t", "g2-5-0"))
    assert 270 <= talk.words <= 300
    assert asked.count(" ") + 1 == talk.words
    talk.answered("so it is")
    talk.ask(1)
    assert "g2-5-1" == talk.owner


def test_an_answer_too_short_for_a_codeword_is_not_asked_for_one() -> None:
    talk = prompts.Conversation(make_config("http://h", owner="g2", max_tokens=8), 5)
    assert b"secret" not in talk.ask(0)
    assert "" == talk.owner


class Scribe:
    """Answers with the words of its choice."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self.answer = answer

    async def __call__(self, connection: Connection) -> None:
        prompt = connection.body["messages"][-1]["content"]
        text = self.answer(prompt)
        events = [
            {"choices": [{"index": 0, "delta": {"content": part}, "finish_reason": None}]}
            for part in ("a", text[:9], text[9:])
        ]
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "usage": None}
        usage = {"choices": [], "usage": {"prompt_tokens": 41, "completion_tokens": 3}}
        lines = [json.dumps(event, separators=(",", ":")).encode() for event in (*events, end, usage)]
        await connection.send(scripted.stream_response([*lines, b"[DONE]"]))


def _last_word(prompt: str) -> str:
    return prompt.rsplit(maxsplit=1)[-1]


async def _ends(start: Start, answer: Callable[[str], str], **values: object) -> list[dict[str, object]]:
    async with (
        Server(Scribe(answer)) as server,
        start(server.url, sessions=2, rounds=2, max_tokens=64, **values) as agent,
    ):
        assert 0 == await agent.ended()
    return agent.of("end")


async def test_the_agent_tells_right_answers_and_how_long_the_prompt_was_by_the_servers_count(start: Start) -> None:
    ends = await _ends(start, _last_word, owner="g0")
    assert [("ok", "", 41)] * 4 == [(e["content"], e["whose"], e["prompt_tokens"]) for e in ends]


async def test_the_agent_tells_whose_text_an_answer_holds(start: Start) -> None:
    ends = await _ends(start, lambda _: codeword("t", "c-3"), owner="g0")
    assert {("corrupted", "c-3", "")} == {(e["content"], e["whose"], e["error"]) for e in ends}


async def test_text_of_somebody_else_is_not_taken_into_the_context(start: Start) -> None:
    foreign = codeword("t", "c-3")
    async with (
        Server(Scribe(lambda _: foreign)) as server,
        start(server.url, rounds=2, max_tokens=64, owner="g0") as agent,
    ):
        assert 0 == await agent.ended()
    first, second = [connection.body["messages"] for connection in server.connections]
    assert (1, 1) == (len(first), len(second))
    assert foreign not in str(second)


async def test_the_agent_tells_what_is_missing_and_checks_nothing_where_nothing_was_asked(start: Start) -> None:
    assert {"missing"} == {e["content"] for e in await _ends(start, lambda _: "something else", owner="g0")}
    assert {"unchecked"} == {e["content"] for e in await _ends(start, _last_word)}
