"""The verdict panel on terminals of every kind."""

from __future__ import annotations

import io

import msgspec
import pytest
import sample
from rich.console import Console

from chaos.model.outcomes import Outcome
from chaos.render import ReportExtras, junit_xml, panels_side_by_side, report_html, summary_md, verdict_panel
from chaos.render.words import RICH_BANNERS, RICH_STYLES, outcome_look

REPORT = "reports/20261129-193000-abort-cascade-1f3a/report.html"
VERDICTS = {
    "wedged": sample.wedged_verdict(),
    "healthy": sample.healthy_verdict(),
    "minimal": sample.minimal_verdict(),
    "unknown": sample.unknown_verdict(),
    "left": sample.left_verdict(),
    "huge": sample.huge_verdict(),
    "hostile": sample.hostile_verdict(),
}


def shown(renderable, width=80, *, encoding="utf-8", color=None):
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    console = Console(file=out, width=width, force_terminal=color is not None, color_system=color, legacy_windows=False)
    console.print(renderable)
    out.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("name", ["wedged", "healthy", "minimal", "unknown", "left"])
def test_the_panel_says_the_same_as_last_time_at_80_columns(name, snapshot):
    snapshot(f"panel-{name}.txt", shown(verdict_panel(VERDICTS[name], report=REPORT)))


def test_two_panels_stand_beside_each_other_when_wide_and_below_each_other_when_not(snapshot):
    both = panels_side_by_side([("nixl-abort-unhandled", VERDICTS["wedged"]), ("healthy", VERDICTS["healthy"])])
    wide, narrow = shown(both, 140), shown(both, 80)
    assert any("WEDGED" in line and "HEALTHY" in line for line in wide.splitlines())
    assert not any("WEDGED" in line and "HEALTHY" in line for line in narrow.splitlines())
    assert "WEDGED" in narrow
    assert "HEALTHY" in narrow
    snapshot("panels-140.txt", wide)


@pytest.mark.parametrize("width", [40, 60, 80, 140])
@pytest.mark.parametrize("name", VERDICTS)
def test_no_line_is_wider_than_the_terminal(name, width):
    lines = shown(verdict_panel(VERDICTS[name], report=REPORT), width).splitlines()
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("name", VERDICTS)
def test_a_terminal_that_knows_ascii_only_gets_ascii_only(name):
    text = shown(verdict_panel(VERDICTS[name], report=REPORT), 60, encoding="ascii")
    assert text.isascii()
    assert outcome_look(VERDICTS[name].outcome).word in text


@pytest.mark.parametrize("name", VERDICTS)
def test_nothing_that_came_from_a_target_can_steer_the_terminal(name):
    text = shown(verdict_panel(VERDICTS[name]))
    assert not {c for c in text if ord(c) < 32 and c != "\n"}
    assert "\u202e" not in text


def test_colour_only_helps_the_word_is_there_without_it():
    assert "WEDGED" in shown(verdict_panel(VERDICTS["wedged"]))
    assert "\x1b[" in shown(verdict_panel(VERDICTS["wedged"]), color="standard")


def test_a_panel_names_side_cause_fix_census_aborts_unexamined_exit_code_and_report():
    text = " ".join(shown(verdict_panel(VERDICTS["wedged"], report=REPORT), 140).split())
    for needed in (
        "silent · total · confirmed", "prefill", "sgl-project/sglang#30352 · fixed in 0.5.16",
        "waiting 43 · streaming 17", "43 server aborts", "landed", "does NOT serve", "7 never finished",
        "the engine echoes nothing", "exit 1 (violation)", "cleanup clean", REPORT,
    ):  # fmt: skip
        assert needed in text


def test_a_wave_whose_aborts_nobody_could_count_does_not_say_zero():
    text = shown(verdict_panel(VERDICTS["unknown"]))
    assert "server aborts unknown" in text
    assert "0 server aborts" not in text
    assert "census unknown" in text


def test_a_long_verdict_is_cut_and_says_so():
    lines = shown(verdict_panel(VERDICTS["huge"])).splitlines()
    text = " ".join(" ".join(lines).replace("│", " ").split())
    assert "27 more reasons" in text
    assert "44 more waves, 44 landed" in text
    assert "34 more paths" in text
    assert "27 more things" in text


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_a_word_a_glyph_and_a_colour(outcome):
    look = outcome_look(outcome)
    assert outcome.value.upper() == look.word
    assert look.glyph
    assert look.tone in RICH_STYLES
    assert look.tone in RICH_BANNERS
    verdict = msgspec.structs.replace(VERDICTS["unknown"], outcome=outcome)
    assert f"{look.glyph} {look.word}" in shown(verdict_panel(verdict))


def test_the_outcomes_word_is_not_said_twice():
    verdict = msgspec.structs.replace(VERDICTS["wedged"], headline="WEDGED: after wave 1 nothing completes")
    text = shown(verdict_panel(verdict))
    assert 1 == text.count("WEDGED")
    assert "After wave 1 nothing completes" in text


def test_a_given_width_wins_over_a_wider_terminal():
    assert {60} == {len(line) for line in shown(verdict_panel(VERDICTS["wedged"], 60), 140).splitlines()}


def test_of_imported_evidence_nothing_is_said_of_a_run_of_ours():
    verdict = msgspec.structs.replace(VERDICTS["wedged"], imported=True)
    page = report_html([], verdict, ReportExtras())
    for told in (shown(verdict_panel(verdict)), summary_md(verdict), junit_xml(verdict), page):
        assert "imported evidence" in told
        assert "completed" not in told
        assert "cleanup" not in told


@pytest.mark.parametrize("symptom", [False, True])
@pytest.mark.parametrize("outcome", list(Outcome))
def test_what_was_logged_is_called_a_cause_only_where_something_is_established_that_it_may_explain(outcome, symptom):
    (first, *_) = VERDICTS["wedged"].causes
    causes = (msgspec.structs.replace(first, symptom=symptom),)
    verdict = msgspec.structs.replace(VERDICTS["wedged"], outcome=outcome, causes=causes)
    events = sample.wedged_events()
    told = (
        shown(verdict_panel(verdict)),
        summary_md(verdict),
        junit_xml(verdict),
        report_html(events, verdict, ReportExtras()),
    )
    explains = outcome not in (Outcome.INCONCLUSIVE, Outcome.CORRUPTED) and not symptom
    words = (" cause ", "**Likely cause:**", 'name="cause"', ">Likely cause<")
    other = (" logged ", "**Seen in the logs:**", 'name="logged"', ">Seen in the logs<")
    assert [explains] * 4 == [word in text for word, text in zip(words, told, strict=True)]
    assert [not explains] * 4 == [word in text for word, text in zip(other, told, strict=True)]


def test_of_a_cause_that_nobody_upstream_told_of_no_fix_is_missed():
    (cause, *_) = VERDICTS["wedged"].causes
    verdict = msgspec.structs.replace(VERDICTS["wedged"], causes=(msgspec.structs.replace(cause, upstream=""),))
    text = shown(verdict_panel(verdict)) + summary_md(verdict)
    assert cause.title.split()[0] in text
    assert "fixed" not in text
