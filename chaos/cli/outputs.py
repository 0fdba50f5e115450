"""Shows verdicts on the terminal, and writes what people and CI systems read of a campaign."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console

from chaos.launch.telling import complain
from chaos.model.errors import HarnessError
from chaos.render import campaign_html, campaign_junit, campaign_md, campaign_panel, verdict_panel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.journal import CampaignFolder, RunFolder
    from chaos.model.campaign import Campaign
    from chaos.model.verdict import Verdict


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
