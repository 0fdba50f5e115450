"""A campaign on a terminal: the rate, the doses, the runs that broke, in one panel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from chaos.render import words
from chaos.render.campaign import told
from chaos.render.panel import BULLET, WIDEST

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, ConsoleOptions, RenderResult

    from chaos.model.campaign import Campaign, Dose

MOST_REASONS = 8
MOST_DOSES = 20
BAR = 20  # columns that stand for all trials


@dataclass(frozen=True, slots=True)
class CampaignPanel:
    """A campaign that lays itself out for the console it is printed on."""

    campaign: Campaign

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay out for this console's width and encoding."""
        yield self._panel(min(WIDEST, options.max_width), plain=options.ascii_only)

    def _panel(self, width: int, *, plain: bool) -> Panel:
        campaign = self.campaign
        look = told.look(campaign)

        def text(content: str, style: str = "") -> Text:
            content = words.one_line(content)
            return Text(words.ascii_only(content) if plain else content, style=style, overflow="fold")

        glyph = words.ascii_only(look.glyph) if plain else look.glyph
        banner = Text(f" {glyph} {look.word} ", words.RICH_BANNERS[look.tone])
        banner.append("  ")
        banner.append_text(text(f"worst of {words.count(len(campaign.trials), 'run')}", "bold"))
        rows = Table.grid(padding=(0, 1, 0, 0), expand=True)
        rows.add_column(width=8, style="dim")
        rows.add_column(ratio=1, overflow="fold")
        for label, lines in self._sections():
            for at, line in enumerate(lines):
                rows.add_row(label if at == 0 else "", text(line))
        return Panel(
            Group(banner, Text(), text(told.headline(campaign), "bold"), Text(), rows),
            title=text(words.run_name(campaign.scenario, campaign.target)),
            title_align="left",
            border_style=words.RICH_STYLES[look.tone],
            width=width,
            padding=(1, 2) if width >= 72 else (0, 1),
        )

    def _sections(self) -> Iterable[tuple[str, list[str]]]:
        campaign = self.campaign
        doses = [line for dose in campaign.doses[:MOST_DOSES] for line in _dose(dose, several=len(campaign.doses) > 1)]
        yield "trials", doses
        speeds = [(f"{one.dose}: " if one.dose else "", one.told.removeprefix("speed ")) for one in campaign.speed]
        yield "speed", ["".join(parts) for parts in speeds]
        reasons = [f"{BULLET} {reason}" for reason in campaign.reasons if not _is_a_dose(campaign, reason)]
        if len(reasons) > MOST_REASONS:
            more = len(reasons) - MOST_REASONS + 1
            reasons = [*reasons[: MOST_REASONS - 1], f"{BULLET} and {words.count(more, 'more line')} (see the report)"]
        yield "why", reasons
        yield "run", [told.axes_words(campaign)]


def _dose(dose: Dose, *, several: bool) -> Iterable[str]:
    name = f"{dose.dose}: " if several else ""
    share = dose.broke.hits / dose.broke.of if dose.broke else 0.0
    filled = max(round(share * BAR), 1 if share else 0)
    bar = "\u2588" * filled + "\u2591" * (BAR - filled) + " " if dose.broke else ""
    yield f"{bar}{name}{dose.told if several else told.counts_words(dose)}"
    yield f"{told.outcomes_words(dose.outcomes)}" + (f"; {dose.survived}" if several and dose.survived else "")


def _is_a_dose(campaign: Campaign, reason: str) -> bool:
    """Whether a reason says what the lines of the doses, or of their speed, say."""
    if any(reason.endswith(one.told) for one in campaign.speed):
        return True
    return any(dose.dose and reason.startswith(f"{dose.dose}: ") for dose in campaign.doses)


def campaign_panel(campaign: Campaign) -> CampaignPanel:
    """A rich renderable of the campaign."""
    return CampaignPanel(campaign)
