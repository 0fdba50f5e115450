"""Judges a run folder and writes everything a person or a CI system reads: verdict, summary, JUnit, report."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
import yaml
from rich.console import Console

from chaos.cli.boundary import complain
from chaos.journal import read_journal
from chaos.judge import judge
from chaos.model.errors import HarnessError
from chaos.render import (
    ReportExtras,
    campaign_html,
    campaign_junit,
    campaign_md,
    campaign_panel,
    junit_xml,
    report_html,
    summary_md,
    verdict_panel,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.journal import CampaignFolder, Journal, RunFolder
    from chaos.model.campaign import Campaign
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


def campaign_json(campaign: Campaign) -> bytes:
    """A campaign's verdict as it is written to `campaign.json`."""
    return msgspec.json.format(msgspec.json.encode(campaign, order="deterministic"), indent=2) + b"\n"


def write_campaign(folder: CampaignFolder, campaign: Campaign, command: str) -> None:
    """Write a campaign's four files; a full disk is said, and loses no more than it must."""
    repeat = (command, f"pdchaos judge {folder.root}") if command else (f"pdchaos judge {folder.root}",)
    writers = (
        ("campaign.json", lambda: campaign_json(campaign)),
        ("summary.md", lambda: campaign_md(campaign)),
        ("junit.xml", lambda: campaign_junit(campaign)),
        ("report.html", lambda: campaign_html(campaign, repeat)),
    )
    for name, render in writers:
        try:
            folder.write(name, render())
        except HarnessError as error:
            complain(f"harness error: {error.message}")


def show_campaign(campaign: Campaign, folder: CampaignFolder) -> None:
    """Print a campaign's panel and where its report is."""
    with listened_to():
        console = Console(highlight=False)
        console.print(campaign_panel(campaign))
        if folder.report.exists():
            console.print(f"report: {folder.report}", soft_wrap=True, markup=False)


def as_yaml(section: Section) -> str:
    """A scenario or target as a file."""
    return yaml.safe_dump(section.model_dump(mode="json", by_alias=True, exclude_none=True), sort_keys=False)


def show(verdict: Verdict, folder: RunFolder) -> None:
    """Print the panel and, whole on a line of its own, where the report is."""
    with listened_to():
        console = Console(highlight=False)
        console.print(verdict_panel(verdict))
        if folder.report.exists():
            console.print(f"report: {folder.report}", soft_wrap=True, markup=False)


@contextmanager
def listened_to() -> Iterator[None]:
    """Nobody reading our output any more (`| head`, a full pipe) changes nothing of what was found."""
    try:
        yield
        sys.stdout.flush()
    except (OSError, SystemExit):  # rich turns a broken pipe into an exit of its own
        # What is still buffered would fail once more when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def conclude(folder: RunFolder, command: str, *, show_panel: bool) -> Verdict:
    """Judge a finished run, write its files, show it."""
    journal, verdict = judged(folder)
    write_reports(folder, journal, verdict, command)
    if show_panel:
        show(verdict, folder)
    return verdict
