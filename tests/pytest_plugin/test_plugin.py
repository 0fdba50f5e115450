"""The plugin in suites of others, with a stub in a run's place: what it asks for, and what it makes of the answer."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from chaos.journal import RunFolder
from chaos.launch.run import Launch, Launched
from chaos.model.errors import LabError, PdchaosError, Refused, Unfit
from chaos.model.outcomes import Cleanup, Outcome, RunStatus, exit_code
from chaos.model.verdict import Verdict, Wedge
from chaos.pytest_plugin import running

if TYPE_CHECKING:
    from pathlib import Path

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.timeout(60)

ASKED = ("-m", "wedge_sensitive")
SUITE = """
import pytest

@pytest.mark.wedge_sensitive("abort-cascade", target="lab:sim")
def test_it():
    print("the body")
"""


def suite(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    """A session of a suite that has pdchaos, and no other plugin of ours."""
    others = ("asyncio", "anyio", "hypothesispytest", "timeout")
    return pytester.runpytest_inprocess(*(f"-pno:{name}" for name in others), *words)


class Deployments:
    """Stands for runs: notes what was asked for and comes to what it is told to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: list[Launch] = []
        self.made = 0
        self.outcome = Outcome.HEALTHY
        self.status = RunStatus.COMPLETED
        self.failure: PdchaosError | None = None
        self.refusal: PdchaosError | None = None

    def launch(self, order: Launch) -> Launched:
        if self.refusal:
            raise self.refusal
        self.asked.append(order)
        self.made += 1
        folder = RunFolder.create(self.root, utc=str(self.made), scenario="s", run_id="r")
        wedge = Wedge(total=True, silent=True, confirmed=True, side="prefill", paths=("routed",))
        allowed = frozenset({Outcome.HEALTHY})
        for override in order.overrides:
            if override.startswith("expect.allow="):
                allowed = frozenset(outcome for outcome in Outcome if f'"{outcome.value}"' in override)
        return Launched(
            Verdict(
                format=1,
                judge_version="1",
                run_id="r",
                scenario="s",
                target="lab:sim",
                outcome=self.outcome,
                status=self.status,
                cleanup=Cleanup.CLEAN,
                exit_code=exit_code(self.outcome, self.status, Cleanup.CLEAN, allowed=allowed),
                headline="What a tired person reads",
                reasons=("the thread is gone",),
                findings=(),
                wedge=wedge if self.outcome is Outcome.WEDGED else None,
                allow=tuple(allowed),
            ),
            folder,
            self.failure,
        )


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployments:
    stub = Deployments(tmp_path / "records")
    monkeypatch.delenv("PDCHAOS_TARGET", raising=False)
    monkeypatch.setattr(running, "launch", stub.launch)
    return stub


def test_loading_it_costs_a_suite_nothing() -> None:
    probe = (
        "import pytest, sys; before = set(sys.modules); import chaos.pytest_plugin; print(set(sys.modules) - before)"
    )
    said = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60)
    assert {"chaos", "chaos.pytest_plugin"} == eval(said.stdout)  # noqa: S307 - our own words


def test_a_suite_that_does_not_use_it_is_left_alone(pytester: pytest.Pytester, runs: Deployments) -> None:
    pytester.makepyfile("def test_one(): pass")
    result = suite(pytester, "--strict-markers")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*pdchaos runs*")


def test_minutes_are_spent_only_on_whom_asked_for_them(pytester: pytest.Pytester, runs: Deployments) -> None:
    pytester.makepyfile(SUITE + "\ndef test_other(): pass\n")
    result = suite(pytester, "--strict-markers", "-rs")
    result.assert_outcomes(skipped=1, passed=1)
    result.stdout.fnmatch_lines(["*ask for it with -m wedge_sensitive or --pdchaos-target=TARGET"])
    suite(pytester, "-m", "not wedge_sensitive").assert_outcomes(passed=1, deselected=1)
    assert [] == runs.asked
    suite(pytester, *ASKED).assert_outcomes(passed=1, deselected=1)
    suite(pytester, "--pdchaos-target", "lab:sim@healthy").assert_outcomes(passed=2)
    assert ["lab:sim", "lab:sim@healthy"] == [order.target for order in runs.asked]


