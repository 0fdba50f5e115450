"""What answers could be held to in this run, and which of them were wrong.

Somebody else's codeword is wrong wherever it turns up. Everything else counts only where the run itself showed that
it can be counted on without a fault: a missing codeword where answers of the same kind had it, another text where the
same question got the same answer, a short prompt where the servers counted prompts as they were sent, an answer that
was cut where such prompts got as many tokens as were asked for, no text at all where there was some. A target whose
owner says that it repeats codewords is held to that at any load; else what counts are answers from before the first
fault, under the same load.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.judge.units import count
from chaos.judge.windows import first_fault_ns, load_start

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chaos.judge.facts import Answered, Facts

ENOUGH_RIGHT = 3
"""Answers without a fault that must all have been right before a wrong one can be held against a target."""
CANARIES, POISON = "our canaries", "our poison"
"""What requests that belong to no group of the load are called; no group's name has a space in it."""
_OURS = {"canary": CANARIES, "poison": POISON}
SHORT = 0.5
"""A prompt is short when the servers counted less than this share of the tokens per word that they counted before."""

ENOUGH_FULL = 10
"""Answers without a fault that must all have been of full length before it means anything that others end early."""
EARLY, MOST = 0.5, 0.5
"""An answer ended early with less than this share of the length; it means something when more than this share did."""
FULL = "length"
"""The finish reason of an answer that has as many tokens as were asked for."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """One wrong answer and what is wrong with it."""

    answer: Answered
    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """The answers of a run as far as their content could be checked."""

    checked: tuple[Answered, ...]
    wrong: tuple[Wrong, ...]
    broken_promise: tuple[Answered, ...]  # baseline answers without a codeword, though the target is said to repeat it
    uncounted: tuple[str, ...]  # checks that nothing could be concluded from, with the reason
    comparable: bool  # whether anything but somebody else's text could have been noticed


def content(facts: Facts) -> Content:
    """Look at every answer whose content was checked."""
    answers = sorted(facts.answers, key=lambda a: (a.ended_ns, a.req))
    echoes = [a for a in answers if a.content != "unchecked"]
    known = [a for a in answers if a.digest]
    counted = [a for a in answers if a.words and a.prompt_tokens is not None and a.ok]
    wrong = [Wrong(a, f"held the text of {a.whose or 'another request'}") for a in echoes if a.content == "corrupted"]
    uncounted: list[str] = []
    promise: list[Answered] = []
    if echoes:
        lacking, promise = _missing(facts, echoes, uncounted)
        wrong += [Wrong(a, "lacked the codeword that its prompt asked for") for a in lacking]
    other = _other(facts, known, uncounted) if known else None
    wrong += [Wrong(a, "differed from the answer it always got before") for a in other or ()]
    wrong += _short(facts, counted)
    wrong += _cut(facts, [a for a in answers if a.ok and a.finish == FULL and a.prompt_tokens is not None])
    wrong += _ended_early(facts, [a for a in answers if a.ok and a.finish])
    wrong += _mute(facts, [a for a in answers if a.ok])
    by_answer = {w.answer.req: w for w in reversed(wrong)}  # the gravest of an answer comes first
    told = sorted(by_answer.values(), key=lambda w: (w.answer.ended_ns, w.answer.req))
    comparable = other is not None or any(a.content == "ok" for a in echoes)
    return Content((*echoes, *known), tuple(told), tuple(promise), tuple(uncounted), comparable)


def _missing(facts: Facts, echoes: list[Answered], uncounted: list[str]) -> tuple[list[Answered], list[Answered]]:
    """Answers whose codeword is missing and counts; and those of the baseline that break the owner's word."""
    if facts.plan.content == "known-answer":
        return [], []
    promised = facts.plan.content == "echo"
    before = _before(echoes, load_start(facts))
    lacking = [a for a in before if a.content == "missing"]
    if promised:
        late = [a for a in echoes if a.content == "missing" and a not in before]
        if len(before) >= ENOUGH_RIGHT and not lacking:
            return late, []
        if len(before) < ENOUGH_RIGHT:
            uncounted.append("missing codewords: too few answers before the load to know that they are repeated")
        return [], lacking
    if lacking or len(before) < ENOUGH_RIGHT:
        uncounted.append("missing codewords: the target did not repeat them before the load either")
        return [], []
    found = []
    for kind, of_kind in _by_kind(echoes).items():
        loaded = _under_load(facts, of_kind)
        if len(loaded) >= ENOUGH_RIGHT and all(a.content == "ok" for a in loaded):
            found += [a for a in of_kind if a.content == "missing"]
        else:
            uncounted.append(f"missing codewords of {kind}: not shown to be repeated under load without a fault")
    return found, []


def _other(facts: Facts, known: list[Answered], uncounted: list[str]) -> list[Answered] | None:
    """Answers to the question that is always the same which are not the answer it had, at rest and under load.

    None when they cannot be compared.
    """
    at_rest, loaded = _before(known, load_start(facts)), _under_load(facts, known)
    same = {a.digest for a in (*at_rest, *loaded)}
    if len(loaded) < ENOUGH_RIGHT or len(at_rest) < ENOUGH_RIGHT:
        uncounted.append(f"known answers: fewer than {ENOUGH_RIGHT} at rest and under load before the first fault")
        return None
    if len(same) > 1:
        uncounted.append("known answers: they differ without a fault, so they could not be compared")
        return None
    return [a for a in known if a.digest not in same]


