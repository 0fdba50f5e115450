"""A campaign's page: one self-contained file with the rates, the doses, and a link to the report of every run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.model.outcomes import ExitCode
from chaos.render import words
from chaos.render.campaign import told
from chaos.render.html import page
from chaos.render.markup import Html, h, table
from chaos.render.sections import mark, section

if TYPE_CHECKING:
    from chaos.model.campaign import Campaign, Dose, Rate, Trial
    from chaos.render.markup import Child

OPEN_REASONS = 12


def campaign_html(campaign: Campaign, repeat: tuple[str, ...]) -> str:
    """The whole page; `repeat` are the shell lines that make it again."""
    look = told.look(campaign)
    name = words.run_name(campaign.scenario, campaign.target)
    parts = [
        _banner(campaign, name, look),
        _doses(campaign),
        _speed(campaign),
        _runs(campaign),
        section("repeat", "Repeat this campaign", h("pre", "\n".join(repeat))),
        _about(campaign),
    ]
    return page(f"{look.word} \u00b7 {name}", look.tone, parts)


def _banner(campaign: Campaign, name: str, look: words.Look) -> Html:
    code = ExitCode(campaign.exit_code)
    facts = [
        ("runs made", f"{len(campaign.trials)} of {campaign.planned}"),
        ("exit code", f"{int(code)} \u00b7 {words.EXIT_MEANINGS[code]}"),
        ("duration", words.span(sum(trial.duration_s for trial in campaign.trials))),
    ]
    reasons = campaign.reasons[:OPEN_REASONS]
    rest = len(campaign.reasons) - len(reasons)
    return h(
        "header",
        h("p", h("span", "pdchaos", cls="brand"), " ", h("span", name), cls="top"),
        h(
            "div",
            h("p", h("span", look.glyph, cls="glyph", aria_hidden="true"), h("span", look.word), cls="outcome"),
            h("ul", h("li", f"worst of {words.count(len(campaign.trials), 'run')}"), cls="chips"),
            cls="verdict",
        ),
        h("h1", told.headline(campaign)),
        h("ol", *(h("li", reason) for reason in reasons), cls="reasons") if reasons else "",
        h("p", f"and {words.count(rest, 'more line')}: see the runs below", cls="quiet") if rest else "",
        h("dl", *(h("div", h("dt", key), h("dd", value)) for key, value in facts), cls="facts"),
        cls=f"banner {look.tone}",
    )


def _doses(campaign: Campaign) -> Html:
    rows = [
        [
            h("th", told.dose_name(dose), scope="row"),
            told.counts_words(dose),
            told.outcomes_words(dose.outcomes),
            _rate(dose.broke),
            dose.told,
            dose.survived or "nothing",
            _median(dose),
        ]
        for dose in campaign.doses
    ]
    note = h(
        "p",
        "Only runs whose fault landed, and which came to an outcome, count. The band is the exact 95 % interval of the "
        "rate, the line in it the rate itself.",
        cls="quiet",
    )
    heads = ["dose", "runs", "outcomes that count", "no longer served", "rate", "hit by", "half broke after"]
    title = "Doses" if len(campaign.doses) > 1 else "Trials"
    return section("doses", title, note, table(heads, rows))


def _rate(found: Rate | None) -> Child:
    """The interval on a line from 0 to 1; its numbers stand beside it in words."""
    if found is None:
        return "\u2013"
    band = f"left:{100 * found.low:.2f}%;width:{max(100 * (found.high - found.low), 0.5):.2f}%"
    at = f"left:{100 * found.hits / found.of:.2f}%"
    return h("div", h("i", style=band), h("b", style=at), cls="rate", aria_hidden="true")


def _median(dose: Dose) -> str:
    for found in (dose.aborts, dose.waves):
        if found is not None and found.median is not None:
            return f"{found.median:g} {found.unit}"
    return "\u2013"


def _speed(campaign: Campaign) -> Html:
    """The comparison with the control arm, where there is one."""
    if not campaign.speed:
        return Html("")
    parts = []
    for one in campaign.speed:
        rows = [told.measure_words(measure) for measure in one.measures]
        parts.append(h("p", f"{one.dose}: {one.told}" if one.dose else one.told))
        parts += [table(told.MEASURE_HEADS, rows)] if rows else []
    note = h(
        "p",
        "Each run gives one median per measure; runs are compared by Mann-Whitney\u2019s test. \u201cRuns above\u201d: "
        "how often a run with the fault is slower than one of the control (50 % means no difference).",
        cls="quiet",
    )
    return section("speed", "Against the control", note, *parts)


def _runs(campaign: Campaign) -> Html:
    rows = [
        [
            h("td", h("a", str(trial.number), href=f"{trial.folder}/report.html")),
            told.named(trial),
            mark(told.trial_look(trial)),
            told.hits_words(trial),
            "yes" if trial.counts else f"no: {trial.why_not}",
            h("td", words.span(trial.duration_s), cls="n"),
            _link(trial),
        ]
        for trial in campaign.trials
    ]
    heads = ["run", "dose", "outcome", "hit by", "counts", "took", "what it says"]
    return section("runs", "Runs", table(heads, rows))


def _link(trial: Trial) -> Child:
    if trial.outcome is None:
        return trial.headline
    return h("a", trial.headline, href=f"{trial.folder}/report.html")


def _about(campaign: Campaign) -> Html:
    facts = [
        ("campaign", campaign.campaign_id),
        ("judge", campaign.judge_version),
        ("scenario", f"{campaign.scenario}: {campaign.about}" if campaign.about else campaign.scenario),
        ("target", campaign.target),
        ("allowed outcomes", ", ".join(campaign.allow)),
    ]
    rows = (h("div", h("dt", key), h("dd", value)) for key, value in facts)
    return section("about", "About this campaign", h("dl", *rows, cls="facts meta"))
