"""What a queue keeps of the requests that a fault left stuck, where we hung up on open requests in the teardown.

A request that never had a token is stuck when it was under way as the last fault hit, or went where we left nobody to
serve it, or waited for longer than the engine's own timeouts. The other side rightly keeps its place for as long as
somebody waits for it; when we leave at last, as its user would have, the place must go. What was held at every reading
before we left and at every reading since is kept for good, and our leaving did not bring it there. Of a request that
was alive when we left nobody can tell.

Fresh requests of ours pass through the queues meanwhile, as in the baseline, so the lowest levels of both are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.judge.canaries import Fate, look
from chaos.judge.deeds import hung_up_ns
from chaos.judge.units import ns
from chaos.judge.windows import in_vain_s

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from chaos.judge.facts import Facts, Reading
    from chaos.model import events as ev


def hung_up_early_ns(facts: Facts) -> int | None:
    """When we first hung up on an open request before all floors were read; None when we never had to."""
    cut_ns, end_ns = hung_up_ns(facts), facts.phase_start("last-canaries", last=True)
    return None if cut_ns is None or (end_ns is not None and cut_ns >= end_ns) else cut_ns


def kept(
    facts: Facts, node: str, baseline: Sequence[Reading], since: Sequence[Reading], *, lag_ns: int, ours: int
) -> float:
    """By how much a queue was above its level of the baseline from before we hung up on anybody until the end.

    `since` is read from when all that the fault broke could have been freed. Zero where too little was read. While
    requests of ours are still open (`ours`) a server is not wholly idle, and may leave a gauge as canaries left it.
    """
    cut_ns = hung_up_early_ns(facts)
    if cut_ns is None or not baseline:
        return 0.0
    before = [r.value for r in since if r.t_ns < cut_ns]
    after = [r.value for r in since if r.t_ns >= cut_ns + ns(facts.plan.quiet_s) + lag_ns]
    if min(len(before), len(after)) < len(baseline) or not _read_anew(facts, node, cut_ns):
        return 0.0
    return min(*before, *after) - (max if ours else min)(r.value for r in baseline)


def alive_at_the_end(facts: Facts, hit_ns: int, given_up: Collection[str]) -> list[ev.RequestEnded]:
    """Requests that we hung up on in the teardown and that were not stuck by then: each may be what is still held."""
    teardown_ns = facts.phase_start("teardown") or 0
    end_ns = facts.phase_start("last-canaries", last=True) or (facts.last_ns or 0) + 1
    return [
        ended
        for ended in facts.hung_up
        if teardown_ns <= ended.t_ns < end_ns and not _is_stuck(facts, ended, hit_ns, given_up)
    ]


def _is_stuck(facts: Facts, ended: ev.RequestEnded, hit_ns: int, given_up: Collection[str]) -> bool:
    if ended.tokens or ended.sent_ns is None:
        return False
    waited_ns = ended.t_ns - ended.sent_ns
    return ended.sent_ns <= hit_ns or ended.path in given_up or waited_ns > ns(in_vain_s(facts))


def _read_anew(facts: Facts, node: str, cut_ns: int) -> bool:
    """Whether a node took enough fresh requests since we left: gauges are written when something runs, else seldom."""
    since_ns = cut_ns + ns(facts.plan.quiet_s)
    deadline_ns, horizon_ns = ns(facts.plan.canary_deadline_s), facts.last_ns or 0
    passed = sum(
        look(canary, horizon_ns, deadline_ns).fate is Fate.PASS
        for path in facts.paths()
        if node in facts.nodes_of(path)
        for canary in facts.by_path.get(path.id, ())
        if canary.begun_ns >= since_ns
    )
    return passed >= facts.plan.canaries_in_a_row
