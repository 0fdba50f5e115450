"""Campaigns told in a few words: verdicts as a run's judge would give them, without any run."""

from __future__ import annotations

from chaos.model.campaign import FORMAT, Begun, Ended, PlannedRun
from chaos.model.outcomes import Answer, Cleanup, Outcome, RunStatus, exit_code
from chaos.model.verdict import Evidence, Finding, Verdict, WaveVerdict, Wedge


def begun(*doses: str, trials: int = 1, until: str = "") -> Begun:
    """A campaign of so many trials of each dose."""
    runs = [(dose, trial) for dose in doses or ("",) for trial in range(1, trials + 1)]
    return Begun(
        format=FORMAT,
        campaign_id="c0ffee00",
        tool_version="0.1.0",
        utc="2026-01-01T00:00:00Z",
        scenario="abort-cascade",
        about="Kill agents.",
        target="lab:sim",
        allow=("healthy",),
        until=until,
        runs=tuple(
            PlannedRun(number=number, folder=f"runs/{number:03d}", dose=dose, trial=trial)
            for number, (dose, trial) in enumerate(runs, 1)
        ),
    )


def verdict(
    outcome: Outcome = Outcome.HEALTHY,
    *,
    landed: Answer = Answer.YES,
    aborts: tuple[int | None, ...] = (30,),
    status: RunStatus = RunStatus.COMPLETED,
    cleanup: Cleanup = Cleanup.CLEAN,
) -> Verdict:
    """A run's verdict with a wave for each number of aborts."""
    wedged = outcome is Outcome.WEDGED
    waves = tuple(
        WaveVerdict(
            wave="wave",
            cycle=cycle,
            how="sigkill",
            phases={"waiting": 20},
            sessions=60,
            sockets=60,
            spread_ms=1.0,
            server_aborts=number,
            landed=landed,
        )
        for cycle, number in enumerate(aborts, 1)
    )
    finding = Finding(
        id="faults-landed",
        question="Did every planned fault hit what it aimed at?",
        answer=landed,
        evidence=(Evidence(text="wave of cycle 1: waiting 20"),),
    )
    return Verdict(
        format=1,
        judge_version="2",
        run_id="r",
        scenario="abort-cascade",
        target="lab:sim",
        outcome=outcome,
        status=status,
        cleanup=cleanup,
        exit_code=exit_code(outcome, status, cleanup, allowed=frozenset({Outcome.HEALTHY})),
        headline=f"{outcome.value.upper()}: told by a test",
        reasons=(),
        findings=(finding,),
        waves=waves,
        wedge=Wedge(total=True, silent=True, confirmed=True, side="prefill", paths=("routed",)) if wedged else None,
        allow=("healthy",),
        duration_s=60.0,
    )


DONE = Ended(reason="", interrupted=False)
