"""Renderers: they read a verdict and its events, show them, and decide nothing."""

from __future__ import annotations

from chaos.render.campaign import campaign_html, campaign_junit, campaign_md, campaign_panel, named, run_line
from chaos.render.html import ReportExtras, report_html
from chaos.render.junit import junit_xml
from chaos.render.live import LiveView
from chaos.render.markdown import summary_md
from chaos.render.panel import panels_side_by_side, verdict_panel
from chaos.render.plain import PlainLines

__all__ = [
    "LiveView",
    "PlainLines",
    "ReportExtras",
    "campaign_html",
    "campaign_junit",
    "campaign_md",
    "campaign_panel",
    "junit_xml",
    "named",
    "panels_side_by_side",
    "report_html",
    "run_line",
    "summary_md",
    "verdict_panel",
]