def test_a_marked_test_is_run_and_judged_before_its_body(pytester: pytest.Pytester, runs: Deployments) -> None:
    pytester.makepyfile(SUITE)
    pytester.makeini("[pytest]\n")
    result = suite(pytester, *ASKED, "-s", "--strict-markers", "--junitxml=junit.xml")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*the body*", "*pdchaos runs*", f"healthy * {runs.root}/1-s-r * *::test_it"])
    told = ET.parse(pytester.path / "junit.xml").findall(".//property")  # noqa: S314
    assert [("pdchaos_outcome", "healthy"), ("pdchaos_run", f"{runs.root}/1-s-r")] == [
        (each.get("name"), each.get("value")) for each in told
    ]
    (order,) = runs.asked
    assert ("abort-cascade", "lab:sim", True) == (order.scenario, order.target, order.aside)
    assert pytester.path / "reports" == order.reports


def test_a_wedge_fails_the_test_with_the_panel_and_what_judges_it_again(
    pytester: pytest.Pytester, runs: Deployments
) -> None:
    runs.outcome = Outcome.WEDGED
    pytester.makepyfile(SUITE)
    result = suite(pytester, *ASKED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "WEDGED (silent, total, confirmed): What a tired person reads",
            "*the thread is gone*",
            f"run folder:  {runs.root}/1-s-r",
            f"judge again: pdchaos judge {runs.root}/1-s-r",
            "run again:   pdchaos run abort-cascade --target lab:sim",
            f"wedged * {runs.root}/1-s-r * *::test_it",
        ]
    )
    for inside in ("*running.py*", "*During handling*", "*the body*", "*full-trace*"):
        result.stdout.no_fnmatch_line(inside)


