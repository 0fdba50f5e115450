"""Campaigns: one scenario run several times, each time on a freshly started deployment.

planned   which runs, in which order
play      makes them one after the other and knows when to stop
judged    the verdict over all of them, from the folder alone
"""

from __future__ import annotations

from chaos.campaign.judged import judged_campaign
from chaos.campaign.planned import Run, planned_runs
from chaos.campaign.play import MOST_FAILED_IN_A_ROW, play

__all__ = ["MOST_FAILED_IN_A_ROW", "Run", "judged_campaign", "planned_runs", "play"]
