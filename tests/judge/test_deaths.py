"""What explains a death was there before it."""

from __future__ import annotations

import msgspec
import pytest
from build import FATAL, HANG, Play, waved

from chaos.judge import judge
from chaos.model import events as ev
from chaos.model.outcomes import Outcome


def line(
    told: Play, signature: str, klass: ev.HitClass, *, after: float, stamped: bool = True, read_s: float = 0.0
) -> Play:
    """A line of decode-0, written `after` from now, stamped with that moment, and read `read_s` later."""
    at = told.now + after
    return told.tell(
        ev.LogHit(
            t_ns=0,
            node="decode-0",
            stream="log",
            signature=signature,
            klass=klass,
            line=signature,
            written_ns=told.ns(at) if stamped else None,
        ),
        at + read_s,
    )


def explained(told: Play, outcome: Outcome) -> list[str]:
    verdict = judge(told.finish())
    assert outcome == verdict.outcome
    return [cause.signature for cause in verdict.causes]


def replaced() -> Play:
    """The one process is last seen in the second before now, the other from now on."""
    return waved().go(5).restart("decode-0")


@pytest.mark.parametrize("stamped", [True, False])
def test_what_a_fresh_process_prints_is_no_cause_of_the_death_before_it(stamped):
    told = replaced()
    line(told, "came-up", "restart", after=0.5, stamped=stamped)
    line(told, "printed-at-every-start", "symptom", after=7.0, stamped=stamped)
    assert [] == explained(told.recovered(), Outcome.RESTARTED)


def test_what_was_printed_before_it_is_and_so_may_be_what_was_only_read_after_it():
    told = waved().go(4)
    line(told, "last-words", "symptom", after=0.5)
    line(told, "stamped", "symptom", after=0.5, read_s=9.0)
    told.go(1).restart("decode-0")
    line(told, "read-late", "symptom", after=3.0, stamped=False)
    assert {"last-words", "stamped", "read-late"} == set(explained(told.recovered(), Outcome.RESTARTED))


def test_what_others_make_of_a_death_is_no_cause_of_it():
    told = waved(health=None).go(4)
    line(told, "last-words", "symptom", after=0.5)
    told.go(1).die("prefill-0").reply = HANG
    line(told, "peer-lost", "symptom", after=1.0)
    assert ["last-words"] == explained(told.go(40), Outcome.CRASHED)


def test_of_several_lives_what_was_printed_before_the_last_death_explains_it():
    told = replaced()
    line(told, "second-life", "symptom", after=2.0)
    told.go(5).restart("decode-0")
    assert ["second-life"] == explained(told.recovered(), Outcome.RESTARTED)


def test_in_a_container_that_is_started_again_the_fresh_process_has_the_number_of_the_one_before():
    told = waved(deaf=frozenset({"process"}))
    for started in (1000.0, 1000.0, 2000.0, 2000.0):
        told.tell(ev.ProcessSeen(t_ns=0, node="decode-0", pid=120, alive=True, start_time=started)).go(1)
    line(told, "last-words", "symptom", after=-2.5)
    line(told, "printed-at-every-start", "symptom", after=-1.5)
    events = told.recovered().finish()
    at = next(i for i, event in enumerate(events) if isinstance(event, ev.DeploymentSeen))
    nodes = [msgspec.structs.replace(node, start_time=1000.0) for node in events[at].nodes]
    events[at] = msgspec.structs.replace(events[at], nodes=tuple(nodes))
    verdict = judge(events)
    assert (Outcome.RESTARTED, ["last-words"]) == (verdict.outcome, [cause.signature for cause in verdict.causes])


def test_what_a_wedge_came_from_may_be_written_after_a_process_was_replaced():
    told = replaced()
    line(told, FATAL["signature"], "symptom", after=1.0)
    told.reply = HANG
    assert [FATAL["signature"]] == explained(told.go(45), Outcome.WEDGED)


