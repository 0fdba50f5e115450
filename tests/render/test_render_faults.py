"""Faults of nodes are told as they happen and drawn for as long as they stand, as waves are."""

from __future__ import annotations

from chaos.model import events as ev
from chaos.model.outcomes import Answer
from chaos.model.verdict import WaveVerdict
from chaos.render import words
from chaos.render.evidence import periods
from chaos.render.live import _waves
from chaos.render.record import Record
from chaos.render.story import Story
from chaos.render.timeline import build_timeline
from chaos.render.watch import Watch

SECOND = 1_000_000_000


def step(at_s: float, stage: ev.Stage, **more) -> ev.FaultStep:
    plain = {"ok": True, "kind": "signal", "measured": {"decode-0": "2 of 2 processes stopped"}, "nodes": ("decode-0",)}
    return ev.FaultStep(t_ns=int(at_s * SECOND), fault="freeze", stage=stage, reversal="CONT", **{**plain, **more})


PLANNED = ev.PlannedFault(id="freeze", kind="signal", how="STOP to one decode", lasts_s=2.0)
STARTED = ev.RunStarted(
    t_ns=0,
    format=1,
    run_id="r",
    tool_version="0",
    utc="u",
    target="file",
    plan=ev.Plan(scenario="freeze-worker", faults=(PLANNED,), settle_s=1.0),
)
CENSUS = ev.WaveCensus(t_ns=10 * SECOND, wave="freeze", phases={"waiting": 2, "streaming": 4})
STANDING = [STARTED, CENSUS, step(10, "applied"), step(10.1, "verified")]
END = ev.PhaseEntered(t_ns=60 * SECOND, phase="idle")
UNDONE = [*STANDING, step(30, "reverted"), step(30.1, "revert-verified"), END]


def test_the_lines_tell_every_stage_with_what_was_measured() -> None:
    story = Story()
    told = [(moment.what, moment.text) for event in UNDONE for moment in story.feed(event)]
    assert [text for what, text in told if what == "fault"] == [
        f"freeze {stage}: decode-0: 2 of 2 processes stopped"
        for stage in ("applied", "verified", "reverted", "revert-verified")
    ]


def test_a_stage_that_failed_is_told_with_its_reason() -> None:
    (moment,) = Story().feed(step(10, "verified", ok=False, detail="process 5 is not stopped"))
    assert ("freeze not verified: process 5 is not stopped", "warn") == (moment.text, moment.tone)


def live(events) -> str:
    watch = Watch()
    for event in events:
        watch.feed(event)
    return " ".join(text.plain for _, text in _waves(watch, 40 * SECOND))


def test_the_live_view_says_whether_it_still_stands() -> None:
    assert "1. STOP to one decode, decode-0 30.0 s ago: waiting 2 · streaming 4" in live(STANDING)
    assert "30.0 s ago, undone 10.0 s ago: waiting 2" in live(UNDONE)


def shaded(events) -> list[tuple[float, float]]:
    record = Record()
    for event in events:
        record.feed(event)
    shapes = build_timeline(record).figure["layout"]["shapes"]
    return [(shape["x0"], shape["x1"]) for shape in shapes if shape["name"] == "wave" and shape["type"] == "rect"]


def test_the_timeline_is_shaded_until_the_dust_has_settled_after_it_was_undone() -> None:
    assert [(10.0, 31.0)] == shaded(UNDONE)
    assert [(10.0, 60.0)] == shaded([*STANDING, END])


def test_the_timeline_names_the_fault_and_its_nodes_and_the_evidence_table_has_a_before_and_an_after() -> None:
    record = Record()
    for event in UNDONE:
        record.feed(event)
    notes = build_timeline(record).figure["layout"]["annotations"]
    assert any(note["text"] == "<b>freeze: decode-0</b>" for note in notes)
    assert ["before", "during", "after"] == [period.name for period in periods(record)]
    assert (10 * SECOND, 31 * SECOND) == (periods(record)[1].from_ns, periods(record)[1].to_ns)


def test_a_verdict_says_which_nodes_a_fault_hit_and_what_sessions_did() -> None:
    wave = WaveVerdict(
        wave="freeze", cycle=1, how="STOP to one decode", phases={"streaming": 4}, sessions=0, sockets=0,
        spread_ms=None, server_aborts=None, landed=Answer.YES, kind="signal", nodes=("decode-0",),
    )  # fmt: skip
    assert "STOP to one decode: decode-0; sessions: streaming 4" == words.hit_words(wave)


def test_poison_that_hangs_is_told_as_it_happens_and_in_the_verdict() -> None:
    ends = {"answered": "1", "ended as reset": "0", "hanging": "2"}
    sent = step(10, "verified", kind="poison", nodes=(), measured=ends)
    (moment,) = Story().feed(sent)
    assert ("poison", "freeze: 1 answered, 2 hanging", "warn") == (moment.what, moment.text, moment.tone)
    (moment,) = Story().feed(step(10, "verified", kind="poison", nodes=(), measured={"answered": "3", "hanging": "0"}))
    assert ("freeze: 3 answered", "plain") == (moment.text, moment.tone)
    wave = WaveVerdict(
        wave="no-text", cycle=1, how="3 x empty (chat)", phases={}, sessions=0, sockets=0, spread_ms=None,
        server_aborts=None, landed=Answer.YES, kind="poison", ends={"answered": 1, "hanging": 2},
    )  # fmt: skip
    assert "landed: 1 answered, 2 hanging" == words.landed_words(wave)
