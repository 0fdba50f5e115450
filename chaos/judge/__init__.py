"""The judge: a pure function from a journal's events to a verdict. No clock, no I/O, no engine's or lab's name.

facts      one pass over the events
windows    which stretch of time is judged for each cycle
paths      the rule of recovery: how fresh requests fare on one path (asked by the running engine, too)
workers    who still takes part, where canaries cannot ask each worker by itself
questions  every question, each alone
lattice    findings to one outcome
verdict    all of it put together
campaign   the verdicts of several runs put together (stats: intervals, survival, a rank test;
           latency, speed: the comparison with a control arm)
"""

from __future__ import annotations

from chaos.judge.campaign import is_the_last, judge_campaign
from chaos.judge.facts import Facts
from chaos.judge.floors import floors_settle_ns, unsettled_floors
from chaos.judge.latency import latency
from chaos.judge.leaving import cut_short
from chaos.judge.recovery import PathRecovery, Recovery, recovery
from chaos.judge.rule import passes_for
from chaos.judge.verdict import JUDGE_VERSION, QUESTIONS, judge
from chaos.judge.windows import in_vain_s
from chaos.judge.workers import workers_known

__all__ = [
    "JUDGE_VERSION",
    "QUESTIONS",
    "Facts",
    "PathRecovery",
    "Recovery",
    "cut_short",
    "floors_settle_ns",
    "in_vain_s",
    "is_the_last",
    "judge",
    "judge_campaign",
    "latency",
    "passes_for",
    "recovery",
    "unsettled_floors",
    "workers_known",
]
