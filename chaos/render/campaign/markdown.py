"""A campaign as GitHub-flavoured Markdown, for a CI job's summary page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.render import words
from chaos.render.campaign import told
from chaos.render.markdown import MARKS, MOST_ROWS, rows, span, text

if TYPE_CHECKING:
    from chaos.model.campaign import Campaign


def campaign_md(campaign: Campaign) -> str:
    """The whole summary."""
    look = told.look(campaign)
    lines = [
        f"## {MARKS[look.tone]} {look.word}: {text(words.run_name(campaign.scenario, campaign.target))}",
        "",
        f"**{text(told.headline(campaign))}**",
        "",
        *(f"- {text(reason)}" for reason in campaign.reasons[:MOST_ROWS]),
        *([""] if campaign.reasons else []),
        told.axes_words(campaign),
        "",
        *rows(
            ["dose", "runs", "outcomes that count", "rate", "hit by"],
            [
                [
                    text(told.dose_name(dose)),
                    told.counts_words(dose),
                    text(told.outcomes_words(dose.outcomes)),
                    text(dose.told),
                    text(dose.survived or "nothing"),
                ]
                for dose in campaign.doses
            ],
        ),
        *rows(
            ["dose", *told.MEASURE_HEADS],
            [
                [text(one.dose or "all trials"), *map(text, told.measure_words(measure))]
                for one in campaign.speed
                for measure in one.measures
            ],
        ),
        *rows(
            ["run", "dose", "outcome", "hit by", "counts", "what it says"],
            [
                [
                    str(trial.number),
                    text(told.named(trial)),
                    f"{MARKS[told.trial_look(trial).tone]} {told.trial_look(trial).word}",
                    told.hits_words(trial),
                    "yes" if trial.counts else text(f"no: {trial.why_not}"),
                    text(trial.headline),
                ]
                for trial in campaign.trials
            ],
        ),
        f"Campaign {span(campaign.campaign_id)}, judge {text(campaign.judge_version)}",
    ]
    return "\n".join(lines) + "\n"
