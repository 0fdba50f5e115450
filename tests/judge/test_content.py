"""Wrong content: whose text counts always, everything else only where the run showed that it can be counted on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build import GOOD, Play, Reply, plan, play

from chaos.judge import judge
from chaos.model import events as ev
from chaos.model.outcomes import Answer, Outcome

if TYPE_CHECKING:
    from chaos.model.verdict import Finding, Verdict

ECHOED = Reply(after=0.4, content="ok")
LACKING = Reply(after=0.4, content="missing")
FOREIGN = Reply(after=0.4, content="corrupted", whose="agents-s0000003-r00000")
SAME = Reply(after=0.4, digest="aaaa")
OTHER = Reply(after=0.4, digest="bbbb")
WHOLE = Reply(after=0.4, prompt_tokens=30)
SHORT = Reply(after=0.4, prompt_tokens=1)
FULL = Reply(after=0.4, finish="length", prompt_tokens=30)
PAIRS = tuple(
    ev.Path(id=f"prefill-{p}>decode-{d}", kind="direct", nodes=(f"prefill-{p}", f"decode-{d}"))
    for p in (0, 1)
    for d in (0, 1)
)


def run(before: Reply, loaded: Reply, after: Reply, *, mode: ev.ContentMode = "auto", **settings: object) -> Verdict:
    """A wave, with canaries answered in one way before the load, under it, and once after the wave."""
    told = play(plan=plan(content=mode), reply=before, **settings)
    told.reply = loaded
    told.load(6).wave()
    told.reply = after
    told.go(2)
    told.reply = loaded
    return judge(told.recovered().finish())


def found(verdict: Verdict) -> Finding:
    return next(finding for finding in verdict.findings if finding.id == "content-wrong")


def told_of(verdict: Verdict) -> str:
    return " | ".join(evidence.text for evidence in found(verdict).evidence)


@pytest.mark.parametrize("mode", ["echo", "known-answer", "auto"])
@pytest.mark.parametrize("before", [ECHOED, LACKING, SAME])
def test_somebody_elses_text_is_corrupted_whatever_the_target_can_do(before: Reply, mode: ev.ContentMode) -> None:
    verdict = run(before, before, FOREIGN, mode=mode)
    assert Outcome.CORRUPTED == verdict.outcome
    assert "held the text of agents-s0000003-r00000" in told_of(verdict)


def test_the_story_tells_which_answer_and_how_long_after_which_wave() -> None:
    story = told_of(run(ECHOED, ECHOED, FOREIGN))
    assert "2 answers carried wrong content (routed)" in story
    assert "canary-00" in story
    assert "after wave of cycle 1" in story


def test_wrong_text_before_any_fault_is_told_as_such() -> None:
    assert "before any fault" in told_of(run(ECHOED, FOREIGN, ECHOED))


def test_a_target_said_to_echo_is_held_to_it_under_any_load() -> None:
    verdict = run(ECHOED, LACKING, LACKING, mode="echo")
    assert Outcome.CORRUPTED == verdict.outcome
    assert "lacked the codeword" in told_of(verdict)


def test_a_target_said_to_echo_that_does_not_is_no_case_for_healthy() -> None:
    verdict = run(LACKING, LACKING, LACKING, mode="echo")
    assert (Answer.UNKNOWN, Outcome.INCONCLUSIVE) == (found(verdict).answer, verdict.outcome)


def test_found_out_in_the_baseline_a_missing_codeword_counts_only_after_it_was_repeated_under_load() -> None:
    assert Outcome.CORRUPTED == run(ECHOED, ECHOED, LACKING).outcome
    unsteady = run(ECHOED, LACKING, LACKING)
    assert Outcome.HEALTHY == unsteady.outcome
    assert any("not shown to be repeated under load" in text for text in unsteady.not_examined)


def test_a_target_that_repeats_nothing_is_not_called_checked() -> None:
    verdict = run(LACKING, LACKING, LACKING)
    assert (Answer.NOT_APPLICABLE, Outcome.HEALTHY) == (found(verdict).answer, verdict.outcome)
    assert "missing codewords: the target did not repeat them before the load either" in verdict.not_examined


@pytest.mark.parametrize("mode", ["known-answer", "auto"])
def test_another_answer_to_the_same_question_counts_where_it_was_the_same_at_rest_and_under_load(
    mode: ev.ContentMode,
) -> None:
    assert Outcome.CORRUPTED == run(SAME, SAME, OTHER, mode=mode).outcome
    assert Outcome.HEALTHY == run(SAME, SAME, SAME, mode=mode).outcome


@pytest.mark.parametrize("loaded", [OTHER, GOOD])
def test_text_that_changes_with_the_load_or_was_not_asked_for_under_it_is_not_compared(loaded: Reply) -> None:
    """Trap 39: at temperature 0 text changes with the batch size."""
    verdict = run(SAME, loaded, Reply(after=0.4, digest="cccc"), mode="known-answer")
    assert (Answer.NOT_APPLICABLE, Outcome.HEALTHY) == (found(verdict).answer, verdict.outcome)
    assert any(text.startswith("known answers") for text in verdict.not_examined)


def test_an_answer_to_a_prompt_of_one_token_is_corrupted_where_servers_count_prompts() -> None:
    """B75: a prefill that gave up hands over one token, and decode makes something of it."""
    verdict = run(WHOLE, WHOLE, SHORT)
    assert Outcome.CORRUPTED == verdict.outcome
    assert "a prompt of 1 tokens by its own count, where 20 words were sent" in told_of(verdict)


def test_a_count_below_nothing_is_no_evidence_of_a_short_prompt() -> None:
    assert Outcome.HEALTHY == run(WHOLE, WHOLE, Reply(after=0.4, prompt_tokens=-1)).outcome


def test_a_server_that_never_counts_prompts_is_not_held_to_it() -> None:
    assert Outcome.HEALTHY == run(SHORT, SHORT, SHORT).outcome


def test_an_answer_without_a_letter_of_text_counts_where_answers_had_text() -> None:
    """Trap 40: HTTP 200, a finish reason, a token count, and nothing in it. Random weights may always answer so."""
    mute = Reply(after=0.4, mute=True)
    assert Outcome.CORRUPTED == run(GOOD, GOOD, mute).outcome
    assert "not a letter of text" in told_of(run(GOOD, GOOD, mute))
    assert Outcome.HEALTHY == run(mute, mute, mute).outcome


def test_an_answer_that_ended_by_length_too_early_counts_where_answers_had_their_length() -> None:
    """A server that ends answers after a token or two and calls them complete."""
    cut = Reply(after=0.4, tokens=1, finish="length", prompt_tokens=30)
    verdict = run(FULL, FULL, cut)
    assert Outcome.CORRUPTED == verdict.outcome
    assert "had 1 of the 8 tokens that were asked for" in told_of(verdict)


@pytest.mark.parametrize(
    ("loaded", "after"),
    [
        pytest.param(
            Reply(after=0.4, tokens=7, finish="length", prompt_tokens=30),
            Reply(after=0.4, tokens=1, finish="length", prompt_tokens=30),
            id="unsteady",
        ),
        pytest.param(
            Reply(after=0.4, finish="stop", prompt_tokens=30),
            Reply(after=0.4, tokens=1, finish="stop", prompt_tokens=30),
            id="stop",
        ),
    ],
)
def test_an_answer_that_ended_by_itself_or_where_lengths_differ_anyway_is_not_cut(loaded: Reply, after: Reply) -> None:
    assert Outcome.HEALTHY == run(FULL, loaded, after).outcome


@pytest.mark.parametrize(
    ("before", "early", "outcome"),
    [
        pytest.param(10, 6, Outcome.CORRUPTED, id="most"),
        pytest.param(10, 5, Outcome.HEALTHY, id="some"),
        pytest.param(9, 6, Outcome.HEALTHY, id="too-few-before"),
    ],
)
def test_when_most_answers_end_early_by_themselves_that_never_did_before_they_were_cut(before, early, outcome) -> None:
    told = play().load(1)
    user = {"t_ns": 0, "kind": "load", "path": "routed", "group": "agents"}

    def ask(req: str, tokens: int, finish: str) -> None:
        told.tell(ev.RequestStarted(**user, req=req, intended_ns=told.ns(told.now), sent_ns=told.ns(told.now)))
        told.go(1).tell(ev.RequestEnded(**user, req=req, tokens=tokens, finish=finish))

    for number in range(before):
        ask(f"agents-s{number}-r0", 64, "length")
    told.wave().go(10)
    for number in range(10):
        ask(f"agents-s{number}-r1", 3 if number < early else 64, "stop" if number < early else "length")
    assert outcome == judge(told.recovered().finish()).outcome


def test_a_group_may_be_called_what_we_call_our_own() -> None:
    """Its answers are no canaries and no poison, whose other length would hide that theirs are cut."""
    told = play(reply=FULL).load()
    for name in ("canaries", "poison"):
        user = {"t_ns": 0, "kind": "load", "path": "routed", "group": name}
        for number in range(4):
            full = number < 3
            request = {**user, "req": f"{name}-{number}", "tokens": 64 if full else 3}
            told.tell(
                ev.RequestEnded(**request, finish="length", prompt_tokens=20), told.now - 1 if full else told.now + 9
            )
    verdict = judge(told.wave().recovered(20).finish())
    assert "2 answers carried wrong content" in told_of(verdict)


@pytest.mark.parametrize(
    ("counts", "outcome"), [((150, 157), Outcome.CORRUPTED), ((151, 151), Outcome.HEALTHY), (None, Outcome.HEALTHY)]
)
def test_an_answer_may_be_short_where_the_context_window_held_no_more(counts, outcome: Outcome) -> None:
    told = play().load()
    user = {"t_ns": 0, "kind": "load", "path": "routed", "group": "agents"}

    def ask(req: str, tokens: int, prompt_tokens: int | None) -> None:
        told.tell(ev.RequestStarted(**user, req=req, intended_ns=told.ns(told.now), sent_ns=told.ns(told.now)))
        told.go(1).tell(ev.RequestEnded(**user, req=req, tokens=tokens, finish="length", prompt_tokens=prompt_tokens))

    for number in range(3):
        ask(f"agents-s{number}-r0", 64, 20)
    told.wave().go(10)
    for number, prompt_tokens in enumerate(counts or (None, None)):
        ask(f"agents-s9-r{number}", 4, prompt_tokens)
    assert outcome == judge(told.recovered().finish()).outcome


def test_the_node_that_all_wrong_answers_share_is_named() -> None:
    told: Play = (
        play(
            plan=plan(content="echo"),
            paths=PAIRS,
            nodes=("router-0", "prefill-0", "prefill-1", "decode-0", "decode-1"),
            reply=ECHOED,
        )
        .load(4)
        .wave()
    )
    told.replies = {path.id: FOREIGN for path in PAIRS if "decode-1" in path.nodes}
    told.go(3)
    verdict = judge(told.recovered().finish())
    assert Outcome.CORRUPTED == verdict.outcome
    assert "all of them over decode-1" in told_of(verdict)


def test_a_group_whose_answers_were_not_checked_is_listed_as_not_examined() -> None:
    told = play(plan=plan(content="echo", groups=("agents", "users")), reply=ECHOED).load(4)
    for group, content in (("agents", "unchecked"), ("users", "ok")):
        request = {"t_ns": 0, "req": f"{group}-s0-r0", "kind": "load", "path": "routed", "group": group}
        told.tell(ev.RequestStarted(**request, intended_ns=told.ns(told.now)))
        told.tell(ev.RequestEnded(**request, content=content))
    verdict = judge(told.wave().recovered().finish())
    assert ["the content of answers to agents: none was checked (too short for a codeword, or none came)"] == [
        text for text in verdict.not_examined if "content" in text
    ]
