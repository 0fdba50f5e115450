"""A campaign as people and CI systems read it."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import msgspec
import pytest
from campaigns import DONE, begun, verdict
from rich.console import Console

from chaos.judge import judge_campaign
from chaos.judge.stats import slower
from chaos.model.campaign import Ended, Failed, Speed
from chaos.model.outcomes import Answer, Cleanup, ExitCode, Outcome
from chaos.render import campaign_html, campaign_junit, campaign_md, campaign_panel, run_line

MISSED = verdict(Outcome.INCONCLUSIVE, landed=Answer.NO)
SWEPT = judge_campaign(
    begun("load.agents.sessions=10", "load.agents.sessions=20", trials=2),
    {1: verdict(), 2: MISSED, 3: verdict(Outcome.WEDGED, aborts=(12, 30))},
    [Failed(number=4, exit_code=ExitCode.HARNESS_ERROR, error="decode-0 died while starting")],
    DONE,
)
FINE = judge_campaign(begun(trials=20), dict.fromkeys(range(1, 21), verdict()), (), DONE)
STOPPED = judge_campaign(begun(trials=5), {1: verdict()}, (), Ended(reason="SIGINT", interrupted=True))


def panel(campaign, width: int = 100, encoding: str = "utf-8") -> str:
    raw = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=raw, width=width, legacy_windows=False, no_color=True)
    console.print(campaign_panel(campaign))
    raw.flush()
    return raw.buffer.getvalue().decode(encoding)


def flat(text: str) -> str:
    """A panel's words without its frame."""
    return " ".join(re.sub("[\u2502|\u2500\u256d\u256e\u2570\u256f]", " ", text).split())


def test_the_panel_tells_rate_doses_and_what_broke() -> None:
    said = flat(panel(SWEPT))
    for part in (
        "WEDGED worst of 4 runs",
        "The smallest dose that wedged: load.agents.sessions=20: 1 of 1 wedged: above 5 % at 95 %",
        "load.agents.sessions=10: 0 of 1 wedged: below 95 % at 95 %",
        "wedged 1; broke after 42 aborts in 2 waves",
        "not counted, 1 trial: the fault did not land",
        "not counted, 1 trial: there is no record of it",
        "4 of 4 runs made",
        "exit 1 (violation)",
    ):
        assert part in said


def test_the_panel_of_a_survivor_is_green_and_of_one_stopped_says_so() -> None:
    assert "0 of 20 wedged: below 14 % at 95 %; survived 600 aborts in 20 waves" in flat(panel(FINE))
    assert "1 of 5 runs made: SIGINT" in flat(panel(STOPPED))
    assert "exit 130 (interrupted)" in flat(panel(STOPPED))


@pytest.mark.parametrize("campaign", [SWEPT, FINE, STOPPED])
def test_the_panel_fits_narrow_and_ascii_terminals(campaign) -> None:
    narrow = panel(campaign, width=60, encoding="ascii")
    assert max(map(len, narrow.splitlines())) <= 60
    assert narrow.isascii()


def test_junit_has_a_case_for_every_run_made() -> None:
    suite = ET.fromstring(campaign_junit(SWEPT).encode()).find("testsuite")  # noqa: S314 - our own output
    assert ("4", "1", "2") == (suite.get("tests"), suite.get("failures"), suite.get("errors"))
    kinds = [next((c.tag for c in case if c.tag != "system-out"), "passed") for case in suite.findall("testcase")]
    assert ["passed", "error", "failure", "error"] == kinds
    told = {p.get("name"): p.get("value") for p in suite.find("properties")}
    assert ("load.agents.sessions=20", "wedged") == (told["smallest"], told["outcome"])
    assert "runs/003/report.html" in suite.findall("testcase")[2].find("failure").text


@pytest.mark.parametrize("code", [code for code in ExitCode if code])
def test_every_exit_code_of_a_run_but_zero_shows(code) -> None:
    trial = msgspec.structs.replace(FINE.trials[0], exit_code=code)
    suite = ET.fromstring(campaign_junit(msgspec.structs.replace(FINE, trials=(trial,))).encode()).find("testsuite")  # noqa: S314
    assert "0" != suite.get("failures") or "0" != suite.get("errors")


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        values = dict(attrs)
        self.hrefs += [values["href"]] if tag == "a" else []
        self.loads += [values[name] for name in ("src", "data") if name in values]
        self.loads += [tag] if tag in ("link", "script", "iframe") else []


def test_the_page_links_every_run_and_loads_nothing() -> None:
    links = _Links()
    page = campaign_html(SWEPT, ("pdchaos run x",))
    links.feed(page)
    assert {f"runs/00{n}/report.html" for n in (1, 2, 3)} <= set(links.hrefs)
    assert [] == links.loads
    for part in ("The smallest dose that wedged", "pdchaos run x", "decode-0 died while starting", "c0ffee00"):
        assert part in page


def test_the_summary_has_a_row_for_every_dose_and_run() -> None:
    said = campaign_md(SWEPT)
    rows = [line for line in said.split("\n") if line.startswith("| ") and "---" not in line]
    assert (1 + 2) + (1 + 4) == len(rows)
    assert "| 2 | load.agents.sessions=10 |" in said


def test_text_of_others_stays_text_everywhere() -> None:
    evil = "<script>alert(1)</script> \x1b[31m `x` | [a](http://b) ]]>"
    trial = msgspec.structs.replace(SWEPT.trials[2], headline=evil, dose=evil, why_not=evil)
    campaign = msgspec.structs.replace(SWEPT, headline=evil, reasons=(evil,), trials=(trial,), about=evil)
    assert "<script" not in campaign_html(campaign, (evil,))
    assert "<script" not in campaign_md(campaign)
    assert "\x1b" not in panel(campaign) + campaign_md(campaign) + campaign_html(campaign, (evil,))
    assert "alert(1)" in ET.fromstring(campaign_junit(campaign).encode()).find(".//failure").text  # noqa: S314


SLOW = msgspec.structs.replace(
    FINE,
    speed=(
        Speed(
            dose="",
            answer=Answer.YES,
            told="slower than the control: users: time to first token 405 ms against 205 ms",
            measures=(
                slower("users: time to first token", [400, 410, 390, 420], [200, 210, 190, 220], by=0.25, alpha=0.05),
            ),
        ),
    ),
)


def test_the_comparison_with_the_control_is_shown_with_its_effect() -> None:
    assert "speed slower than the control: users: time to first token 405 ms" in flat(panel(SLOW))
    for said in (campaign_md(SLOW), campaign_html(SLOW, ())):
        for part in ("405 ms", "205 ms", "4 runs", "1.98", "100 %", "0.014", "yes"):
            assert part in said
    suite = ET.fromstring(campaign_junit(SLOW).encode()).find("testsuite")  # noqa: S314
    assert "degraded" == suite.findall("testcase")[-1].find("failure").get("type")
    allowed = msgspec.structs.replace(SLOW, allow=("healthy", "degraded"))
    suite = ET.fromstring(campaign_junit(allowed).encode()).find("testsuite")  # noqa: S314
    assert "0" == suite.get("failures")


def test_a_run_that_has_ended_is_one_line() -> None:
    planned = begun("n=5", trials=3).runs[1]
    line = run_line(planned, 3, verdict(Outcome.WEDGED, cleanup=Cleanup.DIRTY))
    assert "run 2 of 3 (n=5): WEDGED: Told by a test" == line
