"""The judge as a classifier: what it should say by the ground truth, what it said, and the table of both. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import yaml

from chaos.judge.stats import rate, rate_words
from chaos.model.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

RIGHT, WRONG, UNDECIDED, NONE = "right", "wrong", "inconclusive", "no verdict"


class GroundTruth(ValueError):
    """The file is wrong; one line per problem."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"overrides": "with"}):
    """One build under one scenario, and the outcomes that are right for it."""

    build: str
    scenario: str
    outcome: tuple[Outcome, ...]
    side: str | None = None  # that the verdict must name
    why: str = ""
    set: dict[str, str | int | float | bool] = {}
    overrides: dict[str, str | int | float | bool] = {}

    @property
    def key(self) -> str:
        """What tells it from every other entry, and stays the same while the file grows."""
        words = [self.build, self.scenario]
        words += [f"{name}={_plain(value)}" for name, value in sorted({**self.set, **self.overrides}.items())]
        return " ".join(words)

    def options(self) -> list[str]:
        """The words of the command line after the scenario's name."""
        words = ["--target", f"lab:sim@{self.build}"]
        for flag, values in (("--set", self.set), ("--with", self.overrides)):
            for name, value in values.items():
                words += [flag, f"{name}={_plain(value)}"]
        return words


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run of an entry, a line of the results file."""

    key: str
    rep: int
    outcome: Outcome | None  # None: no verdict came of it
    side: str = ""
    exit_code: int = 0
    headline: str = ""
    folder: str = ""  # of the run, beside the results file
    seconds: float = 0.0
    load: float = 0.0  # of the machine when the run began: processes that want a core, per core
    lag_ms: float = 0.0  # the largest that the run told of itself
    repeated: bool = False  # the first try was starved
    judge: str = ""  # the version that said so; empty in results of old
    first_judge: str = ""  # the version that judged the run when it was made, where it was judged anew


def _plain(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_ground_truth(text: str, *, builds: Collection[str], scenarios: Collection[str]) -> list[Entry]:
    """The entries of `ground_truth.yaml`; GroundTruth tells everything that is wrong with them at once."""
    document = yaml.safe_load(text)
    if not isinstance(document, list):
        raise GroundTruth("the file must be a list of entries")
    entries: list[Entry] = []
    problems: list[str] = []
    for number, each in enumerate(document, 1):
        try:
            entry = msgspec.convert(each, Entry)
        except msgspec.ValidationError as error:
            problems.append(f"entry {number}: {error}")
            continue
        entries.append(entry)
        if entry.build not in builds:
            problems.append(f"entry {number}: the lab has no build {entry.build!r}")
        if entry.scenario not in scenarios:
            problems.append(f"entry {number}: there is no scenario {entry.scenario!r}")
        if not entry.outcome:
            problems.append(f"entry {number}: no outcome is right")
    twice = [key for key, times in Counter(entry.key for entry in entries).items() if times > 1]
    problems += [f"given twice: {key}" for key in twice]
    if problems:
        raise GroundTruth("\n".join(problems))
    return entries


def grade(entry: Entry, result: Result) -> str:
    """Right, wrong, or one of the two ways of having said nothing."""
    if result.outcome is None:
        return NONE
    if result.outcome in entry.outcome:
        return RIGHT if entry.side in (None, result.side) else WRONG
    return UNDECIDED if result.outcome is Outcome.INCONCLUSIVE else WRONG


def accuracy_md(entries: Sequence[Entry], results: Iterable[Result], about: Mapping[str, str]) -> str:
    """The whole page: how it was made, the confusion, every entry, and every run that was not right."""
    by_key: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda result: (result.key, result.rep)):
        by_key.setdefault(result.key, []).append(result)
    graded = [(entry, result, grade(entry, result)) for entry in entries for result in by_key.get(entry.key, [])]
    grades = Counter(got for _, _, got in graded)
    lines = [
        "# How often the judge is right",
        "",
        "Made by `python -m bench accuracy`: every build of the embedded lab under the scenarios that fit it, each",
        "run on a fresh lab, against the outcomes that `bench/ground_truth.yaml` calls right. *Inconclusive* where",
        "another outcome was right is no wrong verdict, but none that anybody wanted either, so it stands apart. A run",
        "that was inconclusive and tells of a starved machine was made once more; those are counted.",
        "",
        *_table(["", ""], [[name, value] for name, value in about.items()]),
        *_summary(grades, [result for _, result, _ in graded]),
        "## Confusion",
        "",
        "Rows: the outcome that is right (the first, where several are). Columns: what the judge said.",
        "",
        *_confusion(graded),
        "## Every build and scenario",
        "",
        *_every_entry(entries, by_key),
        *_not_right(graded),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _summary(grades: Counter[str], results: Sequence[Result]) -> list[str]:
    total, judged = grades.total(), grades.total() - grades[NONE]
    wrong = rate_words(rate(grades[WRONG], judged), "verdicts wrong") if judged else "no run was judged"
    repeated = sum(result.repeated for result in results)
    told = (
        f"{grades[RIGHT]} right, {grades[WRONG]} wrong, {grades[UNDECIDED]} inconclusive, {grades[NONE]} without a "
        f"verdict, of {total} runs; {repeated} repeated once on a starved machine."
    )
    return [f"**{wrong}.** {told}", ""]


def _confusion(graded: Sequence[tuple[Entry, Result, str]]) -> list[str]:
    def said(result: Result) -> str:
        return result.outcome.value if result.outcome else NONE

    order = [*(outcome.value for outcome in Outcome), NONE]
    columns = [name for name in order if any(said(result) == name for _, result, _ in graded)]
    rows = []
    for truth in Outcome:
        of_truth = [(result, got) for entry, result, got in graded if entry.outcome[0] is truth]
        if of_truth:
            counts = Counter(said(result) for result, _ in of_truth)
            rows.append([truth.value, *(str(counts[name] or "") for name in columns), str(len(of_truth))])
    return _table(["right \\ said", *columns, "runs"], rows)


def _every_entry(entries: Sequence[Entry], by_key: Mapping[str, Sequence[Result]]) -> list[str]:
    rows = []
    for entry in entries:
        results = by_key.get(entry.key, [])
        counts = Counter(grade(entry, result) for result in results)
        said = Counter(result.outcome.value if result.outcome else NONE for result in results)
        right = ", ".join(entry.outcome) + (f" ({entry.side})" if entry.side else "")
        rows.append(
            [
                f"`{entry.key}`",
                right,
                ", ".join(f"{name} {times}" for name, times in said.most_common()) or "not run",
                *(str(counts[name]) for name in (RIGHT, WRONG, UNDECIDED, NONE)),
                entry.why,
            ]
        )
    return _table(["build, scenario, options", "right", "said", RIGHT, WRONG, UNDECIDED, NONE, "why"], rows)


def _not_right(graded: Sequence[tuple[Entry, Result, str]]) -> list[str]:
    lines: list[str] = []
    for kind, title in ((WRONG, "Wrong"), (UNDECIDED, "Inconclusive"), (NONE, "Without a verdict")):
        found = [(entry, result) for entry, result, got in graded if got == kind]
        if not found:
            continue
        rows = [
            [
                f"`{entry.key}`",
                str(result.rep),
                result.headline or f"exit {result.exit_code}",
                result.side,
                f"{result.lag_ms:.0f} ms",
                f"`{result.folder}`",
            ]
            for entry, result in found
        ]
        lines += [f"## {title}", "", *_table(["entry", "repetition", "said", "side", "our lag", "run folder"], rows)]
    return lines


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def cell(text: str) -> str:
        return " ".join(text.replace("|", "\\|").split())

    return [
        "| " + " | ".join(heads) + " |",
        "|" + " --- |" * len(heads),
        *("| " + " | ".join(map(cell, row)) + " |" for row in rows),
        "",
    ]
