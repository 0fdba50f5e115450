"""The accuracy table: what it counts as right, what it lists, and how an interrupted measurement goes on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from bench.accuracy_table import Entry, GroundTruth, Result, accuracy_md, grade, read_ground_truth
from bench.judge_accuracy import TRUTH, main, read_results, to_do
from chaos import library
from chaos.journal import read_journal
from chaos.judge import JUDGE_VERSION, judge
from chaos.lab.catalogue import KINDS
from chaos.model.outcomes import Outcome

if TYPE_CHECKING:
    from chaos.model.verdict import Verdict

WEDGE = Entry(
    build="sick", scenario="cascade", outcome=(Outcome.WEDGED, Outcome.CRASHED), side="prefill", why="a | bug"
)
SICK = "`sick cascade` | wedged, crashed (prefill)"  # its row in the table of all entries
FINE = Entry(build="healthy", scenario="cascade", outcome=(Outcome.HEALTHY,), set={"decode": 2})


def said(entry: Entry, outcome: Outcome | None, rep: int = 1, **more: object) -> Result:
    return Result(key=entry.key, rep=rep, outcome=outcome, folder=f"runs/{entry.build}-{rep}", **more)


@pytest.mark.parametrize(
    ("entry", "result", "wanted"),
    [
        (WEDGE, said(WEDGE, Outcome.WEDGED, side="prefill"), "right"),
        (WEDGE, said(WEDGE, Outcome.CRASHED, side="prefill"), "right"),
        (WEDGE, said(WEDGE, Outcome.WEDGED, side="decode"), "wrong"),
        (WEDGE, said(WEDGE, Outcome.HEALTHY), "wrong"),
        (WEDGE, said(WEDGE, Outcome.INCONCLUSIVE), "inconclusive"),
        (WEDGE, said(WEDGE, None), "no verdict"),
        (FINE, said(FINE, Outcome.HEALTHY, side="decode"), "right"),
        (FINE, said(FINE, Outcome.DAMAGED), "wrong"),
        (Entry(build="b", scenario="s", outcome=(Outcome.INCONCLUSIVE,)), said(FINE, Outcome.INCONCLUSIVE), "right"),
    ],
)
def test_a_verdict_is_right_only_with_its_side_and_saying_nothing_is_not_wrong(
    entry: Entry, result: Result, wanted: str
) -> None:
    assert wanted == grade(entry, result)


def cells(page: str, row: str) -> list[str]:
    (line,) = [line for line in page.split("\n") if line.startswith(f"| {row} |")]
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_the_table_counts_every_run_once_and_lists_those_that_were_not_right() -> None:
    results = [said(WEDGE, Outcome.WEDGED, rep, side="prefill") for rep in range(1, 9)]
    results += [
        said(WEDGE, Outcome.HEALTHY, 9, headline="HEALTHY: all is well"),
        said(WEDGE, Outcome.INCONCLUSIVE, 10, repeated=True, lag_ms=900.0),
        said(FINE, Outcome.HEALTHY, 1),
        said(FINE, None, 2, exit_code=4),
        Result(key="no such entry any more", rep=1, outcome=Outcome.HEALTHY),
    ]
    page = accuracy_md([WEDGE, FINE], results, {"date": "2026-01-01"})
    assert "**1 of 11 verdicts wrong:" in page
    assert "9 right, 1 wrong, 1 inconclusive, 1 without a verdict, of 12 runs; 1 repeated once" in page
    assert ["right \\ said", "wedged", "inconclusive", "healthy", "no verdict", "runs"] == cells(page, "right \\ said")
    assert ["wedged", "8", "1", "1", "", "10"] == cells(page, "wedged")
    assert ["healthy", "", "", "1", "1", "2"] == cells(page, "healthy")
    assert ["wedged 8, healthy 1, inconclusive 1", "8", "1", "1", "0", "a \\| bug"] == cells(
        page, "`sick cascade` | wedged, crashed (prefill)"
    )[2:]
    wrong, undecided, none = page.split("## Wrong\n")[1].split("## ")
    assert ("runs/sick-9" in wrong, "HEALTHY: all is well" in wrong) == (True, True)
    assert ("runs/sick-10" in undecided, "900 ms" in undecided, "exit 4" in none) == (True, True, True)


def test_an_entry_that_was_not_run_is_shown_as_such() -> None:
    page = accuracy_md([WEDGE], [], {})
    assert "not run" == cells(page, "`sick cascade`")[2]
    assert "no run was judged" in page


def test_the_ground_truth_names_builds_and_scenarios_that_exist() -> None:
    builds = [build.name for build in KINDS["sim"].info().builds]
    entries = read_ground_truth(TRUTH.read_text(), builds=builds, scenarios=library.names("scenarios"))
    assert {"healthy", "nixl-abort-unhandled"} <= {entry.build for entry in entries}
    assert all(entry.why for entry in entries)


def test_everything_wrong_with_the_ground_truth_is_told_at_once() -> None:
    text = """
