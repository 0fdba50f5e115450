"""The verdict over a campaign, from what lies in its folder: its record and the journals of its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.journal import read_journal
from chaos.judge import judge, judge_campaign, latency
from chaos.model.errors import UserError

if TYPE_CHECKING:
    from chaos.journal import CampaignFolder
    from chaos.model.campaign import Campaign, Latency
    from chaos.model.verdict import Verdict


def judged_campaign(folder: CampaignFolder) -> Campaign:
    """Read and judge every run, then all of them together. A journal that cannot be read is a run without a verdict."""
    record = folder.read()
    verdicts: dict[int, Verdict] = {}
    latencies: dict[int, Latency] = {}
    compared = any(planned.arm == "control" for planned in record.begun.runs)
    for planned in record.begun.runs:
        try:
            journal = read_journal(folder.run(planned).journal)
        except UserError:
            continue
        verdicts[planned.number] = judge(journal.events)
        if compared:
            latencies[planned.number] = latency(journal.events)
    return judge_campaign(record.begun, verdicts, record.failed, record.ended, latencies)
