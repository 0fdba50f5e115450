"""The run while it runs: a screen that fits 80x24 and shrinks below, or plain lines where nobody watches a terminal."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from chaos.model.failures import failure_words
from chaos.render import words
from chaos.render.metrics import short_name
from chaos.render.plain import PlainLines
from chaos.render.watch import Watch
from chaos.render.words import DOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from rich.console import ConsoleOptions, RenderResult

    from chaos.model.events import AnyEvent
    from chaos.render.watch import PathWatch, WaveSeen

REFRESH_PER_S = 4
LABEL = 10
BAR = 30
MOST_PATH_LINES = 5
MOST_WAVE_LINES = 2
_BAR_STYLES = {"connecting": "blue", "waiting": "yellow", "streaming": "green", "thinking": "cyan"}
_COLOURS = {"none": ("\u00b7", "dim"), "green": ("\u2714", "green"), "red": ("\u2716", "red")}


class LiveView:
    """Listens to a run and shows it. Never raises from `on_event`: a view must not end what it looks at.

    Drawing happens on rich's thread, so a terminal that does not read cannot stall the run; `on_event` only folds.
    """

    def __init__(self, console: Console | None = None, *, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._console = console or Console()
        self._clock = clock
        self._lock = threading.Lock()
        self._watch = Watch()
        self.missed = 0  # events that this view could not take in
        self._plain: PlainLines | None = None
        self._live: Live | None = None
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            self._plain = PlainLines(self._console.file)
            return
        self._live = Live(
            self,
            console=self._console,
            refresh_per_second=REFRESH_PER_S,
            transient=True,
            vertical_overflow="crop",
        )

    def __enter__(self) -> Self:
        """Begin to draw."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Clear the screen's lines; the verdict panel follows."""
        if self._live is not None:
            try:
                self._live.stop()
            except (OSError, ValueError):  # the terminal went away
                self._live = None

    def on_event(self, event: AnyEvent) -> None:
        """Take in one event."""
        try:
            if self._plain is not None:
                self._plain.on_event(event)
                return
            with self._lock:
                self._watch.feed(event)
        except Exception:  # noqa: BLE001 - whatever is wrong with an event or with us, the run goes on
            self.missed += 1

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw what is known now, cut to the height and width of the terminal."""
        height = (options.height or console.size.height) - 1
        with self._lock:
            lines = list(screen(self._watch, options.max_width, self._clock()))
        for _, line in _fit(lines, height):
            if options.ascii_only:
                line = _in_ascii(line)  # noqa: PLW2901 - the same line, in another alphabet
            line.truncate(options.max_width, overflow="crop" if options.ascii_only else "ellipsis")
            line.no_wrap = True
            yield line


def _in_ascii(line: Text) -> Text:
    return Text.assemble(
        *((words.ascii_only(line.plain[start:end]), style) for start, end, style in _runs(line)), end=line.end
    )


def _runs(line: Text) -> Iterable[tuple[int, int, str]]:
    edges = sorted({0, len(line.plain), *(span.start for span in line.spans), *(span.end for span in line.spans)})
    for start, end in pairwise(edges):
        styles = [str(span.style) for span in line.spans if span.start <= start and span.end >= end]
        yield start, end, " ".join(styles)


def _fit(lines: list[tuple[int, Text]], height: int) -> list[tuple[int, Text]]:
    """Drop the least important lines (highest number first, later ones first) until the rest fits."""
    kept = list(lines)
    while len(kept) > max(1, height):
        worst = max(range(len(kept)), key=lambda i: (kept[i][0], i))
        del kept[worst]
    return kept


def screen(watch: Watch, width: int, now_ns: int) -> Iterable[tuple[int, Text]]:
    """The lines of the view with their importance (0 stays longest)."""
    yield 0, _title(watch, now_ns)
    yield 9, Text("\u2500" * width, style="dim")
    yield from _sessions(watch, width)
    yield from _canaries(watch, now_ns)
    yield from _queues(watch)
    aborts = DOT.join(f"{node} {n}" for node, n in sorted(watch.aborts.items()))
    yield 5, _line("aborts", aborts or "none seen in the logs")
    yield from _waves(watch, now_ns)
    yield from _log(watch)
    if watch.liveness:
        health = DOT.join(f"{node} {status}" for node, status in sorted(watch.liveness.items()))
        yield 6, _line("/health", health)
    yield 7, _ourselves(watch)


def _line(label: str, content: str | Text, style: str = "") -> Text:
    line = Text(label.ljust(LABEL), style="")
    line.stylize("dim")
    line.append_text(content if isinstance(content, Text) else Text(words.one_line(content), style=style))
    return line


def _title(watch: Watch, now_ns: int) -> Text:
    line = Text(words.run_name(watch.scenario, watch.target) if watch.scenario else "starting", style="")
    line.stylize("bold")
    line.append(f"  {watch.phase.upper()}", style="bold magenta")
    line.append(f" {words.span(max(0, now_ns - watch.phase_ns) / 1e9)}" if watch.phase_ns else "")
    line.append(f"  elapsed {words.span(watch.elapsed_s(now_ns))}", style="dim")
    if watch.cycle:
        line.append(f"  cycle {watch.cycle} of {max(watch.cycles, watch.cycle)}", style="dim")
    return line


def _sessions(watch: Watch, width: int) -> Iterable[tuple[int, Text]]:
    phases = watch.phases()
    if not phases:
        yield 4, _line("sessions", "no load")
        return
    most = max(1, *phases.values())
    bar = max(4, min(BAR, width - LABEL - 20))
    named = [*_BAR_STYLES, *(phase for phase in phases if phase not in _BAR_STYLES and phase not in ("none", "done"))]
    for i, phase in enumerate(named):
        n = phases.get(phase, 0)
        line = Text(f"{words.one_line(phase, 10):<10} {n:>5} ")
        line.append("\u2588" * max(bool(n), round(n / most * bar)), style=_BAR_STYLES.get(phase, "white"))
        yield 3 if n else 8, _line("sessions" if i == 0 else "", line)


def _canaries(watch: Watch, now_ns: int) -> Iterable[tuple[int, Text]]:
    paths = sorted(watch.paths.items(), key=lambda item: (item[1].colour != "red", item[0]))
    if not paths:
        yield 4, _line("canaries", "none yet")
    for i, (name, path) in enumerate(paths[:MOST_PATH_LINES]):
        yield 1 if i == 0 else 4, _line("canaries" if i == 0 else "", _canary(name, path, now_ns))
    if len(paths) > MOST_PATH_LINES:
        red = sum(path.colour == "red" for _, path in paths)
        yield 5, _line("", f"{len(paths) - MOST_PATH_LINES} more paths; {red} of {len(paths)} red")


def _canary(name: str, path: PathWatch, now_ns: int) -> Text:
    glyph, style = _COLOURS[path.colour]
    line = Text(f"{glyph} {words.one_line(name, 24):<20} ", style="")
    line.stylize(style)
    if path.overdue:
        oldest = max(0, now_ns - min(path.overdue.values())) / 1e9
        line.append(f"{len(path.overdue)} overdue, the oldest open for {words.span(oldest)}", style=style)
    elif path.last_s is None:
        line.append("waiting for the first answer", style="dim")
    elif path.last_error:
        why = words.one_line(failure_words(path.last_error), 40)
        line.append(f"failed after {words.span(path.last_s)}: {why}", style=style)
    else:
        line.append(f"{words.span(path.last_s)}, {path.in_a_row} in a row", style=style)
    return line


def _queues(watch: Watch) -> Iterable[tuple[int, Text]]:
    nodes: dict[str, list[str]] = {}
    for (node, name), value in watch.fresh_queues().items():
        nodes.setdefault(node, []).append(f"{short_name(name, node)} {words.number(value)}")
    nodes |= {node: ["unknown"] for node in watch.unread_queues()}
    for i, (node, gauges) in enumerate(sorted(nodes.items())[:4]):
        yield 4, _line("queues" if i == 0 else "", f"{node}: {DOT.join(gauges)}")


def _waves(watch: Watch, now_ns: int) -> Iterable[tuple[int, Text]]:
    for i, wave in enumerate(reversed(watch.waves[-MOST_WAVE_LINES:])):
        ago = words.span(max(0, now_ns - wave.at_ns) / 1e9)
        what = f"{wave.ordinal}. {_hit(wave)} {ago} ago{_undone(wave, now_ns)}: {words.census(wave.phases)}"
        yield 2 + i, _line("waves" if i == 0 else "", what, "bold" if i == 0 else "")
    if not watch.waves:
        yield 5, _line("waves", "none yet")


def _hit(wave: WaveSeen) -> str:
    return f"{wave.how}, {', '.join(wave.nodes)}" if wave.nodes else f"{wave.how} of {wave.sessions}"


def _undone(wave: WaveSeen, now_ns: int) -> str:
    return "" if wave.undone_ns is None else f", undone {words.span(max(0, now_ns - wave.undone_ns) / 1e9)} ago"


def _log(watch: Watch) -> Iterable[tuple[int, Text]]:
    counts = DOT.join(f"{klass} {n}" for klass, n in sorted(watch.hits.items()))
    if watch.last_fatal is None:
        yield 5, _line("log", counts or "nothing known seen")
        return
    hit = watch.last_fatal
    yield 1, _line("log", f"{hit.klass.upper()} {hit.node}: {hit.title or hit.signature}", "bold red")
    yield 6, _line("", hit.line, "red")
    yield 7, _line("", counts)


def _ourselves(watch: Watch) -> Text:
    lag = "lag unknown" if watch.lag_ms is None else f"lag {words.number(watch.lag_ms)} ms"
    reference = {None: "reference not asked", True: "reference ok", False: "reference FAILS"}[watch.reference_ok]
    lost = f" \u00b7 evidence lost {watch.lost} times" if watch.lost else ""
    return _line("ourselves", f"{lag} \u00b7 {reference}{lost}")