# ---------------------------------------------------------------------------------- children


def with_children(told: Play, *moments: tuple[float, tuple[int, ...]]) -> Play:
    """Looks at decode-0 that met schedulers of these pids beside its own helper."""
    for at, pids in moments:
        children = tuple(ev.Child(pid=pid, name="scheduler", alive=True) for pid in pids)
        helper = ev.Child(pid=900, name="helper", alive=True)
        pid = told._pids["decode-0"]
        told.tell(ev.ProcessSeen(t_ns=0, node="decode-0", pid=pid, alive=True, children=(*children, helper)), at)
        for node in ("router-0", "prefill-0"):
            told.tell(ev.ProcessSeen(t_ns=0, node=node, pid=told._pids[node], alive=True), at)
    return told


def unseen() -> Play:
    """A play of which every look at a process is told by hand."""
    return waved(deaf=frozenset({"process"})).go(14)


def replaced_by(told: Play) -> tuple[Outcome, list[str]]:
    verdict = judge(told.finish())
    return verdict.outcome, [e.text for f in verdict.findings if f.id == "replaced" for e in f.evidence]


def test_a_child_that_its_parent_started_again_was_replaced():
    told = with_children(unseen(), (2.0, (41,)), (9.0, (41,)), (19.0, ()), (20.0, (77,)), (28.0, (77,)))
    what = "child scheduler (pid 41) of decode-0 is another process now; we did not do it"
    assert (Outcome.RESTARTED, [what]) == replaced_by(told)


def test_ranks_that_were_started_again_together_are_told_as_one():
    told = with_children(unseen(), *((at, (41, 42, 43, 44)) for at in (2.0, 9.0)), (28.0, (71, 72, 73, 74)))
    (what,) = replaced_by(told)[1]
    assert what.startswith("4 children of decode-0 are other processes now: scheduler (pid 41), ")
    assert "1 more" in what


@pytest.mark.parametrize(
    "before",
    [
        ((2.0, (41,)), (9.0, (42,))),  # they come and go
        ((2.0, (41,)), (9.0, (41, 42))),
        ((2.0, ()), (9.0, (41,))),  # missed by one look
        ((9.0, (41,)),),  # seen once
        ((2.0, (-1,)), (9.0, (-1,))),  # numbered by who saw no pids
    ],
)
def test_children_that_changed_before_the_load_or_were_hardly_known_accuse_nobody(before):
    told = with_children(unseen(), *before, (28.0, (77, 78)))
    assert Outcome.HEALTHY == replaced_by(told)[0]


def test_a_child_that_is_there_again_at_the_end_was_only_not_seen():
    told = with_children(unseen(), (2.0, (41,)), (9.0, (41,)), (20.0, (77,)), (28.0, (41,)))
    assert Outcome.HEALTHY == replaced_by(told)[0]


@pytest.mark.parametrize("pid", [41, 120])
def test_a_child_that_was_started_again_after_we_ended_its_life_is_our_doing(pid):
    told = unseen()
    step = ev.FaultStep(
        t_ns=0, fault="fault", kind="signal", stage="applied", ok=True, nodes=("decode-0",), pids=(pid,), ends=True
    )
    told.tell(step, 17.0).tell(msgspec.structs.replace(step, stage="verified", measured={"decode-0": "gone"}), 17.0)
    assert Outcome.HEALTHY == replaced_by(with_children(told, (2.0, (41,)), (9.0, (41,)), (28.0, (77,))))[0]


def test_what_the_replaced_child_printed_before_explains_it():
    told = with_children(unseen(), (2.0, (41,)), (9.0, (41,)), (20.0, (77,)), (28.0, (77,)))
    line(told, "last-words", "symptom", after=-10.0)
    line(told, "printed-at-every-start", "symptom", after=-8.5)
    assert ["last-words"] == explained(told, Outcome.RESTARTED)
