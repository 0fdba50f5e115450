"""Slower than the control, or not, or nobody knows: from a run's events to its medians, from medians to an answer."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.judge import judge_campaign, latency
from chaos.judge.latency import ENOUGH, FRESH
from chaos.model import events as ev
from chaos.model.campaign import FORMAT, Begun, Ended, Latency, PlannedRun
from chaos.model.outcomes import Answer, Cleanup, ExitCode, Outcome, RunStatus, exit_code
from chaos.model.verdict import Evidence, Finding, Verdict

MS, SECOND = 1_000_000, 1_000_000_000
BEGUN, UNTIL = 100 * SECOND, 120 * SECOND
TTFT, GAPS = "users: time to first token", "users: time between tokens"
BUSY = "requests of users could be timed, we were not fit to time the rest"


def request(at_ns: int, first_ms: float, *, error: str = "") -> ev.RequestEnded:
    group, gap_ms = "users", 10.0
    first = at_ns + int(first_ms * MS)
    return ev.RequestEnded(
        t_ns=first + SECOND,
        src=f"agent:{group}",
        req=f"{group}-{at_ns}",
        kind="load",
        path="routed",
        sent_ns=at_ns,
        first_ns=None if error else first,
        last_ns=first + SECOND,
        tokens=20,
        gaps=ev.Gaps(n=19, p50_ms=gap_ms, p99_ms=gap_ms, max_ms=gap_ms),
        error=error,
        group=group,
    )


def beats(lag_ms: float = 0.5, who: str = "agent:users") -> list:
    phases = {"waiting": 2, "thinking": 2, "done": 50}
    return [
        ev.HarnessHealth(t_ns=at, who=who, lag_max_ms=99.0, lag_p99_ms=lag_ms, phases=phases)
        for at in range(BEGUN - SECOND, UNTIL + 5 * SECOND, SECOND // 2)
    ]


FAILED = request(BEGUN + 1, 1.0, error="status")


def a_run(*requests: ev.RequestEnded, health: list | None = None) -> list:
    phases = [
        ev.PhaseEntered(t_ns=at, phase=phase)
        for at, phase in ((BEGUN, "measuring"), (UNTIL, "teardown"), (UNTIL + SECOND, "idle"))
    ]
    return [*phases, *requests, *(beats() if health is None else health)]


def steady(number: int = 20, first_ms: float = 200.0) -> list[ev.RequestEnded]:
    return [request(BEGUN + n * SECOND // 2, first_ms + n) for n in range(number)]


def test_a_run_gives_the_medians_of_what_was_sent_while_it_measured() -> None:
    outside = [request(BEGUN - 1, 9000.0), request(UNTIL, 9000.0)]
    told = latency(a_run(*steady(), *outside))
    assert (TTFT, 209.5, 10.0) == (next(iter(told.medians_ms)), told.medians_ms[TTFT], told.medians_ms[GAPS])
    assert ("", 4.0) == (told.why, told.sessions)


def test_canaries_of_the_routed_path_are_timed_by_the_harness() -> None:
    fresh = [
        ev.RequestEnded(
            t_ns=at + SECOND,
            req=str(at),
            kind="canary",
            path=path,
            sent_ns=at,
            first_ns=at + 50 * MS,
            last_ns=at + SECOND,
        )
        for path in ("routed", "prefill-0>decode-0")
        for at in range(BEGUN, UNTIL, SECOND)
    ]
    told = latency(a_run(*fresh, health=beats(who="harness")))
    assert {f"{FRESH}: time to first token": 50.0} == told.medians_ms
    assert {} == latency(a_run(*fresh)).medians_ms  # the harness did not report on itself


@pytest.mark.parametrize(
    ("events", "why"),
    [
        (a_run(*steady(ENOUGH - 1)), "only 9 of 9 requests of users could be timed, too few"),
        (
            a_run(*steady(), health=beats(lag_ms=5.0)),
            f"only 0 of 20 {BUSY}",
        ),
        (
            a_run(*steady(), health=[]),
            f"only 0 of 20 {BUSY}",
        ),
        (
            a_run(*steady(18), *(request(BEGUN + n, 1, error="status") for n in (1, 2))),
            "2 of 20 requests of users failed",
        ),
        (a_run(), "no request was sent while it measured"),
        (steady(), "it did not come to measuring"),
    ],
)
def test_a_run_that_cannot_be_timed_says_why(events: list, why: str) -> None:
    told = latency(events)
    assert (why, {}) == (told.why, told.medians_ms)


def test_only_requests_during_which_we_were_late_are_left_out() -> None:
    late = BEGUN + 3 * SECOND
    health = [msgspec.structs.replace(b, lag_p99_ms=30.0 if b.t_ns == late else 1.0) for b in beats()]
    # One beat covers the half second before it: a request of 100 ms every half second meets it once, or at its edges.
    requests = [request(BEGUN + n * SECOND // 2 + 100 * MS, 900.0 if n == 5 else 100.0) for n in range(20)]
    assert 100.0 == latency(a_run(*requests, health=health)).medians_ms[TTFT]
    only = [r for r in requests if r.first_ns - r.sent_ns == 900 * MS] * ENOUGH
    assert f"only 0 of 10 {BUSY}" == latency(a_run(*only, health=health)).why


def test_lag_between_sending_and_the_first_token_or_far_below_what_is_measured_does_not_matter() -> None:
    slow = [request(BEGUN + n * SECOND, 2400.0) for n in range(ENOUGH)]
    assert {TTFT: 2400.0} == latency(a_run(*slow, health=beats(lag_ms=47.0))).medians_ms  # 2 % are 48 ms
    assert {} == latency(a_run(*slow, health=beats(lag_ms=49.0))).medians_ms
    one = [request(BEGUN + 100 * MS, 2400.0)] * ENOUGH
    middle = BEGUN + 2 * SECOND
    health = [msgspec.structs.replace(b, lag_p99_ms=900.0 if b.t_ns == middle else 1.0) for b in beats()]
    assert 2400.0 == latency(a_run(*one, health=health)).medians_ms[TTFT]


def test_the_time_between_tokens_needs_us_to_be_on_time_for_all_of_them() -> None:
    assert (
        GAPS
        not in latency(
            a_run(*[request(BEGUN + n * SECOND, 2400.0) for n in range(ENOUGH)], health=beats(9.0))
        ).medians_ms
    )
    assert GAPS in latency(a_run(*steady())).medians_ms


@settings(max_examples=50, deadline=None)
@given(st.permutations(a_run(*steady(12))), st.integers(0, 10**12))
def test_order_and_the_clock_s_zero_change_nothing(events: list, shift_ns: int) -> None:
    def moved(event: ev.AnyEvent) -> ev.AnyEvent:
        names = [name for name in ("t_ns", "sent_ns", "first_ns", "last_ns") if getattr(event, name, None) is not None]
        return msgspec.structs.replace(event, **{name: getattr(event, name) + shift_ns for name in names})

    assert latency(a_run(*steady(12))) == latency([moved(event) for event in events])


# ---------------------------------------------------------------------------------------------- over runs


def verdict(outcome: Outcome = Outcome.HEALTHY) -> Verdict:
    finding = Finding(id="faults-landed", question="?", answer=Answer.YES, evidence=(Evidence(text="it did"),))
    allowed = frozenset({Outcome.HEALTHY})
    return Verdict(
        format=1,
        judge_version="2",
        run_id="r",
        scenario="s",
        target="t",
        outcome=outcome,
        status=RunStatus.COMPLETED,
        cleanup=Cleanup.CLEAN,
        exit_code=exit_code(outcome, RunStatus.COMPLETED, Cleanup.CLEAN, allowed=allowed),
        headline=outcome.value,
        reasons=(),
        findings=(finding,),
    )


def compared(
    fault: list, control: list, *, verdicts: dict[int, Verdict] | None = None, allow: tuple[str, ...] = ("healthy",)
) -> object:
    """A campaign in which each arm's runs have these latencies, fault first."""
    arms = ["fault"] * len(fault) + ["control"] * len(control)
    runs = tuple(
        PlannedRun(number=number, folder=f"runs/{number:03d}", dose="", trial=number, arm=arm)
        for number, arm in enumerate(arms, 1)
    )
    begun = Begun(
        format=FORMAT,
        campaign_id="c",
        tool_version="0",
        utc="x",
        scenario="s",
        about="",
        target="t",
        allow=allow,
        until="",
        runs=runs,
        slower_by=0.25,
    )
    latencies = {
        number: found
        if isinstance(found, Latency)
        else Latency(sessions=4, medians_ms={TTFT: found, GAPS: 10.0 + number})
        for number, found in enumerate([*fault, *control], 1)
    }
    told = {run.number: verdict() for run in runs} | (verdicts or {})
    return judge_campaign(begun, told, (), Ended(reason="", interrupted=False), latencies)


