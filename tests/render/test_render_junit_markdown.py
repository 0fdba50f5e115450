"""JUnit XML and the job summary."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import msgspec
import pytest
import sample
from markdown_it import MarkdownIt

from chaos.model.outcomes import ExitCode, Outcome
from chaos.render import junit_xml, summary_md

VERDICTS = {
    "wedged": sample.wedged_verdict(),
    "healthy": sample.healthy_verdict(),
    "minimal": sample.minimal_verdict(),
    "unknown": sample.unknown_verdict(),
    "left": sample.left_verdict(),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_junit_says_the_same_as_last_time(name, snapshot):
    snapshot(f"junit-{name}.xml", junit_xml(VERDICTS[name]))


@pytest.mark.parametrize("name", VERDICTS)
def test_the_summary_says_the_same_as_last_time(name, snapshot):
    snapshot(f"summary-{name}.md", summary_md(VERDICTS[name]))


def suite_of(verdict):
    return ET.fromstring(junit_xml(verdict).encode()).find("testsuite")  # noqa: S314 - our own output


def test_a_suite_has_a_case_for_the_outcome_and_one_for_every_finding():
    suite = suite_of(VERDICTS["wedged"])
    cases = suite.findall("testcase")
    assert len(VERDICTS["wedged"].findings) + 1 == len(cases)
    assert {"tests": "9", "failures": "2", "errors": "0", "skipped": "2"} == {
        key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")
    }


def test_a_violation_is_a_failure_that_carries_its_evidence():
    outcome, serves = suite_of(VERDICTS["wedged"]).findall("testcase")[:2]
    assert "wedged" == outcome.find("failure").get("type")
    assert "14 canaries begun after the wave never finished" in serves.find("failure").text
    assert "410, 422, 431" in serves.find("failure").text


def test_a_run_that_cannot_tell_is_an_error_and_never_a_pass():
    outcome = suite_of(VERDICTS["unknown"]).find("testcase")
    assert outcome.find("error") is not None
    assert all(case.find("skipped") is not None for case in suite_of(VERDICTS["unknown"]).findall("testcase")[1:])


def test_a_healthy_run_has_neither_failure_nor_error():
    suite = suite_of(VERDICTS["healthy"])
    assert ("0", "0") == (suite.get("failures"), suite.get("errors"))


def test_an_allowed_wedge_fails_nothing():
    verdict = msgspec.structs.replace(VERDICTS["wedged"], allow=("wedged",), exit_code=ExitCode.AS_EXPECTED)
    assert suite_of(verdict).get("failures") == "0"


@pytest.mark.parametrize("code", [code for code in ExitCode if code])
def test_every_exit_code_but_zero_shows_in_the_outcomes_case(code):
    verdict = msgspec.structs.replace(VERDICTS["healthy"], exit_code=code)
    case = suite_of(verdict).find("testcase")
    assert case.find("failure") is not None or case.find("error") is not None


def test_hostile_text_leaves_the_xml_readable_and_without_control_characters():
    suite = suite_of(sample.hostile_verdict())
    assert "alert(1)" in suite.findall("testcase")[1].get("name")
    assert not {c for c in junit_xml(sample.hostile_verdict()) if ord(c) < 32 and c not in "\n\t"}


def test_a_thousand_findings_are_a_thousand_cases():
    assert suite_of(sample.huge_verdict()).get("tests") == "1001"


def test_hostile_text_stays_text_in_the_summary():
    html = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(summary_md(sample.hostile_verdict()))
    for forbidden in ("<script", "<img", "<a "):
        assert forbidden not in html
    assert "alert(1)" in html


def test_the_summary_of_a_huge_verdict_fits_a_job_summary():
    text = summary_md(sample.huge_verdict())
    assert len(text.encode()) < 200_000
    assert "900 more are in the report" in text


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_its_word_in_the_heading(outcome):
    assert (
        outcome.value.upper()
        in summary_md(msgspec.structs.replace(VERDICTS["unknown"], outcome=outcome)).split("\n")[0]
    )
