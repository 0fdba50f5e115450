"""The words, glyphs and tones that every renderer shares, so that the same thing is called the same everywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.model.outcomes import Answer, Cleanup, ExitCode, Outcome, RunStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chaos.model import events as ev
    from chaos.model.verdict import Cause, PathVerdict, Verdict, WaveVerdict

# C0 and C1 controls but tab and newline, the BOM's relatives and lone surrogates: none may reach a terminal or XML.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# Bidirectional controls can make a log line read as something else than it says.
_BIDI = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_SPACE = re.compile(r"\s+")

_ASCII = {
    "\u2714": "+", "\u2716": "x", "\u25b2": "!", "\u25cf": "*", "?": "?", "\u2013": "-", "\u2014": "-",
    "\u00b7": "|", "\u2022": "*", "\u2026": "...", "\u2192": "->", "\u2265": ">=", "\u2264": "<=", "\u00d7": "x",
    "\u2588": "#", "\u258c": "=", "\u2591": ".", "\u2500": "-", "\u2018": "'", "\u2019": "'",
    "\u201c": '"', "\u201d": '"', "\u00a0": " ",
}  # fmt: skip

ROUTINE_LOOKS = ("baseline", "end")
DOT = " \u00b7 "
IMPORTED = "imported evidence"
AFTER = "after the last fault"
CENSUS_PHASES = ("connecting", "waiting", "streaming", "thinking", "done", "none")


@dataclass(frozen=True, slots=True)
class Look:
    """How one value looks: a word and a glyph carry it, the tone (a CSS class and a rich style) only helps."""

    word: str
    glyph: str
    tone: str  # bad | warn | good | dim


_OUTCOME_TONES = {
    Outcome.HEALTHY: "good",
    Outcome.INCONCLUSIVE: "dim",
    Outcome.OVERLOADED: "warn",
    Outcome.SLOW_RECOVERY: "warn",
    Outcome.DEGRADED: "warn",
    Outcome.DAMAGED: "warn",
}
GLYPHS = {"bad": "\u2716", "warn": "\u25b2", "good": "\u2714", "dim": "?"}

RICH_STYLES = {"bad": "red", "warn": "yellow", "good": "green", "dim": "cyan"}
RICH_BANNERS = {
    "bad": "bold white on red",
    "warn": "bold black on yellow",
    "good": "bold white on green",
    "dim": "bold black on cyan",
}

OUTCOME_MEANINGS = {
    Outcome.CORRUPTED: "answers carried wrong content",
    Outcome.CRASHED: "a process on the failing path died, and not by our hand",
    Outcome.WEDGED: "fresh requests no longer complete",
    Outcome.RESTARTED: "a process was replaced without our doing",
    Outcome.LEAKING: "something did not come back to its idle floor",
    Outcome.DAMAGED: "fatal evidence, whether or not fresh requests pass",
    Outcome.DEGRADED: "slower than the control run at the same load",
    Outcome.SLOW_RECOVERY: "serves again, later than allowed",
    Outcome.OVERLOADED: "slow because of load; work progresses",
    Outcome.INCONCLUSIVE: "this run cannot tell",
    Outcome.HEALTHY: "everything serves and nothing required is unknown",
}

EXIT_MEANINGS = {
    ExitCode.AS_EXPECTED: "as expected",
    ExitCode.VIOLATION: "violation",
    ExitCode.USAGE: "invalid input",
    ExitCode.INCONCLUSIVE: "inconclusive",
    ExitCode.HARNESS_ERROR: "harness error",
    ExitCode.REFUSED: "refused",
    ExitCode.UNFIT: "target unfit",
    ExitCode.CLEANUP_INCOMPLETE: "cleanup incomplete",
    ExitCode.VIOLATION_AND_CLEANUP: "violation, cleanup incomplete",
    ExitCode.INTERRUPTED: "interrupted",
}


def outcome_look(outcome: Outcome) -> Look:
    """How an outcome looks."""
    tone = _OUTCOME_TONES.get(outcome, "bad")
    return Look(outcome.value.upper(), GLYPHS[tone], tone)


def answer_look(answer: Answer, *, bad: bool = False) -> Look:
    """How an answer looks; `bad` says that the finding established a bad outcome. Yes is not always good news."""
    if bad:
        return Look(answer_word(answer), GLYPHS["bad"], "bad")
    tones = {Answer.UNKNOWN: "warn", Answer.NOT_APPLICABLE: "dim"}
    glyphs = {Answer.YES: "\u2714", Answer.NO: "\u2013", Answer.UNKNOWN: "?", Answer.NOT_APPLICABLE: "\u00b7"}
    return Look(answer_word(answer), glyphs[answer], tones.get(answer, "plain"))


def met_look(answer: Answer) -> Look:
    """How the answer to "does this path serve?" or "did it land?" looks: here yes is good and no is bad."""
    tone = {Answer.YES: "good", Answer.NO: "bad", Answer.UNKNOWN: "warn", Answer.NOT_APPLICABLE: "dim"}[answer]
    glyph = {"good": "\u2714", "bad": "\u2716", "warn": "?", "dim": "\u00b7"}[tone]
    return Look(answer_word(answer), glyph, tone)


def answer_word(answer: Answer) -> str:
    """The answer as a short word."""
    return "n.a." if answer is Answer.NOT_APPLICABLE else answer.value


def clean(text: str, limit: int = 0) -> str:
    """Text without terminal escapes, control and direction characters, cut to `limit` characters when given.

    Log lines are written by others: nothing in them may move a cursor, colour a terminal or break an XML file.
    """
    text = _BIDI.sub("", _CONTROL.sub("", _ANSI.sub("", text)))
    return text if not limit or len(text) <= limit else text[: limit - 1] + "\u2026"


def one_line(text: str, limit: int = 0) -> str:
    """As `clean`, with every run of white space made one blank."""
    return clean(_SPACE.sub(" ", clean(text)).strip(), limit)


def ascii_only(text: str) -> str:
    """The same text for a terminal that shows ASCII only."""
    return "".join(_ASCII.get(c, c) for c in text).encode("ascii", "replace").decode()


def finite(value: float, most: float = 1e12) -> float:
    """The value, or 0 for one that is no number or beyond all sense: drawing must survive what a probe misread."""
    return value if -most <= value <= most else 0.0


def span(seconds: float) -> str:
    """A duration for people: `0.24 s`, `12.3 s`, `6m 12s`, `2h 05m`."""
    if not -1e9 <= seconds <= 1e9:
        return f"{seconds:.3g} s"
    if seconds < 0:
        return "-" + span(-seconds)
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


def number(value: float) -> str:
    """A gauge or a rate for people: whole numbers without a point."""
    if value != value or value in {float("inf"), float("-inf")}:  # noqa: PLR0124 - the test for NaN
        return str(value)
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", "\u00a0") if abs(value) >= 10_000 else f"{value:.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def count(n: int, noun: str, plural: str = "") -> str:
    """`1 wave`, `2 waves`."""
    return f"{n} {noun if n == 1 else plural or noun + 's'}"


def census(phases: Mapping[str, int], join: str = DOT) -> str:
    """A census in the order of a request's life: `waiting 43 \u00b7 streaming 17`; empty phases are left out."""
    if not phases:
        return "census unknown"
    return join.join(f"{clean(name)} {n}" for name, n in in_order(phases)) or "nobody"


