"""A campaign as people and CI systems read it: a panel, a page that links its runs, JUnit, Markdown, a line per run."""

from __future__ import annotations

from chaos.render.campaign.junit import campaign_junit
from chaos.render.campaign.markdown import campaign_md
from chaos.render.campaign.page import campaign_html
from chaos.render.campaign.panel import campaign_panel
from chaos.render.campaign.told import named, run_line

__all__ = ["campaign_html", "campaign_junit", "campaign_md", "campaign_panel", "named", "run_line"]
