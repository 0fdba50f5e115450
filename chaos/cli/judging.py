"""`pdchaos judge`: the same journal, or a campaign's journals, and the rules of this version."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from chaos.campaign import judged_campaign
from chaos.cli.outputs import campaign_json, listened_to, show, show_campaign, write_campaign
from chaos.journal import CampaignFolder, RunFolder
from chaos.launch.outputs import judged, verdict_json, write_reports

if TYPE_CHECKING:
    from pathlib import Path


def judge_again(path: Path, *, as_json: bool, write: bool) -> int:
    """Judge the folder of a run or a campaign again; returns the exit code that it would have had itself."""
    campaign = CampaignFolder.find(path)
    if campaign is not None:
        return _campaign_again(campaign, as_json=as_json, write=write)
    folder = RunFolder.open(path)
    journal, verdict = judged(folder)
    if write:
        write_reports(folder, journal, verdict, "")
    if as_json:
        with listened_to():
            sys.stdout.buffer.write(verdict_json(verdict))
    else:
        show(verdict, folder)
    return int(verdict.exit_code)


def _campaign_again(folder: CampaignFolder, *, as_json: bool, write: bool) -> int:
    if write:
        for planned in folder.read().begun.runs:
            run = folder.run(planned)
            if run.journal.exists():
                write_reports(run, *judged(run), "")
    campaign = judged_campaign(folder)
    if write:
        write_campaign(folder, campaign, "")
    if as_json:
        with listened_to():
            sys.stdout.buffer.write(campaign_json(campaign))
    else:
        show_campaign(campaign, folder)
    return int(campaign.exit_code)