def in_order(phases: Mapping[str, int]) -> list[tuple[str, int]]:
    """The phases that anybody was in, in the order of a request's life."""
    order = {phase: i for i, phase in enumerate(CENSUS_PHASES)}
    met = [(name, n) for name, n in phases.items() if n > 0]
    return sorted(met, key=lambda item: (order.get(item[0], len(order)), item[0]))


def wedge_words(verdict: Verdict) -> tuple[str, ...]:
    """`silent`, `total`, `confirmed` or their opposites; nothing when it is no wedge."""
    wedge = verdict.wedge
    if wedge is None:
        return ()
    return (
        "silent" if wedge.silent else "loud",
        "total" if wedge.total else "partial",
        "confirmed" if wedge.confirmed else "not confirmed",
    )


def cause_reference(cause: Cause) -> str:
    """`sglang PR #1 \u00b7 fixed in 0.5.16`; empty where nobody upstream is known to have told of it."""
    fixed = f"fixed in {cause.fixed_in}" if cause.fixed_in else "no fixed version known"
    return clean(f"{cause.upstream} \u00b7 {fixed}") if cause.upstream else ""


def causes_and_signs(verdict: Verdict) -> tuple[tuple[Cause, ...], tuple[Cause, ...]]:
    """What is likely to be why, and what was merely logged.

    A symptom may follow from the trouble. Where nothing is established, or texts were mixed up, everything was logged.
    """
    if verdict.outcome in (Outcome.INCONCLUSIVE, Outcome.CORRUPTED):
        return (), verdict.causes
    likely = tuple(cause for cause in verdict.causes if not cause.symptom)
    return likely, tuple(cause for cause in verdict.causes if cause.symptom)


def path_words(path: PathVerdict) -> str:
    """What fresh requests did on a path after the last fault, or since the load began where none struck."""
    parts = [f"{path.passed} of {count(path.canaries, 'canary', 'canaries')} in time"]
    parts += [f"{n} {word}" for n, word in ((path.late, "late"), (path.failed, "failed")) if n]
    if path.unfinished:
        parts.append(f"{path.unfinished} never finished")
    if path.recovered_s is not None:
        parts.append(f"recovered after {span(path.recovered_s)}")
    if not path.canaries:
        parts = [f"no canary begun {path.after or AFTER}"]
    return clean(", ".join([*parts, path.note] if path.note else parts))


