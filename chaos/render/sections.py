"""The report's sections, each a function from verdict or record to markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.model.outcomes import Answer, ExitCode
from chaos.render import words
from chaos.render.evidence import NOTHING, evidence_rows, periods
from chaos.render.markup import Html, h, join, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from chaos.model.verdict import Cause, Evidence, Finding, Verdict, WaveVerdict
    from chaos.render.markup import Child
    from chaos.render.record import Record

MOST_SEQS = 6
SHORT_NAME = 40  # characters that are never broken over lines
OPEN_REASONS = 5
OPEN_CAUSES = 2
OPEN_FINDINGS = 40  # shown without unfolding
OPEN_STORY = 60  # moments shown without unfolding

_CONTENTS = (
    ("evidence", "Evidence"), ("timeline", "Timeline"), ("findings", "Findings"), ("story", "What happened"),
    ("inside", "Saved from inside"),
    ("not-examined", "Not examined"), ("deployment", "Deployment"), ("repeat", "Repeat"), ("about", "About"),
)  # fmt: skip


def section(name: str, title: str, *children: Child) -> Html:
    """A titled part of the page that can be linked to."""
    return h("section", h("h2", title), *children, id=name)


def contents() -> Html:
    """Links to the sections."""
    return h("nav", *(h("a", title, href=f"#{name}") for name, title in _CONTENTS), aria_label="Sections")


def banner(verdict: Verdict, name: str, record: Record) -> Html:
    """The verdict, readable from across a room."""
    look = words.outcome_look(verdict.outcome)
    manner = words.wedge_words(verdict) or (words.OUTCOME_MEANINGS[verdict.outcome],)
    code = ExitCode(verdict.exit_code)
    ours = [("run", verdict.status.value), ("cleanup", verdict.cleanup.value)]
    facts = [
        *([("judged", words.IMPORTED)] if verdict.imported else ours),
        ("exit code", f"{int(code)} \u00b7 {words.EXIT_MEANINGS[code]}"),
        ("duration", words.span(verdict.duration_s)),
    ]
    if verdict.wedge is not None:
        facts.insert(0, ("side", verdict.wedge.side or "unknown"))
    utc = record.started.utc if record.started else ""
    return h(
        "header",
        h("p", h("span", "pdchaos", cls="brand"), " ", h("span", name), " ", h("span", utc, cls="quiet"), cls="top"),
        h(
            "div",
            h("p", h("span", look.glyph, cls="glyph", aria_hidden="true"), h("span", look.word), cls="outcome"),
            h("ul", *(h("li", word) for word in manner), cls="chips"),
            cls="verdict",
        ),
        h("h1", *_unbroken(words.headline(verdict) or "There is no more to say.")),
        _left(verdict),
        _reasons(verdict.reasons),
        h("dl", *(h("div", h("dt", key), h("dd", value)) for key, value in facts), cls="facts"),
        cls=f"banner {look.tone}",
    )


def _left(verdict: Verdict) -> Html:
    """What a stopped run did to the target on its way out, before all reasons: people act on it."""
    told = words.leaving_words(verdict)
    if not told:
        return Html("")
    return h("div", h("h3", "On leaving"), h("ul", *(h("li", one) for one in told)), cls="leaving")


def _reasons(reasons: tuple[str, ...]) -> Html:
    if not reasons:
        return Html("")
    first = h("ol", *(h("li", reason) for reason in reasons[:OPEN_REASONS]), cls="reasons")
    rest = reasons[OPEN_REASONS:]
    if not rest:
        return first
    start = str(OPEN_REASONS + 1)
    more = h("ol", *(h("li", reason) for reason in rest), cls="reasons", start=start)
    return join([first, h("details", h("summary", words.count(len(rest), "more reason")), more)])


def causes(verdict: Verdict) -> Html:
    """What the logs say about why, with upstream reference and the version that mends it; and what else they say."""
    likely, signs = words.causes_and_signs(verdict)
    title = "Likely cause" if len(likely) == 1 else "Likely causes"
    return join([_told("cause", title, likely), _told("logged", "Seen in the logs", signs)])


def _told(name: str, title: str, found: Sequence[Cause]) -> Html:
    cards = []
    for cause in found:
        facts: list[tuple[str, Child]] = [
            ("side", cause.side or "unknown"),
            ("upstream", cause.upstream or "no reference known"),
            ("fixed in", cause.fixed_in or "no version known"),
            ("events", _seqs(cause.seqs)),
        ]
        cards.append(
            h(
                "article",
                h("h3", cause.title),
                h("dl", *(h("div", h("dt", key), h("dd", value)) for key, value in facts), cls="facts"),
                h("pre", cause.line),
                cls="card",
            )
        )
    rest = cards[OPEN_CAUSES:]
    folded = h("details", h("summary", words.count(len(rest), "more sign") + " in the logs"), *rest) if rest else ""
    return section(name, title, *cards[:OPEN_CAUSES], folded) if cards else Html("")


def mark(look: words.Look) -> Html:
    """A value with its glyph, in its tone."""
    glyph = h("span", look.glyph, cls="glyph", aria_hidden="true")
    return h("span", glyph, "\u00a0", look.word, cls=f"mark {look.tone}")


def paths(verdict: Verdict) -> Html:
    """How fresh requests fared on each path after the last fault, or since the load began where none struck."""
    rows = []
    for path in verdict.paths:
        recovered = "\u2013" if path.recovered_s is None else words.span(path.recovered_s)
        numbers = (path.canaries, path.passed, path.late, path.failed, path.unfinished)
        cells = [h("td", str(n), cls="n" if n else "n quiet") for n in numbers]
        name = h("th", path.path, scope="row", cls="name" if len(path.path) <= SHORT_NAME else None)
        rows.append([name, mark(words.path_look(path)), *cells, h("td", recovered, cls="n"), path.note])
    body: Child = table(
        ["path", "serves", "canaries", "in time", "late", "failed", "never finished", "recovered after", "note"], rows
    )
    if not rows:
        body = h("p", "No path was examined.", cls="quiet")
    return section("paths", f"Fresh requests {words.after_words(verdict)}", body)


def waves(verdict: Verdict) -> Html:
    """The census of each wave, or fault of nodes, and whether it landed."""
    rows = [_wave(i, wave) for i, wave in enumerate(verdict.waves, 1)]
    heads = ["wave", "cycle", "how", "in which phase its sessions were", "hit", "spread", "server aborts", "landed"]
    body: Child = table(heads, rows)
    if not rows:
        body = h("p", "No wave was fired.", cls="quiet")
    return section("waves", "Waves and their census", body)


def _wave(ordinal: int, wave: WaveVerdict) -> list[Child]:
    total = sum(wave.phases.values())
    bar = h(
        "div",
        *(
            h("span", cls=f"role-bg-{phase if phase in words.CENSUS_PHASES else 'other'}", style=f"flex-grow:{n}")
            for phase, n in words.in_order(wave.phases)
        ),
        cls="census",
        aria_hidden="true",
    )
    unmet = h("span", f" {'; '.join(wave.unmet)}", cls="quiet") if wave.unmet else ""
    sides = [f"{n} {kind}" for n, kind in ((wave.fin, "FIN"), (wave.rst, "RST")) if n is not None]
    hit = words.count(wave.sessions, "session") + (f", {words.count(wave.sockets, 'socket')}" if wave.sockets else "")
    if wave.kind != "kill":
        hit = ", ".join(wave.nodes) or "no node"
    return [
        h("th", f"{ordinal}. {wave.wave}", scope="row"),
        str(wave.cycle),
        wave.how,
        h("td", h("div", words.census(wave.phases)), bar if total else ""),
        join([hit, *(f", {side}" for side in sides)]),
        h(
            "td",
            "unknown" if wave.spread_ms is None else f"{words.number(wave.spread_ms)} ms",
            h("div", words.router_words(wave, wave.router_spread_ms), cls="quiet"),
        ),
        "unknown" if wave.server_aborts is None else str(wave.server_aborts),
        h("td", mark(words.Look(words.answer_word(wave.landed), *_look(wave.landed))), unmet),
    ]


def _look(answer: Answer) -> tuple[str, str]:
    look = words.met_look(answer)
    return look.glyph, look.tone


def evidence(record: Record) -> Html:
    """The table of what every probe saw before, during and after."""
    parts = periods(record)
    heads: list[Child] = ["where"]
    for part in parts:
        range_s = f"{record.at_s(part.from_ns):.1f}\u2013{record.at_s(part.to_ns):.1f} s"
        heads.append(join([part.name, " ", h("span", range_s, cls="quiet")]))
    rows: list[list[Child]] = []
    topic = ""
    for row in evidence_rows(record):
        if row.topic != topic:
            rows.append([h("th", row.topic, scope="rowgroup", colspan=str(len(heads)), cls="group")])
        cells = [h("td", cell, cls="quiet" if cell == NOTHING else None) for cell in row.cells]
        rows.append([h("th", row.what, scope="row", cls="where"), *cells])
        topic = row.topic
    if not rows:
        return section("evidence", "Evidence", h("p", "No probe saw anything: that is no evidence.", cls="quiet"))
    why = "\u201cDuring\u201d lasts from the first fault until the dust has settled after the last one."
    if len(parts) == 1:
        why = "No fault was injected, so there is no before and after."
    return section("evidence", "Evidence", h("p", why, cls="quiet"), table(heads, rows, cls="evidence"))


def _unbroken(text: str) -> Iterator[Child]:
    """A text whose names (`prefill-0>decode-0`) go to the next line as a whole: browsers break at each hyphen."""
    for number, word in enumerate(text.split(" ")):
        if number:
            yield " "
        yield h("span", word, cls="whole") if "-" in word else word


def findings(verdict: Verdict) -> Html:
    """Every question with its answer; all are answered, whatever the others say."""
    ordered = sorted(verdict.findings, key=_how_telling)
    rows = [_finding(finding) for finding in ordered]
    if not rows:
        return section("findings", "Findings", h("p", "No question was answered.", cls="quiet"))
    heads = ["question", "answer", "establishes", "evidence"]
    body: list[Child] = [table(heads, rows[:OPEN_FINDINGS], cls="findings")]
    if len(rows) > OPEN_FINDINGS:
        more = h("summary", f"{len(rows) - OPEN_FINDINGS} more findings")
        body.append(h("details", more, table(heads, rows[OPEN_FINDINGS:], cls="findings")))
    return section("findings", "Findings", *body)


def _how_telling(finding: Finding) -> int:
    """What established an outcome comes first, then what is unknown though it had to be known."""
    if finding.outcome is not None:
        return finding.outcome.rank
    return 50 if finding.answer is Answer.UNKNOWN and finding.required else 100


def _finding(finding: Finding) -> list[Child]:
    bad = finding.outcome is not None
    establishes = words.outcome_look(finding.outcome).word if finding.outcome is not None else ""
    required = "" if finding.required else h("span", "not required", cls="quiet")
    return [
        h("th", finding.question, h("div", h("code", finding.id), " ", required), scope="row"),
        h("td", mark(words.answer_look(finding.answer, bad=bad))),
        h("td", h("strong", establishes, cls="mark bad") if bad else ""),
        h("td", h("ul", *map(_evidence, finding.evidence)) if finding.evidence else h("span", "none", cls="quiet")),
    ]


def _evidence(evidence: Evidence) -> Html:
    return h("li", evidence.text, " ", h("span", _seqs(evidence.seqs), cls="quiet") if evidence.seqs else "")


def _seqs(seqs: tuple[int, ...]) -> str:
    shown = ", ".join(f"#{seq}" for seq in seqs[:MOST_SEQS])
    more = f" and {len(seqs) - MOST_SEQS} more" if len(seqs) > MOST_SEQS else ""
    return f"event{'s' if len(seqs) != 1 else ''} {shown}{more}" if seqs else "none"


def story(record: Record) -> Html:
    """The run told in order: what the timeline shows, in words."""
    rows: list[Iterable[Child]] = [
        [
            h("td", f"{record.at_s(moment.t_ns):.1f} s", cls="n"),
            h("th", moment.what, scope="row"),
            h("td", moment.text, cls=f"tone {moment.tone}"),
            h("td", f"#{moment.seq}" if moment.seq else "", cls="n quiet"),
        ]
        for moment in sorted(record.moments, key=lambda moment: moment.t_ns)  # a log may be read late
    ]
    heads = ["at", "what", "", "event"]
    body: list[Child] = [table(heads, rows[:OPEN_STORY], cls="story")]
    if len(rows) > OPEN_STORY:
        more = h("summary", f"{len(rows) - OPEN_STORY} more moments")
        body.append(h("details", more, table(heads, rows[OPEN_STORY:], cls="story")))
    if record.moments_cut:
        body.append(h("p", f"{record.moments_cut} later moments are only in the journal.", cls="quiet"))
    if not rows:
        body = [h("p", "The journal is empty.", cls="quiet")]
    return section("story", "What happened", *body)


def inside(verdict: Verdict) -> Html:
    """The snapshots of the deployment's inside that lie beside this report."""
    if not verdict.saved:
        return section("inside", "Saved from inside", h("p", "Nothing was saved.", cls="quiet"))
    rows: list[Iterable[Child]] = []
    for one in verdict.saved:
        lacks = h("ul", *(h("li", thing) for thing in one.missing), cls="quiet") if one.missing else ""
        rows.append(
            [
                h("td", f"{one.at_s:.1f} s", cls="n"),
                h("th", h("code", one.folder), scope="row"),
                h("td", one.reason, h("div", one.detail, cls="quiet") if one.detail else ""),
                h("td", str(one.files), cls="n"),
                h("td", words.size(one.size), cls="n"),
                h("td", h("ul", *(h("li", told) for told in one.shows)) if one.shows else "no stacks"),
                h("td", lacks),
            ]
        )
    heads = ["at", "folder", "because", "files", "size", "shows", "could not be saved"]
    lead = "Threads with their stacks, raw metrics, logs around the last fault, sockets, settings; no secrets."
    return section("inside", "Saved from inside", h("p", lead, cls="quiet"), table(heads, rows))


def not_examined(verdict: Verdict) -> Html:
    """What this run says nothing about."""
    if not verdict.not_examined:
        return section("not-examined", "Not examined", h("p", "Nothing was named.", cls="quiet"))
    lead = h("p", "This run says nothing about:", cls="quiet")
    return section("not-examined", "Not examined", lead, h("ul", *(h("li", thing) for thing in verdict.not_examined)))
