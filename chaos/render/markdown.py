"""The verdict as GitHub-flavoured Markdown, for a CI job's summary page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from chaos.render import words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chaos.model.verdict import Verdict, WaveVerdict

MOST_ROWS = 100  # a job summary is limited to 1 MiB, and to patience
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|<>~@])")
_URL = re.compile(r"(https?):(//)", re.IGNORECASE)
MARKS = {"bad": "\u274c", "warn": "\u26a0\ufe0f", "good": "\u2705", "dim": "\u2754"}


def text(raw: str, limit: int = 500) -> str:
    """Text that Markdown leaves alone: no markup, no mention, no link, no table break comes of it."""
    escaped = _SPECIAL.sub(r"\\\1", words.one_line(raw, limit)).replace("&", "&amp;").replace("\\<", "&lt;")
    return _URL.sub(r"\1&#58;\2", escaped.replace("\\>", "&gt;"))


def span(raw: str) -> str:
    """A code span: inside it, `#123` is no link to an issue of the repository that happens to show the summary."""
    return "`" + words.one_line(raw, 500).replace("`", "'") + "`"


def code(raw: str) -> str:
    """A code block that no line can end."""
    fence = "```"
    content = words.clean(raw)
    while fence in content:
        fence += "`"
    return f"{fence}text\n{content}\n{fence}"


def rows(heads: list[str], cells: Iterable[list[str]]) -> list[str]:
    """The lines of a table, and how many rows it leaves out; none for none."""
    body = list(cells)
    if not body:
        return []
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in body[:MOST_ROWS]]
    if len(body) > MOST_ROWS:
        lines += ["", f"{len(body) - MOST_ROWS} more are in the report."]
    return [*lines, ""]


def summary_md(verdict: Verdict) -> str:
    """The whole summary."""
    look = words.outcome_look(verdict.outcome)
    manner = words.DOT.join(words.wedge_words(verdict)) or words.OUTCOME_MEANINGS[verdict.outcome]
    side = f"{words.DOT}side: {text(verdict.wedge.side) or 'unknown'}" if verdict.wedge else ""
    lines = [
        f"## {MARKS[look.tone]} {look.word}: {text(words.run_name(verdict.scenario, verdict.target))}",
        "",
        f"**{text(words.headline(verdict)) or 'There is no more to say.'}**",
        "",
        f"{manner}{side}",
        "",
        *(f"- {text(reason)}" for reason in verdict.reasons),
        *([""] if verdict.reasons else []),
        f"{words.axes_words(verdict)}",
        "",
    ]
    left = words.leaving_words(verdict)
    if left:
        lines += ["**On leaving**", "", *(f"- {text(told)}" for told in left), ""]
    for name, found in zip(("Likely cause", "Seen in the logs"), words.causes_and_signs(verdict), strict=True):
        for cause in found:
            known = words.cause_reference(cause)
            lines += [
                f"**{name}:** {text(cause.title)}" + (f": {span(known)}" if known else ""),
                "",
                code(cause.line),
                "",
            ]
    lines += rows(
        ["path", "serves", f"fresh requests {text(words.after_words(verdict))}"],
        ([text(path.path), _answer(words.path_look(path)), text(words.path_words(path))] for path in verdict.paths),
    )
    lines += rows(
        ["wave", "cycle", "how", "census", "sessions", "server aborts", "landed"],
        (
            [
                text(wave.wave),
                str(wave.cycle),
                text(wave.how),
                text(words.census(wave.phases)),
                str(wave.sessions),
                "unknown" if wave.server_aborts is None else str(wave.server_aborts),
                f"{MARKS[words.met_look(wave.landed).tone]} {text(_landed(wave))}",
            ]
            for wave in verdict.waves
        ),
    )
    lines += rows(
        ["question", "answer", "establishes", "evidence"],
        (
            [
                text(finding.question),
                words.answer_word(finding.answer),
                finding.outcome.value if finding.outcome is not None else "",
                text("; ".join(item.text for item in finding.evidence)),
            ]
            for finding in verdict.findings
        ),
    )
    inside = words.saved_words(verdict)
    if inside:
        lines += ["**Saved from inside**", "", *(f"- {text(told)}" for told in inside[:MOST_ROWS]), ""]
    if verdict.not_examined:
        lines += ["**Not examined**", "", *(f"- {text(thing)}" for thing in verdict.not_examined[:MOST_ROWS]), ""]
    lines += [f"Run {span(verdict.run_id)}, judge {text(verdict.judge_version)}"]
    return "\n".join(lines) + "\n"


def _answer(look: words.Look) -> str:
    return f"{MARKS[look.tone]} {look.word}"


def _landed(wave: WaveVerdict) -> str:
    router = words.router_words(wave, wave.router_spread_ms)
    return words.landed_words(wave) + (f"; {router}" if router else "")