def after_words(verdict: Verdict) -> str:
    """Since when fresh requests are counted: after the last fault, or since the load began where none struck."""
    return clean(next((path.after for path in verdict.paths if path.after), AFTER))


def leaving_words(verdict: Verdict) -> list[str]:
    """What a stopped run did to the target on its way out; nothing where it hung up on nobody."""
    return [] if verdict.leaving is None else [clean(told) for told in verdict.leaving.told]


def size(number: int) -> str:
    """A size for people: `800 B`, `153 kB`, `1.2 MB`."""
    if number < 1000:
        return f"{number} B"
    return f"{number / 1000:.0f} kB" if number < 1_000_000 else f"{number / 1e6:.1f} MB"


def saved_words(verdict: Verdict) -> list[str]:
    """What lies in the run folder of the deployment's inside; of looks at threads only what they show to be gone.

    A node whose threads are all there is not worth a line, so the first snapshot with the most to tell speaks for it.
    """
    told = []
    for one in verdict.saved:
        gone = [text for text in one.shows if "gone" in text]
        if one.reason in ROUTINE_LOOKS and not gone:
            continue
        shows = "; ".join(gone or one.shows) or "no stacks"
        told.append(clean(f"{one.folder}: {count(one.files, 'file')}, {size(one.size)}; {shows}"))
    return told


def aborts_words(wave: WaveVerdict) -> str:
    """How many requests the servers themselves called aborted; unknown is not zero."""
    return "server aborts unknown" if wave.server_aborts is None else count(wave.server_aborts, "server abort")


def hit_words(wave: WaveVerdict) -> str:
    """What a wave hit: how many sessions and in which phases they were; or which nodes, and what went on meanwhile."""
    if wave.kind == "kill":
        sessions = count(wave.sessions, "session") if wave.sessions or wave.phases else "sessions nobody counted"
        return clean(f"{wave.how} of {sessions}: {census(wave.phases)}")
    nodes = f": {', '.join(wave.nodes)}" if wave.nodes else ""
    return clean(f"{wave.how}{nodes}; sessions: {census(wave.phases)}")


def landed_words(wave: WaveVerdict) -> str:
    """Whether the wave met its aim, and what it missed; of a poison also how its requests ended, or that they hang."""
    words = {
        Answer.YES: "landed",
        Answer.NO: "did NOT land",
        Answer.UNKNOWN: "landed: unknown",
        Answer.NOT_APPLICABLE: "no aim",
    }[wave.landed]
    ends = ", ".join(f"{number} {how}" for how, number in wave.ends.items() if number)
    return clean(words + (f" ({'; '.join(wave.unmet)})" if wave.unmet else "") + (f": {ends}" if ends else ""))


def router_words(wave: WaveVerdict | ev.WaveFired, spread_ms: float | None) -> str:
    """How simultaneous a wave was where it arrived, by the router's own kernel; empty where nobody asked it."""
    if wave.router_closed is None:
        return clean(f"at the router: unknown ({wave.router_unknown})") if wave.router_unknown else ""
    of = f" of {wave.router_watched}" if wave.router_closed < wave.router_watched else ""
    noun = "connection" if wave.router_watched == 1 else "connections"
    within = "" if spread_ms is None else f" within {number(spread_ms)} ms"
    return f"{wave.router_closed}{of} {noun} gone at the router{within}"


def axes_words(verdict: Verdict) -> str:
    """The run and cleanup axes, the exit code and how long it took."""
    code = ExitCode(verdict.exit_code)
    ours = [verdict.status.value, f"cleanup {verdict.cleanup.value}"]
    parts = [
        *([IMPORTED] if verdict.imported else ours),
        f"exit {int(code)} ({EXIT_MEANINGS[code]})",
        span(verdict.duration_s),
    ]
    return DOT.join(parts)


def untidy(verdict: Verdict) -> bool:
    """Whether our own run did not come to an ordinary end."""
    return not verdict.imported and (verdict.status is not RunStatus.COMPLETED or verdict.cleanup is not Cleanup.CLEAN)


def path_look(path: PathVerdict) -> Look:
    """Whether a path serves, in words that cannot be misread."""
    if path.tardy:
        return Look("serves, too late", "!", "warn")
    look = met_look(path.serves)
    word = {
        Answer.YES: "serves",
        Answer.NO: "does NOT serve",
        Answer.UNKNOWN: "unknown",
        Answer.NOT_APPLICABLE: "not examined",
    }[path.serves]
    return Look(word, look.glyph, look.tone)


def run_name(scenario: str, target: str) -> str:
    """What ran on what."""
    return one_line(f"{scenario or 'a scenario that was never read'} on {target or 'an unknown target'}")


def headline(verdict: Verdict) -> str:
    """The headline without the outcome's word, which every renderer already shows large."""
    text = one_line(verdict.headline)
    prefix = f"{outcome_look(verdict.outcome).word}: "
    if text.upper().startswith(prefix):
        text = text[len(prefix) :]
    return text[:1].upper() + text[1:]
