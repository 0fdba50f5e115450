"""The report: one self-contained page that tells the verdict without JavaScript and shows the timeline with it."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from chaos.render import about, sections, words
from chaos.render.markup import Html, h, join
from chaos.render.record import Record
from chaos.render.timeline import build_timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chaos.model.events import AnyEvent
    from chaos.model.verdict import Verdict
    from chaos.render.panes.pane import KeyEntry
    from chaos.render.timeline import Timeline

# No request leaves the page, whatever a log line in it says: the browser is told so, too.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
_JSON_IN_HTML = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_SYMBOLS = {
    "circle": "\u25cf", "triangle-up": "\u25b2", "x": "\u2716", "diamond-open": "\u25c7", "star": "\u2605",
    "diamond": "\u25c6", "line-ns-open": "|", "triangle-down": "\u25bc", "star-diamond": "\u2726",
    "square-open": "\u25a1", "area": "\u25a0",
}  # fmt: skip
_DASHES = {"solid": "\u2501\u2501\u2501", "dash": "\u2501 \u2501", "dot": "\u2509\u2509\u2509",
           "dashdot": "\u2501\u00b7\u2501", "longdash": "\u2501\u2501 \u2501",
           "longdashdot": "\u2501\u2501\u00b7"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReportExtras:
    """What the report cannot learn from the events: how to run it again, and what lies beside it."""

    repeat: tuple[str, ...] = ()  # shell lines
    folder: str = ""  # name of the run folder
    files: tuple[str, ...] = ()  # relative to the folder, beside the report
    target_kind: str = ""


def report_html(events: Iterable[AnyEvent], verdict: Verdict, extras: ReportExtras) -> str:
    """The whole page; it needs no network and no other file."""
    record = Record()
    for event in events:
        record.feed(event)
    timeline = build_timeline(record)
    look = words.outcome_look(verdict.outcome)
    name = words.run_name(verdict.scenario, extras.target_kind or verdict.target)
    parts = [
        sections.banner(verdict, name, record),
        sections.contents(),
        sections.causes(verdict),
        sections.paths(verdict),
        sections.waves(verdict),
        sections.evidence(record),
        _timeline_section(timeline),
        sections.findings(verdict),
        sections.story(record),
        sections.inside(verdict),
        sections.not_examined(verdict),
        about.deployment(record),
        about.repeat(extras.repeat),
        about.about(verdict, record, folder=extras.folder, files=extras.files),
    ]
    scripts = join(
        [
            h("script", Html(embed_json(timeline.figure)), type="application/json", id="figure"),
            h("script", Html(plotly_gzip_base64()), type="text/plain", id="plotly"),
            h("script", Html(_file("page.js"))),
        ]
    )
    return page(f"{look.word} \u00b7 {name}", look.tone, parts, scripts)


def page(title: str, tone: str, parts: Iterable[Html], scripts: Html = Html("")) -> str:  # noqa: B008 - immutable
    """A whole page of our own in one file: the parts one below the other."""
    head = h(
        "head",
        h("meta", charset="utf-8"),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        h("meta", name="color-scheme", content="light dark"),
        h("title", title),
        h("style", Html(_file("page.css"))),
        h("noscript", h("style", Html("#chart { min-height: 0 !important; }"))),
    )
    body = h("body", h("main", *parts), scripts, cls=f"tone-{tone}")
    return "<!doctype html>\n" + h("html", head, "\n", body, lang="en") + "\n"


def embed_json(value: Mapping[str, object]) -> str:
    """JSON that cannot end the script element it stands in, whatever its strings hold."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escaped in _JSON_IN_HTML.items():
        text = text.replace(character, escaped)
    return text


@cache
def plotly_gzip_base64() -> str:
    """plotly.js, compressed: 2 MB in the page instead of 4.8; the browser inflates it after the page has been drawn."""
    script = resources.files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    return base64.b64encode(gzip.compress(script, 9, mtime=0)).decode()


def _file(name: str) -> str:
    return resources.files("chaos.render").joinpath(name).read_text("utf-8")


def _timeline_section(timeline: Timeline) -> Html:
    keys = [
        h("div", h("h3", title), h("ul", *map(_key_entry, entries)), cls="key-pane")
        for title, entries in timeline.key
        if entries
    ]
    waiting = (
        "The timeline is drawn by JavaScript. Without it, \u201cWhat happened\u201d below tells the same in words."
    )
    chart = h("div", h("p", waiting, cls="quiet", id="chart-note"), id="chart", style=f"min-height:{timeline.height}px")
    if not timeline.key:
        chart = h("p", "No event to draw.", cls="quiet")
    notes = [h("p", note, cls="quiet") for note in timeline.notes]
    hint = h("p", "Shaded orange: a fault and the time allowed for the dust to settle. Grey: every other phase of the "
             "run. Drag sideways to zoom, double-click to see all.", cls="quiet") if timeline.key else ""  # fmt: skip
    return sections.section("timeline", "Timeline", hint, chart, h("div", *keys, cls="key"), *notes)


def _key_entry(entry: KeyEntry) -> Html:
    kind, _, dash = entry.mark.partition("-")
    mark = _DASHES.get(dash) if kind == "line" else None
    swatch = h("span", mark or _SYMBOLS.get(entry.mark, "\u25cf"), cls=f"swatch role-{entry.role}", aria_hidden="true")
    return h(
        "li", h("button", swatch, " ", entry.text, type="button", data_trace=str(entry.trace), aria_pressed="true")
    )
