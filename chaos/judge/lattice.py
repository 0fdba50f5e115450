"""From findings to one outcome: the worst sound one; else doubt; only then health."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.model.outcomes import Answer, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.model.verdict import Finding


def decide(findings: Sequence[Finding]) -> Outcome:
    """The outcome that the findings make together. Equal ranks go to the one that was asked first."""
    sound = [finding.outcome for finding in findings if finding.outcome is not None]
    if sound:
        return min(sound, key=lambda outcome: outcome.rank)
    if not findings or any(finding.required and finding.answer is Answer.UNKNOWN for finding in findings):
        return Outcome.INCONCLUSIVE
    return Outcome.HEALTHY