@pytest.mark.parametrize(
    ("outcome", "status", "failure", "line"),
    [
        (
            Outcome.INCONCLUSIVE,
            RunStatus.COMPLETED,
            None,
            "INCONCLUSIVE, which shows neither * nor that it does not: *",
        ),
        (
            Outcome.INCONCLUSIVE,
            RunStatus.UNFIT,
            Unfit("nobody answers", hint="start it"),
            "target unfit: nobody answers",
        ),
        (Outcome.INCONCLUSIVE, RunStatus.HARNESS_ERROR, None, "harness error: What a tired person reads"),
        (Outcome.HEALTHY, RunStatus.ABORTED, None, "interrupted: What a tired person reads"),
    ],
)
def test_what_shows_nothing_fails_too_and_is_called_so(
    pytester: pytest.Pytester, runs: Deployments, outcome, status, failure, line: str
) -> None:
    runs.outcome, runs.status, runs.failure = outcome, status, failure
    pytester.makepyfile(SUITE)
    result = suite(pytester, *ASKED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([line, *(["hint: start it"] if failure else [])])


def test_a_run_that_somebody_stopped_stops_the_suite(pytester: pytest.Pytester, runs: Deployments) -> None:
    runs.status = RunStatus.ABORTED
    pytester.makepyfile(SUITE + "\n@pytest.mark.wedge_sensitive\ndef test_next(): pass\n")
    result = suite(pytester, *ASKED)
    result.assert_outcomes(failed=1)
    assert pytest.ExitCode.INTERRUPTED == result.ret
    assert 1 == len(runs.asked)


@pytest.mark.parametrize(
    ("refusal", "lines"),
    [
        (Refused("it is in use", hint="wait"), ["pdchaos, refused: it is in use", "hint: wait"]),
        (LabError("no port is free"), ["pdchaos, harness error: no port is free"]),
    ],
)
def test_a_run_that_could_not_begin_fails_with_why_and_a_hint(
    pytester: pytest.Pytester, runs: Deployments, refusal: PdchaosError, lines: list[str]
) -> None:
    runs.refusal = refusal
    pytester.makepyfile(SUITE)
    result = suite(pytester, *ASKED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(lines)
    result.stdout.no_fnmatch_line("*During handling*")


@pytest.mark.parametrize(
    ("marker", "lines"),
    [
        ('("abort-cascad", target="lab:sim")', ["*there is no scenario 'abort-cascad'", "hint: *abort-cascade?"]),
        ('("abort-cascade", targt="lab:sim")', ["*unexpected keyword argument 'targt'*", "hint: (scenario, target=*"]),
        ('("abort-cascade")', ["*the test names no target", "hint: *--pdchaos-target=TARGET"]),
        ('(target="lab:sim")', ["*the test names no scenario", "hint: *"]),
        ('("abort-cascade", target="lab:simm")', ["pdchaos, invalid input: *", "hint: *sim*"]),
        ('("abort-cascade", target="lab:sim", with_={"trials.count": 2})', ["*asks for several runs*", "hint: *"]),
        ('("abort-cascade", target="lab:sim", allow=["inconclusive"])', ["*cannot be inconclusive*"]),
        ('("abort-cascade", target="prod.yaml")', ["*refused: prod is a production deployment*", "hint: *"]),
    ],
)
def test_a_mistake_in_a_marker_is_answered_with_a_hint_before_anything_is_broken(
    pytester: pytest.Pytester, runs: Deployments, marker: str, lines: list[str]
) -> None:
    servers = 'router: {url: "http://h:1"}\nprefill: [{url: "http://h:2"}]\ndecode: [{url: "http://h:3"}]\n'
    (pytester.path / "prod.yaml").write_text(
        f"version: 1\nname: prod\nenvironment: production\nallow: [kill]\n{servers}"
    )
    pytester.makepyfile(f"import pytest\n@pytest.mark.wedge_sensitive{marker}\ndef test_it(): pass\n")
    result = suite(pytester, *ASKED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(lines)
    assert [] == runs.asked


def test_the_fixture_gives_the_judged_run_and_its_words_go_before_the_markers(
    pytester: pytest.Pytester, runs: Deployments
) -> None:
    runs.outcome = Outcome.WEDGED
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.wedge_sensitive("abort-cascade", target="lab:sim", set_={"prefill": 2, "dp": 1},
                                     with_={"load.agents.sessions": 20, "cycles.count": 1})
        def test_it(wedge_run):
            run = wedge_run(set_={"dp": 2}, with_={"load.agents.sessions": 9}, allow=["wedged"])
            assert run.verdict.wedge.side == "prefill"
            assert run.folder.root.is_dir()
        """
    )
    suite(pytester, *ASKED).assert_outcomes(passed=1)
    (order,) = runs.asked
    assert ("prefill=2", "dp=2") == order.lab_options
    assert ("load.agents.sessions=9", "cycles.count=1", 'expect.allow=["wedged"]') == order.overrides


def test_health_where_a_wedge_is_expected_fails_and_says_so(pytester: pytest.Pytester, runs: Deployments) -> None:
    pytester.makepyfile(SUITE.replace('"lab:sim"', '"lab:sim", allow=["wedged"]'))
    result = suite(pytester, *ASKED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["HEALTHY, where only wedged is expected: *"])


@pytest.mark.parametrize(
    ("body", "outcomes", "line"),
    [
        ("def test_it(wedge_run): pass", {"failed": 1}, "nothing was broken: *"),
        ("@pytest.mark.wedge_sensitive\n@MARK\ndef test_it(): pass", {"failed": 1}, "*wedge_sensitive twice"),
        ("class TestIt(unittest.TestCase):\n    def test_it(self): pass", {"passed": 1}, "healthy *"),
    ],
)
def test_no_marked_test_passes_without_a_run(
    pytester: pytest.Pytester, runs: Deployments, body: str, outcomes: dict[str, int], line: str
) -> None:
    mark = 'pytest.mark.wedge_sensitive("abort-cascade", target="lab:sim")'
    text = f"@MARK\n{body}" if "@MARK" not in body else body
    pytester.makepyfile(f"import unittest\nimport pytest\nMARK = {mark}\n{text}\n")
    result = suite(pytester, *ASKED)
    result.assert_outcomes(**outcomes)
    result.stdout.fnmatch_lines([line])


def test_the_fixture_without_the_marker_is_a_mistake(pytester: pytest.Pytester, runs: Deployments) -> None:
    pytester.makepyfile("def test_it(wedge_run): wedge_run('abort-cascade', target='lab:sim')")
    result = suite(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["a test that takes wedge_run needs the marker: *"])


STANDING = """\
version: 1
name: here
environment: staging
allow: [kill]
router: {url: "http://h:1"}
prefill: [{url: "http://h:2"}]
decode: [{url: "http://h:3"}]
"""


def test_who_names_the_target_and_from_which_folder(
    pytester: pytest.Pytester, runs: Deployments, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = pytester.mkdir("deep")
    for folder, name in ((pytester.path, "ini"), (pytester.path, "own"), (deep, "said")):
        (folder / f"{name}.yaml").write_text(STANDING)
    pytester.makeini("[pytest]\npdchaos_target = ini.yaml\npdchaos_reports = kept\n")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.wedge_sensitive("abort-cascade")
        def test_of_the_suite(): pass

        @pytest.mark.wedge_sensitive("abort-cascade", target="own.yaml")
        def test_its_own(): pass

        @pytest.mark.wedge_sensitive("abort-cascade", target="lab:sim", set_={"prefill": 2})
        def test_of_a_lab(): pass
        """
    )

    def targets(*words: str) -> list[tuple[str, tuple[str, ...], Path]]:
        runs.asked.clear()
        suite(pytester, str(pytester.path), *words).assert_outcomes(passed=3)
        return [(order.target, order.lab_options, order.reports) for order in runs.asked]

    root = pytester.path
    monkeypatch.chdir(deep)
    assert [
        (f"{root}/ini.yaml", (), root / "kept"),
        (f"{root}/own.yaml", (), root / "kept"),
        ("lab:sim", ("prefill=2",), root / "kept"),
    ] == targets(*ASKED)
    said = (f"{deep}/said.yaml", (), deep / "there")
    assert [said] * 3 == targets("--pdchaos-target=said.yaml", "--pdchaos-reports=there")
    monkeypatch.setenv("PDCHAOS_TARGET", "said.yaml")
    assert [said] * 3 == targets(*ASKED, "--pdchaos-reports=there")


def test_scenarios_of_a_suite_are_found_from_its_own_folder(
    pytester: pytest.Pytester, runs: Deployments, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pytester.path / "mine.yaml").write_text("version: 1\nname: mine\nload: [{name: agents}]\n")
    pytester.makepyfile(SUITE.replace("abort-cascade", "mine.yaml"))
    pytester.makeini("[pytest]\n")
    monkeypatch.chdir(pytester.mkdir("deep"))
    suite(pytester, str(pytester.path), *ASKED).assert_outcomes(passed=1)
    assert [f"{pytester.path}/mine.yaml"] == [order.scenario for order in runs.asked]


def test_without_an_ini_file_the_suites_folder_is_where_pytest_is_called(
    pytester: pytest.Pytester, runs: Deployments, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = pytester.mkdir("deep")
    (deep / "mine.yaml").write_text("version: 1\nname: mine\nload: [{name: agents}]\n")
    pytester.makepyfile(SUITE.replace("abort-cascade", "mine.yaml"))
    monkeypatch.chdir(deep)
    suite(pytester, str(pytester.path), *ASKED).assert_outcomes(passed=1)
    assert [(f"{deep}/mine.yaml", deep / "reports")] == [(order.scenario, order.reports) for order in runs.asked]


def test_a_suite_whose_warnings_are_errors_does_not_end_a_run_half_way(
    pytester: pytest.Pytester, runs: Deployments, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warned(order: Launch) -> Launched:
        import warnings

        warnings.warn("a library of ours is old", DeprecationWarning, stacklevel=1)
        return runs.launch(order)

    monkeypatch.setattr(running, "launch", warned)
    pytester.makepyfile(SUITE)
    suite(pytester, *ASKED, "-W", "error::DeprecationWarning").assert_outcomes(passed=1, warnings=1)