def test_every_run_clearly_slower_is_degraded_with_its_effect() -> None:
    told = compared([400.0, 410.0, 390.0, 420.0], [200.0, 210.0, 190.0, 220.0])
    assert (Outcome.DEGRADED, ExitCode.VIOLATION, Answer.YES) == (told.outcome, told.exit_code, told.speed[0].answer)
    assert (
        "slower than the control: users: time to first token 405 ms against 205 ms of the control (x 1.98, p = 0.014"
        in (told.speed[0].told)
    )
    assert told.headline.endswith("slower than the control")
    assert told.speed[0].told in told.reasons
    allowed = compared([400.0, 410.0, 390.0, 420.0], [200.0, 210.0, 190.0, 220.0], allow=("healthy", "degraded"))
    assert (Outcome.DEGRADED, ExitCode.AS_EXPECTED) == (allowed.outcome, allowed.exit_code)


def test_the_same_speed_is_not_slower() -> None:
    told = compared([200.0, 211.0, 190.0, 220.0], [201.0, 210.0, 191.0, 221.0])
    assert (Outcome.HEALTHY, Answer.NO) == (told.outcome, told.speed[0].answer)


def test_two_measures_must_each_stand_up_to_half_of_the_error() -> None:
    told = compared([400.0, 410.0, 420.0], [200.0, 210.0, 190.0, 220.0])
    assert (Answer.UNKNOWN, True) == (told.speed[0].answer, 0.025 < told.speed[0].measures[1].p < 0.05)


