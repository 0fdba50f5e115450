"""Judges a run folder and writes everything a person or a CI system reads: verdict, summary, JUnit, report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import yaml

from chaos.journal import read_journal
from chaos.judge import judge
from chaos.launch.telling import complain
from chaos.model.errors import HarnessError
from chaos.render import ReportExtras, junit_xml, report_html, summary_md

if TYPE_CHECKING:
    from chaos.journal import Journal, RunFolder
    from chaos.model.section import Section
    from chaos.model.verdict import Verdict


def judged(folder: RunFolder) -> tuple[Journal, Verdict]:
    """Read and judge the folder's journal."""
    journal = read_journal(folder.journal)
    return journal, judge(journal.events)


def verdict_json(verdict: Verdict) -> bytes:
    """The verdict as it is written to `verdict.json`."""
    return msgspec.json.format(msgspec.json.encode(verdict, order="deterministic"), indent=2) + b"\n"


def write_reports(folder: RunFolder, journal: Journal, verdict: Verdict, command: str) -> None:
    """Write the four files; on a full disk the small ones come first and the rest is said to be missing."""
    extras = ReportExtras(
        folder=folder.root.name,
        files=tuple(sorted(path.name for path in folder.root.iterdir() if path.name != folder.report.name)),
        repeat=(command, f"pdchaos judge {folder.root}") if command else (f"pdchaos judge {folder.root}",),
    )
    writers = (
        ("verdict.json", lambda: verdict_json(verdict)),
        ("summary.md", lambda: summary_md(verdict)),
        ("junit.xml", lambda: junit_xml(verdict)),
        ("report.html", lambda: report_html(journal.events, verdict, extras)),
    )
    for name, render in writers:
        try:
            folder.write(name, render())
        except HarnessError as error:
            complain(f"harness error: {error.message}")


def as_yaml(section: Section) -> str:
    """A scenario or target as a file."""
    return yaml.safe_dump(section.model_dump(mode="json", by_alias=True, exclude_none=True), sort_keys=False)


def conclude(folder: RunFolder, command: str) -> Verdict:
    """Judge a finished run and write its files."""
    journal, verdict = judged(folder)
    write_reports(folder, journal, verdict, command)
    return verdict