- {build: healthy, scenario: soak, outcome: [healthy], with: {load.agents.sessions: 5}}
- {build: healthy, scenario: soak, outcome: [healthy], with: {load.agents.sessions: 5}}
- {build: helthy, scenario: soke, outcome: []}
- {build: healthy, scenario: soak, outcome: [fine]}
- {build: healthy, scenario: soak, outcomes: [healthy]}
"""
    with pytest.raises(GroundTruth) as caught:
        read_ground_truth(text, builds=["healthy"], scenarios=["soak"])
    told = str(caught.value)
    for part in ("3: the lab has no build", "3: there is no scenario", "3: no outcome", "4: ", "5: ", "given twice"):
        assert part in told
    with pytest.raises(GroundTruth, match="list"):
        read_ground_truth("build: healthy", builds=[], scenarios=[])


def test_options_become_words_of_the_command_line() -> None:
    entry = Entry(build="b", scenario="s", outcome=(Outcome.HEALTHY,), set={"x": True}, overrides={"cycles.count": 3})
    assert ["--target", "lab:sim@b", "--set", "x=true", "--with", "cycles.count=3"] == entry.options()
    assert "b s cycles.count=3 x=true" == entry.key


def test_a_measurement_goes_on_where_it_stopped_also_after_half_a_line(tmp_path: Path) -> None:
    log = tmp_path / "results.jsonl"
    lines = [
        msgspec.json.encode(said(entry, Outcome.HEALTHY, rep)) for entry, rep in ((WEDGE, 1), (FINE, 1), (FINE, 2))
    ]
    log.write_bytes(b"\n".join(lines) + b'\n{"key":"sick')
    assert [(WEDGE, 2), (WEDGE, 3), (FINE, 3)] == to_do([WEDGE, FINE], read_results(log), 3)
    assert [] == read_results(tmp_path / "none")


def recorded(folder: Path, journal: Path, judged: Verdict) -> None:
    run = folder / "20260101T000000Z-a-run"
    run.mkdir(parents=True)
    (run / "journal.jsonl").write_bytes(journal.read_bytes())
    (run / "verdict.json").write_bytes(msgspec.json.encode(judged))


def test_saved_runs_are_judged_anew_and_the_table_says_who_recorded_and_who_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = Path(__file__).parents[1] / "judge/journals/wedged-by-abort.jsonl"
    verdict = judge(read_journal(journal).events)
    old = msgspec.structs.replace(verdict, judge_version="0", outcome=Outcome.HEALTHY, wedge=None)
    source, out, table = tmp_path / "old", tmp_path / "new", tmp_path / "table.md"
    recorded(source / "runs/sick-1", journal, old)
    (source / "runs/sick-3").mkdir()  # no verdict came of it
    results = [
        Result(key="sick cascade", rep=1, outcome=Outcome.HEALTHY, folder="runs/sick-1", seconds=9.0, judge="0"),
        Result(key="sick cascade", rep=2, outcome=Outcome.HEALTHY, judge="0"),  # its folder was not kept
        Result(key="sick cascade", rep=3, outcome=None, folder="runs/sick-3", exit_code=4),
    ]
    (source / "results.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, results)))
    assert 0 == main(["--rejudge", str(source), "--out", str(out), "--table", str(table)])
    anew, kept, none = read_results(out / "results.jsonl")
    assert (Outcome.WEDGED, "prefill", 1, 9.0) == (anew.outcome, anew.side, anew.exit_code, anew.seconds)
    assert (JUDGE_VERSION, "0") == (anew.judge, anew.first_judge)
    assert (out / anew.folder / "20260101T000000Z-a-run" / "journal.jsonl").exists()
    assert (results[1], None) == (kept, none.outcome)
    assert "sick cascade #1: healthy  -> wedged prefill" in capsys.readouterr().out
    assert (
        f"version {JUDGE_VERSION} (1 run); version unknown (1 run)"
        "; 1 journal recorded when the judge was version 0, and judged anew"
    ).replace(f"version {JUDGE_VERSION}", f"version 0 (1 run); version {JUDGE_VERSION}", 1) in table.read_text()
    assert 0 == main(["--rejudge", str(out), "--out", str(out)])  # in its own place, and by whom it was judged first
    assert [anew, kept, none] == read_results(out / "results.jsonl")
    assert 2 == main(["--rejudge", str(tmp_path / "nowhere"), "--out", str(out)])
    assert "no results.jsonl" in capsys.readouterr().err


def test_results_of_an_earlier_measurement_are_never_mixed_in_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results.jsonl").write_bytes(msgspec.json.encode(said(FINE, Outcome.HEALTHY)) + b"\n")
    assert 2 == main(["--out", str(tmp_path)])
    assert "--resume" in capsys.readouterr().err
    assert 0 == main(["--out", str(tmp_path), "--resume", "--only", "nobody", "--table", str(tmp_path / "t.md")])
    assert (tmp_path / "t.md").read_text().startswith("# How often the judge is right")
