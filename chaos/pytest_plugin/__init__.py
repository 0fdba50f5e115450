"""`pytest -m wedge_sensitive`: the judge of `pdchaos run` inside a test suite.

    import pytest

    @pytest.mark.wedge_sensitive("abort-cascade", target="target.yaml")
    def test_an_agent_that_dies_costs_nobody_else(): ...

pytest loads this module wherever pdchaos is installed, so it imports nothing that only runs need. It registers a
marker and a fixture, and leaves tests that use neither alone. docs/pytest.md tells it all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from chaos.launch.run import Launched

__all__ = ["WedgeRun"]

MARKER = "wedge_sensitive"
HOW = (
    "wedge_sensitive(scenario, target=..., set_={}, with_={}, allow=[]): pdchaos breaks a deployment as the scenario "
    "says, and the test fails unless the verdict is one that is allowed; takes minutes, so it is skipped unless "
    "-m wedge_sensitive or --pdchaos-target asks for it"
)
OUTCOME, RUN = "pdchaos_outcome", "pdchaos_run"
"""Properties of a test's report: what its run came to, and the folder that holds it."""

_made = pytest.StashKey[list["Launched"]]()


class WedgeRun:
    """The fixture `wedge_run`: each call makes one run and returns it, judged.

    What is given goes before the same of the marker; `set_` and `with_` are merged. A run that is not as expected fails
    the test here, whatever the test would have asserted: a wedge, and just as well a run that shows nothing.
    """

    def __init__(self, item: pytest.Item) -> None:
        self._item = item

    def __call__(
        self,
        scenario: str | PathLike[str] | None = None,
        *,
        target: str | PathLike[str] | None = None,
        set_: Mapping[str, Any] | None = None,
        with_: Mapping[str, Any] | None = None,
        allow: Sequence[str] | None = None,
    ) -> Launched:
        """Break the deployment as the scenario says. Blocks until it is judged, which is minutes."""
        return _run(self._item, scenario, target=target, set_=set_, with_=with_, allow=allow)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where to run, and where to keep the records."""
    group = parser.getgroup("pdchaos", "pdchaos: deployments that must survive")
    group.addoption(
        "--pdchaos-target",
        metavar="TARGET",
        help="A target file or a lab (lab:sim@BUILD), for all wedge_sensitive tests in place of their own. "
        "Environment: PDCHAOS_TARGET.",
    )
    group.addoption(
        "--pdchaos-reports", metavar="DIR", help="Where run folders are made. Default: reports beside the ini-file."
    )
    parser.addini("pdchaos_target", "target of wedge_sensitive tests that name none, from the ini-file's folder on")
    parser.addini("pdchaos_reports", "where run folders are made, from the ini-file's folder on", default="reports")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", HOW)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Nobody waits for minutes who did not ask."""
    if config.getoption("--pdchaos-target") or re.search(rf"\b{MARKER}\b", config.getoption("markexpr", "")):
        return
    reason = f"takes minutes: ask for it with -m {MARKER} or --pdchaos-target=TARGET"
    for item in items:
        if item.get_closest_marker(MARKER):
            item.add_marker(pytest.mark.skip(reason=reason), append=False)


@pytest.fixture
def wedge_run(request: pytest.FixtureRequest) -> WedgeRun:
    """Breaks the deployment that the test's `wedge_sensitive` marker names, when called, and returns the judged run."""
    item: pytest.Item = request.node
    if item.get_closest_marker(MARKER) is None:
        pytest.fail(f"a test that takes wedge_run needs the marker: @pytest.mark.{MARKER}(...)", pytrace=False)
    return WedgeRun(item)


@pytest.hookimpl(tryfirst=True, specname="pytest_runtest_call")
def pytest_runs_first(item: pytest.Item) -> None:
    """Make the run of a marked test that leaves it to the marker, before its body."""
    if item.get_closest_marker(MARKER) and not _calls(item):
        _run(item)


@pytest.hookimpl(trylast=True, specname="pytest_runtest_call")
def pytest_ran(item: pytest.Item) -> None:
    """A test that could have broken something and did not must not pass."""
    if item.get_closest_marker(MARKER) and _made not in item.stash:
        pytest.fail("nothing was broken: the test takes wedge_run and never calls it", pytrace=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Where the records are, also of runs that were survived."""
    reports = [report for some in terminalreporter.stats.values() for report in some]
    runs = [(report.nodeid, report.user_properties) for report in reports if getattr(report, "when", "") == "call"]
    lines = [
        f"{outcome:<13} {folder}  {nodeid}"
        for nodeid, told in runs
        for outcome, folder in zip(_of(told, OUTCOME), _of(told, RUN), strict=True)
    ]
    if lines:
        terminalreporter.section("pdchaos runs")
        for line in lines:
            terminalreporter.write_line(line)


def _of(told: list[tuple[str, object]], name: str) -> list[object]:
    return [value for key, value in told if key == name]


def _calls(item: pytest.Item) -> bool:
    return "wedge_run" in getattr(item, "fixturenames", ())


def _run(item: pytest.Item, *scenario: Any, **given: Any) -> Launched:
    from chaos.pytest_plugin.running import run_for  # noqa: PLC0415 - only who makes a run pays for it

    launched = run_for(item, MARKER, scenario, given, note=item.user_properties.append)
    item.stash.setdefault(_made, []).append(launched)
    return launched