def _short(facts: Facts, counted: list[Answered]) -> list[Wrong]:
    """Answers to a prompt of which the servers counted far fewer tokens than they count of such prompts."""
    found = []
    kinds = _by_kind(counted)
    for kind, of_kind in kinds.items():
        # What we send to poison is a fault from the start; it is held to what canaries show.
        usual = kinds.get(CANARIES, []) if kind == POISON else of_kind
        fine = [_tokens_per_word(a) for a in _without_fault(facts, usual)]
        if len(fine) < ENOUGH_RIGHT:
            continue
        found += [
            Wrong(a, f"answered a prompt of {a.prompt_tokens} tokens by its own count, where {a.words} words were sent")
            for a in of_kind
            if _tokens_per_word(a) < SHORT * min(fine)
        ]
    return found


def _cut(facts: Facts, answers: list[Answered]) -> list[Wrong]:
    """Answers that ended by length before they had the length that all of their kind had without a fault.

    Where the context window is full that is right; it was not where it held more for another request.
    """
    found = []
    window = max(map(_context, answers), default=0)
    for of_kind in _by_kind(answers).values():
        lengths = [a.tokens for a in _without_fault(facts, of_kind)]
        full = max(lengths, default=0)
        if len(lengths) < ENOUGH_RIGHT or min(lengths) < full:
            continue
        text = f"of the {count(full, 'token')} that were asked for, and was called complete (finish reason {FULL})"
        cut = [a for a in of_kind if a.tokens < full and _context(a) < window]
        found += [Wrong(a, f"had {a.tokens} {text}") for a in cut]
    return found


def _ended_early(facts: Facts, answers: list[Answered]) -> list[Wrong]:
    """Answers that end by themselves, after less than half, where every one of their kind had its full length before.

    Some may, as a model pleases; when most of those since do, that is no model's pleasure.
    """
    found = []
    for of_kind in _by_kind(answers).values():
        fine = _without_fault(facts, of_kind)
        since = [a for a in of_kind if a not in fine]
        full = min((a.tokens for a in fine), default=0)
        early = [a for a in since if a.finish != FULL and a.tokens < EARLY * full]
        if len(fine) >= ENOUGH_FULL and all(a.finish == FULL for a in fine) and len(early) > MOST * len(since):
            text = f"of the {count(full, 'token')} that all had before, as most since"
            found += [Wrong(a, f"ended by itself ({a.finish}) after {a.tokens} {text}") for a in early]
    return found


def _context(answer: Answered) -> int:
    """Tokens that a request came to fill, by the server's own count."""
    return (answer.prompt_tokens or 0) + answer.tokens


def _mute(facts: Facts, answers: list[Answered]) -> list[Wrong]:
    """Answers with tokens by the server's count and without a letter of text, where answers of the kind had some."""
    found = []
    for of_kind in _by_kind(answers).values():
        fine = _without_fault(facts, of_kind)
        if len(fine) >= ENOUGH_RIGHT and not any(a.mute for a in fine):
            found += [Wrong(a, "had tokens by the server's count and not a letter of text") for a in of_kind if a.mute]
    return found


def _tokens_per_word(answer: Answered) -> float:
    return (answer.prompt_tokens or 0) / answer.words


def _before(answers: Iterable[Answered], then_ns: int | None) -> list[Answered]:
    return [a for a in answers if then_ns is None or a.ended_ns <= then_ns]


def _under_load(facts: Facts, answers: list[Answered]) -> list[Answered]:
    """Those that were asked and answered under load without a fault."""
    loaded_ns = load_start(facts)
    return [] if loaded_ns is None else _without_fault(facts, [a for a in answers if a.begun_ns >= loaded_ns])


def _without_fault(facts: Facts, answers: list[Answered]) -> list[Answered]:
    """Those from before the first fault; of a run that breaks nothing the first half, which the rest is held to."""
    first_ns = first_fault_ns(facts)
    return answers[: len(answers) // 2] if first_ns is None else _before(answers, first_ns)


def _by_kind(answers: Iterable[Answered]) -> dict[str, list[Answered]]:
    """Canaries, and the requests of each group."""
    found: dict[str, list[Answered]] = defaultdict(list)
    for answer in answers:
        found[_OURS.get(answer.kind, answer.group)].append(answer)
    return dict(sorted(found.items()))


def unexamined_content(facts: Facts) -> list[str]:
    """What of the content of answers was not examined, for the verdict's list."""
    seen = content(facts)
    if not seen.checked:
        return ["the content of answers: not checked"]
    told = list(seen.uncounted)
    checked = {a.group for a in seen.checked if a.content != "unchecked"}
    blind = [group for group in facts.plan.groups if group not in checked and _has(facts, group)]
    return told + [
        f"the content of answers to {group}: none was checked (too short for a codeword, or none came)"
        for group in blind
    ]


def _has(facts: Facts, group: str) -> bool:
    return any(of == group for _, of in facts.group_began)