NOISY = [400.0, 150.0, 390.0, 160.0]
EVEN = [200.0, 210.0, 190.0, 220.0]


@pytest.mark.parametrize(
    ("fault", "control", "verdicts", "word"),
    [
        (NOISY, EVEN, {}, "speed unknown: users: time to first token"),
        ([400.0, 410.0, 420.0], EVEN[:3], {}, "4 runs of each arm could tell"),
        ([Latency(why="it did not come to measuring")] * 4, EVEN, {}, "no runs of both arms"),
        ([Latency(sessions=60, medians_ms={TTFT: 900.0 + n}) for n in range(4)], EVEN, {}, "not the same load, 60"),
        ([Latency(sessions=4, medians_ms={"others": 900.0 + n}) for n in range(4)], EVEN, {}, "no measure was fit"),
        ([400.0] * 4, EVEN, dict.fromkeys((5, 6, 7, 8), verdict(Outcome.OVERLOADED)), "a control that is overloaded"),
        ([400.0] * 4, EVEN, dict.fromkeys((1, 2, 3, 4), verdict(Outcome.INCONCLUSIVE)), "it is inconclusive"),
        ([400.0] * 4, EVEN, dict.fromkeys((1, 2, 3, 4), verdict(Outcome.WEDGED)), "it no longer serves"),
    ],
)
def test_noise_few_runs_another_load_and_sick_runs_are_unknown_and_never_degraded(
    fault: list, control: list, verdicts: dict, word: str
) -> None:
    told = compared(fault, control, verdicts=verdicts)
    assert Answer.UNKNOWN == told.speed[0].answer
    assert word in told.speed[0].told
    assert Outcome.DEGRADED != told.outcome


def test_a_control_run_is_no_trial_of_the_fault_and_its_own_trouble_is_told() -> None:
    told = compared(EVEN, EVEN, verdicts={8: verdict(Outcome.LEAKING)})
    assert (4, 4) == (told.doses[0].planned, told.doses[0].counted)
    assert "run 8 (control): leaking" in told.reasons
    assert (Outcome.LEAKING, ExitCode.VIOLATION) == (told.outcome, told.exit_code)
