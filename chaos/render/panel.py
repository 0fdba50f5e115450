"""The verdict on a terminal: understood in five seconds, at 60 columns, without colour, and in ASCII."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from chaos.model.outcomes import Answer
from chaos.render import words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from chaos.model.verdict import Cause, Verdict

WIDEST = 110  # longer lines are no longer read at a glance
SIDE_BY_SIDE = 120  # columns from which two panels fit beside each other
MOST_REASONS = 4
MOST_WAVES = 6
MOST_PATHS = 6
MOST_CAUSES = 2
MOST_UNSEEN = 4
MOST_SAVED = 2


BULLET = "\u2022"


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of a section: its marker stands in a column of its own, so that long lines hang under their start."""

    text: str
    mark: str = ""
    style: str = ""


@dataclass(frozen=True, slots=True)
class VerdictPanel:
    """A verdict that lays itself out for the console it is printed on."""

    verdict: Verdict
    title: str = ""
    width: int | None = None
    report: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay out for this console's width and encoding."""
        width = min(self.width or WIDEST, options.max_width)
        yield self._panel(width, plain=options.ascii_only)

    def _panel(self, width: int, *, plain: bool) -> Panel:
        verdict = self.verdict
        look = words.outcome_look(verdict.outcome)
        style = words.RICH_STYLES[look.tone]

        def text(content: str, text_style: str = "") -> Text:
            content = words.one_line(content)
            return Text(words.ascii_only(content) if plain else content, style=text_style, overflow="fold")

        banner = Text.assemble(
            (f" {words.ascii_only(look.glyph) if plain else look.glyph} {look.word} ", words.RICH_BANNERS[look.tone]),
            overflow="fold",
        )
        manner = words.wedge_words(verdict)
        banner.append("  ")
        banner.append_text(text(words.DOT.join(manner) or words.OUTCOME_MEANINGS[verdict.outcome], "bold"))
        rows = Table.grid(padding=(0, 1, 0, 0), expand=True)
        rows.add_column(width=8, style="dim")
        rows.add_column(width=1)
        rows.add_column(ratio=1, overflow="fold")
        for label, lines in self._sections():
            labels = label.split() if len(lines) > 1 else [label]
            for i, line in enumerate(lines):
                name = labels[i] if i < len(labels) else ""
                rows.add_row(name, text(line.mark, line.style), text(line.text, line.style))
        parts: list[RenderableType] = [banner, Text(), text(words.headline(verdict), "bold"), Text(), rows]
        name = self.title or words.run_name(verdict.scenario, verdict.target)
        return Panel(
            Group(*parts),
            title=text(name),
            title_align="left",
            border_style=style,
            width=width,
            padding=(1, 2) if width >= 72 else (0, 1),
        )

    def _sections(self) -> Iterable[tuple[str, list[_Line]]]:
        verdict = self.verdict
        yield "why", [_Line(reason, BULLET) for reason in _cut(verdict.reasons, MOST_REASONS, "reason")]
        yield "leaving", [_Line(told, BULLET, "bold yellow") for told in words.leaving_words(verdict)]
        if verdict.wedge is not None:
            yield "side", [_Line(verdict.wedge.side or "unknown", style="bold")]
        likely, signs = words.causes_and_signs(verdict)
        yield "cause", list(_cause_lines(likely[:MOST_CAUSES]))
        yield "logged", list(_cause_lines(signs[: max(MOST_CAUSES - len(likely), 0)]))
        yield "waves", list(self._wave_lines())
        yield "paths", list(self._path_lines())
        yield "saved", [_Line(told, BULLET) for told in _cut(words.saved_words(verdict), MOST_SAVED, "snapshot")]
        yield "unseen", [_Line(thing, BULLET) for thing in _cut(verdict.not_examined, MOST_UNSEEN, "thing")]
        axis = "judged" if verdict.imported else "run"
        yield axis, [_Line(words.axes_words(verdict), style="bold yellow" if words.untidy(verdict) else "")]
        if self.report:
            yield "report", [_Line(self.report)]

    def _path_lines(self) -> Iterable[_Line]:
        rank = {Answer.NO: 0, Answer.UNKNOWN: 1, Answer.YES: 2, Answer.NOT_APPLICABLE: 3}
        ordered = sorted(self.verdict.paths, key=lambda path: (rank[path.serves], not path.tardy))
        for path in ordered[:MOST_PATHS]:
            look = words.path_look(path)
            line = f"{path.path} {look.word}: {words.path_words(path)}"
            yield _Line(line, look.glyph, words.RICH_STYLES[look.tone])
        if len(ordered) > MOST_PATHS:
            rest = ordered[MOST_PATHS:]
            serving = sum(path.serves is Answer.YES for path in rest)
            yield _Line(f"{words.count(len(rest), 'more path')}, {serving} serving", BULLET)

    def _wave_lines(self) -> Iterable[_Line]:
        for ordinal, wave in enumerate(self.verdict.waves[:MOST_WAVES], 1):
            look = words.met_look(wave.landed)
            yield _Line(words.hit_words(wave), str(ordinal))
            landed = f"{words.landed_words(wave)}, {words.aborts_words(wave)}"
            yield _Line(landed, look.glyph, words.RICH_STYLES[look.tone])
            if router := words.router_words(wave, wave.router_spread_ms):
                yield _Line(router)
        if len(self.verdict.waves) > MOST_WAVES:
            rest = self.verdict.waves[MOST_WAVES:]
            landed_too = sum(wave.landed is Answer.YES for wave in rest)
            yield _Line(f"{words.count(len(rest), 'more wave')}, {landed_too} landed", BULLET)


def _cut(lines: Sequence[str], most: int, noun: str) -> list[str]:
    if len(lines) <= most:
        return list(lines)
    more = len(lines) - most + 1
    return [*lines[: most - 1], f"and {words.count(more, f'more {noun}')} (see the report)"]


def _cause_lines(causes: Sequence[Cause]) -> Iterable[_Line]:
    for cause in causes:
        yield _Line(cause.title, BULLET, "bold")
        known = words.cause_reference(cause)
        if known:
            yield _Line(known)


def verdict_panel(verdict: Verdict, width: int | None = None, *, title: str = "", report: str = "") -> VerdictPanel:
    """A rich renderable of the verdict; `report` is where the report can be opened."""
    return VerdictPanel(verdict, title=title, width=width, report=report)


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Verdicts beside each other where the console is wide enough, else below each other."""

    panels: tuple[VerdictPanel, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay out for this console's width."""
        if options.max_width < SIDE_BY_SIDE or len(self.panels) < 2:
            yield from self.panels
            return
        grid = Table.grid(padding=(0, 1), expand=True)
        for _ in self.panels:
            grid.add_column(ratio=1)
        grid.add_row(*self.panels)
        yield grid


def panels_side_by_side(titled: Sequence[tuple[str, Verdict]], *, reports: Sequence[str] = ()) -> SideBySide:
    """Panels of several runs; `reports`, when given, has one place for each."""
    places = [*reports, *[""] * (len(titled) - len(reports))]
    return SideBySide(
        tuple(
            VerdictPanel(verdict, title=title, report=place)
            for (title, verdict), place in zip(titled, places, strict=False)
        )
    )
