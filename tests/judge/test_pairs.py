"""Several paths in one deployment: which of them fail says which node it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build import HANG, Play, Reply, late, plan, play

from chaos.judge import judge, passes_for
from chaos.model import events as ev
from chaos.model.outcomes import Outcome

if TYPE_CHECKING:
    from chaos.model.verdict import Verdict

NODES = ("router-0", "prefill-0", "prefill-1", "decode-0", "decode-1")
PAIRS = tuple(f"prefill-{p}>decode-{d}" for p in (0, 1) for d in (0, 1))
PATHS = (
    ev.Path(id="routed", kind="routed", nodes=NODES),
    *(ev.Path(id=pair, kind="direct", nodes=tuple(pair.split(">"))) for pair in PAIRS),
)


def two_by_two() -> Play:
    return play(nodes=NODES, paths=PATHS).load().wave()


def with_hanging(*paths: str) -> Verdict:
    told = two_by_two()
    told.replies.update(dict.fromkeys(paths, HANG))
    return judge(told.go(45).finish())


def test_every_path_served_is_healthy_and_each_is_told() -> None:
    verdict = judge(two_by_two().recovered().finish())
    assert Outcome.HEALTHY == verdict.outcome
    assert [path.id for path in PATHS] == [path.path for path in verdict.paths]


@pytest.mark.parametrize(("node", "side"), [("prefill-1", "prefill"), ("decode-0", "decode")])
def test_a_node_whose_pairs_all_fail_is_named_although_every_routed_canary_passes(node: str, side: str) -> None:
    verdict = with_hanging(*(pair for pair in PAIRS if node in pair))
    assert verdict.wedge is not None
    assert (Outcome.WEDGED, False, side) == (verdict.outcome, verdict.wedge.total, verdict.wedge.side)
    assert any(reason == f"it is {node}: every pair with {node} fails and no other does" for reason in verdict.reasons)
    assert "other paths still serve" in verdict.headline


def test_a_router_that_hangs_while_every_pair_serves_is_named() -> None:
    verdict = with_hanging("routed")
    assert verdict.wedge is not None
    assert ("router", ("routed",)) == (verdict.wedge.side, verdict.wedge.paths)
    assert any("it is router-0" in reason for reason in verdict.reasons)


def test_one_pair_alone_accuses_neither_of_its_nodes() -> None:
    verdict = with_hanging(PAIRS[0])
    assert verdict.wedge is not None
    assert (Outcome.WEDGED, "") == (verdict.outcome, verdict.wedge.side)


def test_when_every_path_fails_they_are_counted_and_none_is_singled_out() -> None:
    verdict = with_hanging("routed", *PAIRS)
    assert verdict.wedge is not None
    assert (True, "") == (verdict.wedge.total, verdict.wedge.side)
    assert "on any of 5 paths" in verdict.headline
    assert "other paths" not in verdict.headline


def test_paths_that_lose_requests_beside_dark_ones_do_not_still_serve() -> None:
    told = two_by_two()
    told.replies.update(dict.fromkeys(PAIRS, HANG))
    told.turns = ()
    told.replies["routed"] = late(6)
    assert "other paths still serve" not in judge(told.go(45).finish()).headline


def test_as_many_passes_are_needed_as_ranks_take_turns() -> None:
    eight = ev.Path(id="prefill-0>decode-0", kind="direct", nodes=("prefill-0", "decode-0"), ranks=8)
    assert (8, 5) == (passes_for(eight, plan()), passes_for(PATHS[0], plan()))
    told = play(paths=(eight,)).load().wave()
    assert Outcome.INCONCLUSIVE == judge(told.go(6).finish()).outcome
    assert Outcome.HEALTHY == judge(play(paths=(eight,)).load().wave().go(14).finish()).outcome


def test_one_of_eight_ranks_that_hangs_is_a_partial_loss() -> None:
    eight = ev.Path(id="prefill-0>decode-0", kind="direct", nodes=("prefill-0", "decode-0"), ranks=8)
    told = play(paths=(PATHS[0], eight)).load().wave()
    told.turns = (*[Reply(after=0.4)] * 15, HANG)  # both paths take turns: the second one's eighth
    verdict = judge(told.go(60).finish())
    assert verdict.wedge is not None
    assert (Outcome.WEDGED, False) == (verdict.outcome, verdict.wedge.total)


def test_a_rank_that_hangs_is_named_while_its_sibling_serves() -> None:
    nodes = ("prefill-0", "decode-0")
    ranks = [ev.Path(id=f"prefill-0>decode-0 dp{n}", kind="rank", nodes=nodes, rank=n, of_ranks=2) for n in (0, 1)]
    told = play(paths=(PATHS[0], *ranks)).load().wave()
    told.replies["prefill-0>decode-0 dp1"] = HANG
    verdict = judge(told.go(60).finish())
    assert verdict.wedge is not None
    assert (Outcome.WEDGED, False, ("prefill-0>decode-0 dp1",)) == (
        verdict.outcome,
        verdict.wedge.total,
        verdict.wedge.paths,
    )
