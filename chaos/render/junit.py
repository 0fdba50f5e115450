"""JUnit XML, for CI systems that show tests: a suite per run, a case for the outcome and one for every finding."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from chaos.model.outcomes import Answer, ExitCode
from chaos.render import words

if TYPE_CHECKING:
    from chaos.model.verdict import Finding, Verdict


def junit_xml(verdict: Verdict) -> str:
    """The XML text. A violation is a failure, a run that can say nothing is an error, an unknown is skipped."""
    name = words.run_name(verdict.scenario, verdict.target)
    suite = ET.Element("testsuite", name=name)
    properties = ET.SubElement(suite, "properties")
    for key, value in _properties(verdict):
        ET.SubElement(properties, "property", name=key, value=words.clean(value))
    _outcome_case(suite, verdict, name)
    for finding in verdict.findings:
        _finding_case(suite, finding, name, verdict)
    return as_text(count_cases(suite, verdict.duration_s))


def count_cases(suite: ET.Element, time_s: float) -> ET.Element:
    """A suite with the numbers of its cases, inside the root element."""
    cases = suite.findall("testcase")
    for kind in ("failure", "error", "skipped"):
        plural = {"failure": "failures", "error": "errors", "skipped": "skipped"}[kind]
        suite.set(plural, str(sum(case.find(kind) is not None for case in cases)))
    suite.set("tests", str(len(cases)))
    suite.set("time", f"{time_s:.3f}")
    root = ET.Element(
        "testsuites", {key: suite.get(key, "") for key in ("tests", "failures", "errors", "skipped", "time")}
    )
    root.append(suite)
    return root


def as_text(root: ET.Element) -> str:
    """The XML as it is written."""
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=False).join(
        ("<?xml version='1.0' encoding='utf-8'?>\n", "\n")
    )


def _properties(verdict: Verdict) -> list[tuple[str, str]]:
    ours = [("status", verdict.status.value), ("cleanup", verdict.cleanup.value)]
    pairs = [
        ("run_id", verdict.run_id),
        ("outcome", verdict.outcome.value),
        *([("judged", words.IMPORTED)] if verdict.imported else ours),
        ("exit_code", str(int(verdict.exit_code))),
        ("headline", verdict.headline),
        ("judge_version", verdict.judge_version),
        ("allow", ", ".join(verdict.allow)),
    ]
    if verdict.wedge is not None:
        pairs += [("wedge", ", ".join(words.wedge_words(verdict))), ("side", verdict.wedge.side or "unknown")]
    for name, found in zip(("cause", "logged"), words.causes_and_signs(verdict), strict=True):
        for cause in found:
            known = words.cause_reference(cause)
            pairs.append((name, f"{cause.title} ({known})" if known else cause.title))
    pairs += [("leaving", told) for told in words.leaving_words(verdict)]
    return pairs + [("not_examined", thing) for thing in verdict.not_examined]


def _case(suite: ET.Element, case: str, classname: str, time_s: float = 0.0) -> ET.Element:
    return ET.SubElement(suite, "testcase", name=words.one_line(case), classname=classname, time=f"{time_s:.3f}")


def _outcome_case(suite: ET.Element, verdict: Verdict, name: str) -> None:
    case = _case(suite, f"outcome is one of: {', '.join(verdict.allow) or 'healthy'}", name, verdict.duration_s)
    code = ExitCode(verdict.exit_code)
    body = words.clean(
        "\n".join([*words.leaving_words(verdict), *verdict.reasons, *(cause.line for cause in verdict.causes)])
    )
    message = words.one_line(f"{words.outcome_look(verdict.outcome).word}: {words.headline(verdict)}")
    if code in (ExitCode.VIOLATION, ExitCode.VIOLATION_AND_CLEANUP):
        ET.SubElement(case, "failure", message=message, type=verdict.outcome.value).text = body
    elif code is not ExitCode.AS_EXPECTED:
        why = f"{words.EXIT_MEANINGS[code]}: {message}"
        ET.SubElement(case, "error", message=why, type=words.EXIT_MEANINGS[code]).text = body


def _finding_case(suite: ET.Element, finding: Finding, name: str, verdict: Verdict) -> None:
    case = _case(suite, finding.question or finding.id, f"{name}.{words.one_line(finding.id)}")
    evidence = words.clean("\n".join(_fact(item.text, item.seqs) for item in finding.evidence)) or "no evidence"
    answer = words.answer_word(finding.answer)
    allowed = finding.outcome is not None and finding.outcome.value in verdict.allow
    if finding.outcome is not None and finding.outcome.violation and not allowed:
        message = f"{answer}: establishes {finding.outcome.value}"
        ET.SubElement(case, "failure", message=message, type=finding.outcome.value).text = evidence
    elif finding.answer is Answer.UNKNOWN or finding.outcome is not None:
        required = "required" if finding.required else "not required"
        ET.SubElement(case, "skipped", message=f"{answer} ({required})").text = evidence
    elif finding.answer is Answer.NOT_APPLICABLE:
        ET.SubElement(case, "skipped", message="not applicable").text = evidence
    else:
        ET.SubElement(case, "system-out").text = f"{answer}\n{evidence}"


def _fact(text: str, seqs: tuple[int, ...]) -> str:
    return f"{text} [events {', '.join(map(str, seqs))}]" if seqs else text
