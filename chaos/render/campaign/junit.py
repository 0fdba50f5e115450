"""A campaign as JUnit XML: a suite with a case for every run that was made."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from chaos.model.outcomes import Answer, ExitCode, Outcome
from chaos.render import words
from chaos.render.campaign import told
from chaos.render.junit import as_text, count_cases

if TYPE_CHECKING:
    from chaos.model.campaign import Campaign, Speed, Trial


def campaign_junit(campaign: Campaign) -> str:
    """The XML text. A violation is a failure; a run that can say nothing is an error."""
    name = words.run_name(campaign.scenario, campaign.target)
    suite = ET.Element("testsuite", name=name)
    properties = ET.SubElement(suite, "properties")
    for key, value in _properties(campaign):
        ET.SubElement(properties, "property", name=key, value=words.clean(value))
    for trial in campaign.trials:
        _case(suite, trial, name)
    for one in campaign.speed:
        _speed_case(suite, one, name, allowed=Outcome.DEGRADED.value in campaign.allow)
    return as_text(count_cases(suite, sum(trial.duration_s for trial in campaign.trials)))


def _properties(campaign: Campaign) -> list[tuple[str, str]]:
    pairs = [
        ("campaign_id", campaign.campaign_id),
        ("outcome", campaign.outcome.value),
        ("exit_code", str(int(campaign.exit_code))),
        ("headline", campaign.headline),
        ("judge_version", campaign.judge_version),
        ("allow", ", ".join(campaign.allow)),
        ("planned", str(campaign.planned)),
    ]
    pairs += [("dose", f"{told.dose_name(dose)}: {dose.told}") for dose in campaign.doses]
    pairs += [("smallest", campaign.smallest)] if campaign.smallest else []
    return pairs + ([("stopped", campaign.stopped)] if campaign.stopped else [])


def _speed_case(suite: ET.Element, speed: Speed, name: str, *, allowed: bool) -> None:
    title = words.one_line(f"not slower than the control {speed.dose}".rstrip())
    case = ET.SubElement(suite, "testcase", name=title, classname=name, time="0.000")
    if speed.answer is Answer.YES and not allowed:
        ET.SubElement(case, "failure", message=words.one_line(speed.told), type=Outcome.DEGRADED.value)
    elif speed.answer is Answer.UNKNOWN:
        ET.SubElement(case, "skipped", message=words.one_line(speed.told))
    else:
        ET.SubElement(case, "system-out").text = words.clean(speed.told)


def _case(suite: ET.Element, trial: Trial, name: str) -> None:
    title = words.one_line(f"run {trial.number} {told.named(trial)}".rstrip())
    case = ET.SubElement(suite, "testcase", name=title, classname=name, time=f"{trial.duration_s:.3f}")
    code = ExitCode(trial.exit_code)
    message = words.one_line(trial.headline)
    body = words.clean("\n".join(filter(None, [trial.headline, trial.why_not, f"see {trial.folder}/report.html"])))
    if code in (ExitCode.VIOLATION, ExitCode.VIOLATION_AND_CLEANUP):
        kind = trial.outcome.value if trial.outcome else "violation"
        ET.SubElement(case, "failure", message=message, type=kind).text = body
    elif code is not ExitCode.AS_EXPECTED:
        why = words.EXIT_MEANINGS[code]
        ET.SubElement(case, "error", message=f"{why}: {message}", type=why).text = body
    else:
        ET.SubElement(case, "system-out").text = body
