"""What a question gives back: an answer, its evidence, and what it means for the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.model.outcomes import Answer, Outcome
from chaos.model.verdict import Evidence, Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from chaos.judge.case import Case

MOST_SEQS = 12
"""Events cited per piece of evidence: the first and the last of them tell the story."""
IMPORTED = "imported: only a run of ours can answer this"


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to one question."""

    answer: Answer
    evidence: tuple[Evidence, ...] = ()
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One question of the judge. `required`: unknown here forbids `healthy`.

    `live_only`: it is about our own run, so it does not arise for evidence that people have collected.
    """

    id: str
    text: str
    ask: Callable[[Case], Answered]
    required: bool = True
    live_only: bool = False

    def finding(self, case: Case) -> Finding:
        """Ask it."""
        got = not_applicable(fact(IMPORTED)) if self.live_only and case.facts.imported else self.ask(case)
        return Finding(
            id=self.id,
            question=self.text,
            answer=got.answer,
            evidence=got.evidence,
            outcome=got.outcome,
            required=self.required,
        )


def fact(text: str, seqs: Iterable[int] = ()) -> Evidence:
    """One fact with the events that show it."""
    numbers = sorted({seq for seq in seqs if seq > 0})
    if len(numbers) > MOST_SEQS:
        numbers = numbers[: MOST_SEQS // 2] + numbers[-MOST_SEQS // 2 :]
    return Evidence(text=text, seqs=tuple(numbers))


def yes(*evidence: Evidence, outcome: Outcome | None = None) -> Answered:
    """Yes."""
    return Answered(Answer.YES, evidence, outcome)


def no(*evidence: Evidence, outcome: Outcome | None = None) -> Answered:
    """No."""
    return Answered(Answer.NO, evidence, outcome)


def unknown(*evidence: Evidence) -> Answered:
    """The evidence does not tell."""
    return Answered(Answer.UNKNOWN, evidence)


def not_applicable(*evidence: Evidence) -> Answered:
    """The question does not arise."""
    return Answered(Answer.NOT_APPLICABLE, evidence)
