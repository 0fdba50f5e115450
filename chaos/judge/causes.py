"""What the logs say about why. A signature explains an outcome; it never makes one (but `damaged`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.judge.questions.damage import is_fatal
from chaos.model.verdict import Cause

if TYPE_CHECKING:
    from chaos.judge.facts import Facts
    from chaos.model.events import LogHit

EXPLAINS = ("fatal", "crash", "traceback", "restart", "timeout", "symptom")
"""Best first. Abort lines say that the abort path works, and benign ones nothing: neither explains anything."""
MOST_SEQS = 12


def causes(facts: Facts) -> tuple[Cause, ...]:
    """One cause per signature: fatal ones first, those with an upstream reference before others, then by time."""
    by_signature: dict[str, list[LogHit]] = {}
    for hit in facts.hits:
        if hit.klass in EXPLAINS:
            by_signature.setdefault(hit.signature, []).append(hit)
    groups = sorted(by_signature.values(), key=lambda hits: _rank(hits[0]))
    return tuple(_cause(facts, hits) for hits in groups)


def _rank(hit: LogHit) -> tuple[bool, bool, int, int, int]:
    return not is_fatal(hit), not hit.upstream, EXPLAINS.index(hit.klass), hit.t_ns, hit.seq


def _cause(facts: Facts, hits: list[LogHit]) -> Cause:
    first = hits[0]
    return Cause(
        signature=first.signature,
        title=first.title or first.signature,
        side=first.side or facts.role(first.node),
        upstream=first.upstream,
        fixed_in=first.fixed_in,
        line=first.line,
        seqs=tuple(sorted({hit.seq for hit in hits if hit.seq > 0})[:MOST_SEQS]),
    )


def side_of(facts: Facts, nodes: frozenset[str]) -> str:
    """Which side the first fatal line on one of these nodes blames; empty when none does."""
    for hit in sorted((hit for hit in facts.hits if is_fatal(hit) and hit.node in nodes), key=_rank):
        side = hit.side or facts.role(hit.node)
        if side:
            return side
    return ""
