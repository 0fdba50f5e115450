# ruff: noqa: E501 - messages stand here as they are shown
"""Files become models, or every problem at once, each with its position, in our own words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_samples import PACK, SCENARIO, TARGET

from chaos.model.errors import InvalidFile, Problem
from chaos.model.known import Known
from chaos.model.loading import MAX_PROBLEMS, parse_pack, parse_scenario, parse_target
from chaos.model.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

KNOWN = Known(
    gauges=frozenset({"decode_prealloc_queue", "prefill_bootstrap_queue"}),
    metrics=frozenset({"decode_prealloc_queue", "prefill_bootstrap_queue", "decoded_tokens"}),
    timeouts={"sglang": frozenset({"waiting", "bootstrap"}), "sglang-router": frozenset()},
    aborting=frozenset(),
)


def scenario_problems(text: str, *overrides: str, known: Known | None = KNOWN) -> list[str]:
    with pytest.raises(InvalidFile) as caught:
        parse_scenario(text, "s.yaml", overrides, known=known)
    return str(caught.value).split("\n")


def changed(old: str, new: str, base: str = SCENARIO) -> str:
    assert old in base
    return base.replace(old, new)


def test_a_valid_scenario_has_seconds_and_defaults() -> None:
    scenario = parse_scenario(SCENARIO, "s.yaml", known=KNOWN)
    assert 120.0 == scenario.load[0].timeout
    assert 60 == scenario.load[0].sessions
    assert {"waiting": ">= 20"} == scenario.timeline[0].when
    assert "sigkill" == scenario.timeline[0].kill.how
    assert [Outcome.HEALTHY] == scenario.expect.allow
    assert "engine-timeouts" == scenario.observe.at_most
    assert 60.0 == scenario.timeline[0].give_up


def test_units_are_read() -> None:
    text = changed("timeout: 120s", "timeout: 2m, think_time: 300ms, arrival: {ramp: 1.5min}")
    group = parse_scenario(text, "s.yaml").load[0]
    assert (120.0, 0.3, 90.0) == (group.timeout, group.think_time, group.arrival.ramp)
    open_loop = changed("sessions: 60, timeout: 120s", "arrival: {rate: 90/m, for: 1h}")
    arrival = parse_scenario(open_loop, "s.yaml").load[0].arrival
    assert (1.5, 3600.0) == (arrival.rate, arrival.lasts)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("version: 1", "version: 2", "1:10: `version` must be 1, not 2 (this pdchaos reads version 1 files)"),
        ("version: 1", "version: true", "1:10: `version` must be 1, not true (this pdchaos reads version 1 files)"),
        ("version: 1", "version: '1'", "1:10: `version` must be 1, not '1' (this pdchaos reads version 1 files)"),
        ("version: 1\n", "", "1:1: `version` is missing"),
        (
            "name: small",
            "name: Small",
            "2:7: `name` must be a name of lower-case letters, digits, - and _ (63 at most), not 'Small'",
        ),
        ("name: small", "name: 5", '2:7: `name` must be text, not the number 5 (quote it: "5")'),
        ("name: small", "nmae: small", "2:1: unknown key `nmae` (did you mean name?)"),
        ("sessions: 60", "sesions: 60", "4:20: unknown key `sesions` (did you mean sessions?)"),
        (
            "expect: {recover_within: 60s}",
            "expect: {xyz: 1}",
            "7:10: unknown key `xyz` (known: allow, recover_within)",
        ),
        (
            "sessions: 60",
            "sessions: '60'",
            "4:30: `sessions` must be a whole number, not the text '60' (remove the quotes)",
        ),
        ("sessions: 60", "sessions: 060", "4:30: `sessions` must be a whole number, not the text '060' (write 60)"),
        ("sessions: 60", "sessions: 6.5", "4:30: `sessions` must be a whole number, not the number 6.5"),
        ("sessions: 60", "sessions: true", "4:30: `sessions` must be a whole number, not true"),
        ("sessions: 60", "sessions: 0", "4:30: `sessions` must be at least 1, not 0"),
        ("sessions: 60", "sessions: 20001", "4:30: `sessions` must be at most 20000, not 20001"),
        ("sessions: 60", "sessions: [60]", "4:30: `sessions` must be a whole number, not a list"),
        ("sessions: 60", "sessions:", "4:29: `sessions` has no value (give it one or remove the key)"),
        ("sessions: 60", "sessions: ~", "4:30: `sessions` has no value (give it one or remove the key)"),
        ("120s", "120", "4:43: `timeout` must be a duration such as 25s, 300ms or 2m, not 120 (write 120s)"),
        ("120s", "2.5", "4:43: `timeout` must be a duration such as 25s, 300ms or 2m, not 2.5 (write 2.5s)"),
        ("120s", "'012'", "4:43: `timeout` must be a duration such as 25s, 300ms or 2m, not '012' (write 12s)"),
        ("120s", "2 m", "4:43: `timeout` must be a duration such as 25s, 300ms or 2m, not '2 m'"),
        ("120s", "1:30", "4:43: `timeout` must be a duration such as 25s, 300ms or 2m, not '1:30'"),
        ("120s", "-5s", "4:43: `timeout` must be a duration such as 25s, 300ms or 2m, not '-5s'"),
        ("120s", "[1, 2]", "4:43: `timeout` must be a duration such as 25s, 300ms or 2m, not a list"),
        ("120s", "0s", "4:43: `timeout` must be longer than nothing"),
        ("120s", "5s, stream: yes", "4:55: `stream` must be true or false, not the text 'yes' (write true)"),
        ("120s", "5s, stream: Off", "4:55: `stream` must be true or false, not the text 'Off' (write false)"),
        (
            "120s",
            "5s, api: chatt",
            "4:52: `api` must be one of chat, completions, generate; it is the text 'chatt' (did you mean chat?)",
        ),
        (
            "60, timeout: 120s",
            "60, timeout: 5s, arrival: {rate: 5}",
            "4:20: `sessions` and `arrival.rate` exclude each other (how many there are follows from the rate)|s.yaml:4:63: `rate` must be a rate such as 20/s, not 5 (write 5/s)",
        ),
        ("120s", "5s, arrival: 5s", "4:56: `arrival` must be a mapping (key: value), not the text '5s'"),
        (
            "120s",
            "5s, prompt_tokens: {mean: 5}",
            "4:62: `prompt_tokens` must be a number of tokens (no distribution or trace: this version cannot do it yet)",
        ),
        (
            "120s",
            "5s, headers: {Authorization: Bearer x}",
            "4:57: the key `Authorization` is a header that pdchaos writes itself (for keys there is `api_key`)",
        ),
        (
            "120s",
            "5s, headers: {X-A: 'é'}",
            "4:62: `X-A` must be one line of ASCII text, not 'é'",
        ),
        (
            "120s",
            "5s, api_key: sk-1234",
            "4:56: `api_key` must be a reference env:NAME, file:PATH or cmd:COMMAND (keys are never written here)",
        ),
        ("group: agents", "group: agent", "6:30: there is no group 'agent' (did you mean agents?)"),
        ("{group: agents}", "agents", "6:22: `kill` must be a mapping (key: value), not the text 'agents'"),
        (
            "kill: {group: agents}, ",
            "",
            "6:5: the step has no action (give it one of kill, signal, restart, partition, loss, rate, delay, port_block, foreign_frame, abort_frame, poison, sham)",
        ),
        (
            "group: agents}",
            "group: agents, how: stall}",
            "6:43: stall must end before the run does (add for: 20s beside `kill`)",
        ),
        (
            "group: agents}",
            "group: agents, how: blackhole, then: close}",
            "6:43: blackhole must end before the run does (add for: 20s beside `kill`)",
        ),
        (
            "group: agents}",
            "group: agents, how: timeout}",
            "6:43: how: timeout needs a `deadline` (add deadline: 10s, how long after it was sent)",
        ),
        (
            "group: agents}",
            "group: agents, how: timeout, deadline: 0s}",
            "6:62: `deadline` must be longer than nothing",
        ),
        ("group: agents}", "group: agents, how: rst, deadline: 5s}", "6:48: `deadline` is for how: timeout"),
        ("group: agents}", "group: agents, then: close}", "6:38: `then` is for how: stall and blackhole"),
        (
            "group: agents}",
            "group: agents, how: abort-api}",
            "6:43: nothing says how to have a request aborted (a pack of the target needs endpoints.abort)",
        ),
        (
            "group: agents}",
            "group: agents, sessions: 5}",
            "6:48: sigkill ends whole client processes (to hit chosen sessions use how: rst)",
        ),
        (
            "group: agents}",
            "group: agents, how: rst, sessions: none}",
            "6:58: `sessions` must be all or a number of sessions from 1 to 20000, not 'none'",
        ),
        (
            "kill: {group: agents}",
            "flush-cache: {role: decode}",
            "6:16: the fault `flush-cache` is not supported: this version cannot do it yet (supported: kill, signal, restart, partition, loss, rate, delay, port_block, foreign_frame, abort_frame, poison, sham)",
        ),
        (
            "kill: {group: agents}",
            "partition: {where: {role: decode}}",
            "6:16: `from` is missing in `partition`",
        ),
        (
            "kill: {group: agents}",
            "partition: {where: {role: decode}, from: {role: prefill}, direction: sideways}",
            "6:85: `direction` must be one of both, in, out; it is the text 'sideways'",
        ),
        (
            "kill: {group: agents}",
            "partition: {where: {role: decode, node: d}, from: {role: decode, node: d}}",
            "6:87: d is both ends (a host has no network to itself)",
        ),
        (
            "kill: {group: agents}",
            "partition: {where: {role: decode}, from: {role: prefill, node: p, mode: 2}}",
            "6:82: `node` names one node already (leave `mode` out)",
        ),
        (
            "kill: {group: agents}",
            "loss: {where: {role: decode}, from: {role: prefill}, percent: 10}",
            "6:78: `percent` must be a percentage from 1% to 99.99%, not 10 (write 10%)",
        ),
        (
            "kill: {group: agents}",
            "loss: {where: {role: decode}, from: {role: prefill}, percent: 100%}",
            "6:78: `percent` must be a percentage from 1% to 99.99%, not '100%'",
        ),
        (
            "kill: {group: agents}",
            "rate: {where: {role: prefill}, to: {role: decode}, rate: 5}",
            "6:73: `rate` must be a rate such as 1mbit (per second: kbit, mbit or gbit), not 5 (write 5mbit)",
        ),
        (
            "kill: {group: agents}",
            "rate: {where: {role: prefill}, to: {role: decode}, rate: 5kbit}",
            "6:73: a rate can be made from 64 kbit/s to 32 Gbit/s",
        ),
        (
            "kill: {group: agents}",
            "rate: {where: {role: prefill}, to: {role: decode}, rate: 33gbit}",
            "6:73: a rate can be made from 64 kbit/s to 32 Gbit/s",
        ),
        (
            "kill: {group: agents}",
            "delay: {where: {role: prefill}, to: {role: decode}, delay: 0ms}",
            "6:75: `delay` must be longer than nothing",
        ),
        (
            "kill: {group: agents}",
            "delay: {where: {role: prefill}, to: {role: decode}, delay: 10ms, jitter: 20ms}",
            "6:89: `jitter` is more than the delay itself (nothing arrives earlier)",
        ),
        (
            "kill: {group: agents}",
            "port_block: {where: {role: decode}, from: {role: prefill}, port: 22}",
            "6:81: port 22 is that of SSH, which is never touched",
        ),
        (
            "kill: {group: agents}",
            "port_block: {where: {role: decode}, from: {role: prefill}, port: metrics}",
            "6:81: `port` must be bootstrap, http or a port from 1 to 65535, not 'metrics'",
        ),
        (
            "kill: {group: agents}",
            "port_block: {where: {role: decode}, from: {role: prefill}, port: bootstrap}",
            "6:81: only prefill nodes have a bootstrap port (where: {role: prefill})",
        ),
        (
            "kill: {group: agents}",
            "port-block: {port: 1}",
            "6:16: unknown key `port-block` (did you mean port_block?)",
        ),
        (
            "kill: {group: agents}",
            "poison: {kind: n3}",
            "6:31: `kind` must be one of over-context, n2, empty, tiny, huge; it is the text 'n3'",
        ),
        ("kill: {group: agents}", "poison: {count: 2}", "6:16: `kind` is missing in `poison`"),
        (
            "kill: {group: agents}",
            "poison: {kind: n2}, for: 5s",
            "6:36: `for` has nothing to undo here (signal: {send: STOP}, restart: {as: VARIANT}, stall, blackhole and faults of the network can be undone)",
        ),
        (
            "kill: {group: agents}",
            "kill: {group: agents}, for: 5s",
            "6:39: `for` has nothing to undo here (signal: {send: STOP}, restart: {as: VARIANT}, stall, blackhole and faults of the network can be undone)",
        ),
        (
            "kill: {group: agents}",
            "signal: {where: {role: decode}, send: KILL}, for: 5s",
            "6:61: `for` has nothing to undo here (signal: {send: STOP}, restart: {as: VARIANT}, stall, blackhole and faults of the network can be undone)",
        ),
        (
            "kill: {group: agents}",
            "restart: {where: {role: decode}}, for: 5s",
            "6:50: `for` has nothing to undo here (signal: {send: STOP}, restart: {as: VARIANT}, stall, blackhole and faults of the network can be undone)",
        ),
        (
            "kill: {group: agents}",
            "restart: {where: {role: decode}, as: other}",
            "6:53: a node restarted as a variant must become itself again (add for: 30s beside `restart`; until then nothing is expected of the node)",
        ),
        (
            "kill: {group: agents}",
            "signal: {where: {role: decode}, send: STOP}, for: 0s",
            "6:66: `for` must be longer than nothing",
        ),
        (
            "kill: {group: agents}",
            "kill: {group: agents}, abort_frame: {}",
            "6:39: `kill` and `abort_frame` exclude each other (one action per step)",
        ),
        (
            "kill: {group: agents}",
            "where: {role: decode}",
            "6:16: `where` belongs into the fault (such as signal: {where: {role: decode}, send: STOP})",
        ),
        (
            "kill: {group: agents}",
            "signal: {where: {role: decode, rank: 0, child: x}, send: STOP}",
            "6:56: `rank` and `child` exclude each other (either names a process)",
        ),
        (
            "kill: {group: agents}",
            "signal: {where: {role: decode, node: decode-1, mode: all}, send: STOP}",
            "6:63: `node` names one node already (leave `mode` out)",
        ),
        (
            "kill: {group: agents}",
            "signal: {where: {role: decode, mode: 0%}, send: STOP}",
            "6:53: `mode` must be one, all, a number of nodes or a share such as 50%, not '0%'",
        ),
        (
            "kill: {group: agents}",
            "signal: {where: {role: decode}, send: HUP}",
            "6:54: `send` must be one of STOP, KILL, TERM, CONT; it is the text 'HUP'",
        ),
        (
            "kill: {group: agents}",
            "foreign_frame: {where: {role: decode}}",
            "6:46: `role` must be one of prefill; it is the text 'decode'",
        ),
        (
            "kill: {group: agents}",
            "foreign-frame: {where: {role: prefill}}",
            "6:16: unknown key `foreign-frame` (did you mean foreign_frame?)",
        ),
        (', when: {waiting: ">= 20"}', "", "6:5: the step has no trigger (give it one of at, when, after)"),
        ("when:", "at: 5s, when:", "6:47: `at` and `when` exclude each other (one trigger per step)"),
        ('{waiting: ">= 20"}', "{}", "6:45: `when` must not be empty"),
        ('">= 20"', "20", '6:55: `waiting` must be a comparison such as ">= 20", not 20 (write ">= 20")'),
        ('">= 20"', '"=> 20"', "6:55: `waiting` must be a comparison such as \">= 20\", not '=> 20'"),
        (
            "waiting",
            "wating",
            "6:46: `wating` is neither a census phase nor a gauge that the packs know (did you mean waiting?)",
        ),
        (
            "waiting",
            "server_aborts",
            "6:46: `server_aborts` cannot be waited for (it belongs into `aim`: it is known only after the wave)",
        ),
        (
            "}\nexpect",
            "}\n  - {id: late, kill: {group: agents}, after: wav}\nexpect",
            "7:46: there is no earlier step 'wav' (did you mean wave?)",
        ),
        (
            "id: wave, ",
            "id: wave, aim: {decoded_tokens: '>= 1'}, ",
            "6:22: `decoded_tokens` is neither a census phase nor a gauge that the packs know (known: connecting, decode_prealloc_queue, prefill_bootstrap_queue, server_aborts, streaming, thinking, waiting)",
        ),
        (
            "60s}",
            "60s, allow: [inconclusive]}",
            "7:39: `allow[0]` cannot be inconclusive (a run that showed nothing is not a pass)",
        ),
        (
            "60s}",
            "60s, allow: [healthy, wedge]}",
            "7:48: `allow[1]` must be one of corrupted, crashed, wedged, restarted, leaking, damaged, degraded, slow-recovery, overloaded, healthy; it is 'wedge' (did you mean wedged?)",
        ),
        ("60s}", "60s, allow: []}", "7:38: `allow` must not be empty"),
        ("expect:", "trials: {count: 501}\nexpect:", "7:17: `count` must be at most 500, not 501"),
        ("expect:", "matrix: {}\nexpect:", "7:1: `matrix` is not supported: this version cannot do it yet"),
        (
            "expect:",
            "observe: {at_most: 30s}\nexpect:",
            "7:20: watching 30 s cannot tell whether paths recover within 60 s (watch longer or set expect.recover_within)",
        ),
        (
            "expect:",
            "observe: {at_most: forever}\nexpect:",
            "7:20: `at_most` must be a duration such as 25s, 300ms or 2m, not 'forever'",
        ),
        ("expect:", "canary: {every: 1ms}\nexpect:", "7:17: canaries every 0.001 s would be load (100ms is the least)"),
        ("expect:", "requires: {packs: [sglng]}\nexpect:", "7:20: there is no pack 'sglng' (did you mean sglang?)"),
        (
            "expect:",
            "requires: {metrics: [decoded_token]}\nexpect:",
            "7:22: there is no metric 'decoded_token' (did you mean decoded_tokens?)",
        ),
        (
            "120s",
            "5s, saturate: {waiting: 5, max_sessions: 40}",
            "4:84: `max_sessions` is 40, fewer than the 60 sessions the group begins with",
        ),
        (
            "120s",
            "5s, saturate: {waiting: 500, max_sessions: 80}",
            "4:67: 500 sessions can never wait: `max_sessions` is 80",
        ),
        ("120s", "5s, arrival: {for: 5s}", "4:57: `for` ends an open loop and needs a `rate`"),
        (
            "load:",
            "load:\n  - {name: agents}",
            "5:12: there are two groups with the name 'agents' (first in line 4)",
        ),
    ],
)
def test_each_mistake_has_one_message_at_its_place(old: str, new: str, problem: str) -> None:
    assert f"s.yaml:{problem}".split("|") == scenario_problems(changed(old, new))


@pytest.mark.parametrize(
    ("group", "kill"),
    [
        ("sessions: 60", "sessions: 60"),
        ("sessions: 60", "sessions: all"),
        ("sessions: 60, saturate: {waiting: 5, max_sessions: 400}", "sessions: 400"),
        ("arrival: {rate: 5/s}", "sessions: 999"),  # how many there are follows from the rate
    ],
)
def test_a_wave_may_ask_for_as_many_sessions_as_its_group_can_have(group: str, kill: str) -> None:
    text = changed("sessions: 60", group).replace("{group: agents}", f"{{group: agents, how: rst, {kill}}}")
    for cycles in ("", "cycles: {count: 3}\n"):
        assert parse_scenario(text + cycles, "s.yaml").timeline


@pytest.mark.parametrize(
    ("group", "kill", "told"),
    [
        ("sessions: 60", "how: rst, sessions: 61", "6:58: 61 sessions can never be hit: the group 'agents' has 60"),
        ("rounds: 2", "how: fin, sessions: 2", "6:58: 2 sessions can never be hit: the group 'agents' has 1"),
        (
            "sessions: 60, saturate: {waiting: 5, max_sessions: 80}",
            "how: cancel, sessions: 999",
            "6:61: 999 sessions can never be hit: the group 'agents' has 80",
        ),
    ],
)
def test_a_wave_that_asks_for_more_sessions_than_its_group_can_have_is_refused(
    group: str, kill: str, told: str
) -> None:
    text = changed("sessions: 60", group).replace("{group: agents}", f"{{group: agents, {kill}}}")
    hint = "write sessions: all, or give the group more: `sessions`, or `saturate.max_sessions`"
    assert [f"s.yaml:{told} at most ({hint})"] == scenario_problems(text)


def test_an_open_loop_excludes_what_belongs_to_a_closed_one_and_must_end() -> None:
    text = "version: 1\nname: a\nload:\n  - {name: a, sessions: 2, rounds: 2, arrival: {rate: 5/s, ramp: 1s}}\n"
    assert [
        "s.yaml:4:15: `sessions` and `arrival.rate` exclude each other (how many there are follows from the rate)",
        "s.yaml:4:28: `rounds` and `arrival.rate` exclude each other (each session of an open loop sends one request)",
        "s.yaml:4:49: without a timeline this load never ends (add for: 60s)",
        "s.yaml:4:60: `ramp` and `rate` exclude each other (a rate needs no ramp)",
    ] == scenario_problems(text)


def test_every_problem_is_told_at_once_whatever_its_kind() -> None:
    text = (
        "version: 1\nname: X\nfoo: 1\nload:\n  - {name: a, sessions: many, timeout: 5}\n"
        "timeline:\n  - {id: w, kill: {group: b}, at: 1, when: {waiting: 3}}\n  - 5\nseed: -1\n"
    )
    assert [
        "2:7: `name` must be a name of lower-case letters, digits, - and _ (63 at most), not 'X'",
        "3:1: unknown key `foo` (known: about, canary, control, cycles, expect, load, name, observe, requires, seed, sweep, timeline, trials, version)",
        "5:25: `sessions` must be a whole number, not the text 'many'",
        "5:40: `timeout` must be a duration such as 25s, 300ms or 2m, not 5 (write 5s)",
        "7:27: there is no group 'b' (known: a)",
        "7:35: `at` must be a duration such as 25s, 300ms or 2m, not 1 (write 1s)",
        "7:38: `at` and `when` exclude each other (one trigger per step)",
        '7:54: `waiting` must be a comparison such as ">= 20", not 3 (write ">= 3")',
        "8:5: `timeline[1]` must be a mapping (key: value), not the number 5",
        "9:7: `seed` must be at least 0, not -1",
    ] == [line.removeprefix("s.yaml:") for line in scenario_problems(text)]


def test_a_file_full_of_problems_is_cut_short() -> None:
    text = "version: 1\nname: a\n" + "".join(f"k{i}: 1\n" for i in range(500))
    problems = scenario_problems(text)
    assert MAX_PROBLEMS + 1 == len(problems)
    assert "s.yaml:102:1: … and 400 more problems" in problems


def test_without_packs_any_gauge_name_is_accepted() -> None:
    assert parse_scenario(changed("waiting", "some_gauge"), "s.yaml").timeline[0].when


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("router: {url:", "router: {uri:", "3:10: unknown key `uri` (did you mean url?)"),
        ("127.0.0.1:8000", "a b", "3:15: `url` must be an address such as http://127.0.0.1:30000, not 'http://a b' (no user, query or fragment)"),
        ("127.0.0.1:8000", "me:pw@host", "3:15: `url` must be an address such as http://127.0.0.1:30000, not 'http://me:pw@host' (no user, query or fragment)"),
        ("127.0.0.1:8000", "[::1:8000", "3:15: `url` must be an address such as http://127.0.0.1:30000, not 'http://[::1:8000' (after the host only a port may follow; an IPv6 address stands in brackets: http://[::1]:30000)"),
        ("127.0.0.1:8000", "[nobody]:8000", "3:15: `url` must be an address such as http://127.0.0.1:30000, not 'http://[nobody]:8000' (after the host only a port may follow; an IPv6 address stands in brackets: http://[::1]:30000)"),
        ("127.0.0.1:8000", "::1:8000", "3:15: `url` must be an address such as http://127.0.0.1:30000, not 'http://::1:8000' (after the host only a port may follow; an IPv6 address stands in brackets: http://[::1]:30000)"),
        ("127.0.0.1:8000", "a:b:80", "3:15: `url` must be an address such as http://127.0.0.1:30000, not 'http://a:b:80' (after the host only a port may follow; an IPv6 address stands in brackets: http://[::1]:30000)"),
        ("127.0.0.1:8000", "h:0", "3:15: `url` must be an address such as http://127.0.0.1:30000, not 'http://h:0' (a port is a number from 1 to 65535)"),
        ("127.0.0.1:8000", "[::1]:99999", "3:15: `url` must be an address such as http://127.0.0.1:30000, not 'http://[::1]:99999' (a port is a number from 1 to 65535)"),
        ("127.0.0.1:8000", "127.0.0.256:1", "3:15: `url` must be an address such as http://127.0.0.1:30000, not 'http://127.0.0.256:1' ('127.0.0.256' is no host)"),
        ("127.0.0.1:8000", "a..b:1", "3:15: `url` must be an address such as http://127.0.0.1:30000, not 'http://a..b:1' ('a..b' is no host)"),
        ("127.0.0.1:8000", ":8000", "3:15: `url` must be an address such as http://127.0.0.1:30000, not 'http://:8000' ('' is no host)"),
        ("127.0.0.1:30001", "127.0.0.1:30000/", "7:11: decode-0 has the same address as prefill-0"),
        ('prefill:\n  - {url: "http://127.0.0.1:30000"}\n', "prefill: []\n", "4:10: `prefill` must not be empty"),
        ("name: here", "name: here\nengine: sglng", "3:9: there is no pack for 'sglng' (did you mean sglang?)"),
        ("name: here", "name: here\ntimeouts: {waitng: 5s}", "3:12: the pack knows no timeout `waitng` (did you mean waiting?)"),
        ("allow: [kill]", "allow: [kil]", "9:9: `allow[0]` must be one of kill, signal, restart, network, protocol, request; it is the text 'kil' (did you mean kill?)"),
        ("name: here", "name: here\ntime_scale: 0", "3:13: `time_scale` must be more than 0, not 0"),
        ('30001"}', '30001", name: prefill-0}', "7:37: two servers are called 'prefill-0'"),
        ('30001"}', '30001", port: 70000}', "7:43: `port` must be at most 65535, not 70000"),
    ],
)  # fmt: skip
def test_each_mistake_in_a_target_has_one_message_at_its_place(old: str, new: str, problem: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        parse_target(changed(old, new, TARGET), "t.yaml", known=KNOWN)
    assert f"t.yaml:{problem}" == str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (r"'room=(?P<room>\d+) gone'", "'room=('", "17:14: `pattern` is not a regular expression: missing ), unterminated subpattern at position 5|19:10: the pattern has no group 'room' (write (?P<NAME>...))"),
        (r"'room=(?P<room>\d+) gone'", "'(?P<room>a{99999999999})'", "17:14: `pattern` is not a regular expression: the repetition number is too large"),
        (r"'room=(?P<room>\d+) gone'", "'(?i)(?P<room>x)'", "17:14: `pattern` begins with a global flag (write (?i:...) around what it concerns)"),
        (r"'room=(?P<room>\d+) gone'", "'(?P<room>x)?'", "17:14: `pattern` matches the empty line, so every line"),
        (r"'room=(?P<room>\d+) gone'", "'[[a]:(?P<room>x)'", "17:14: `pattern` is not a regular expression: Possible nested set at position 1"),
        ("key: room", "key: roam", "19:10: the pattern has no group 'roam' (did you mean room?)"),
        ("class: abort", "class: abrot", "15:12: `class` must be one of fatal, abort, timeout, symptom, crash, restart, benign, traceback; it is the text 'abrot' (did you mean abort?)"),
        ("class: abort", "klass: abort", "15:5: unknown key `klass` (did you mean class?)"),
        ("title: gone", "title: gone\n    upstream: '#5'", "17:15: `upstream` must be a reference such as sgl-project/sglang#30352, not '#5'"),
        ("bootstrap, default", "waiting, default", "5:12: there are two timeouts with the name 'waiting' (first in line 4)"),
    ],
)  # fmt: skip
def test_each_mistake_in_a_pack_has_one_message_at_its_place(old: str, new: str, problem: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        parse_pack(changed(old, new, PACK.lstrip("\n")), "p.yaml")
    assert [f"p.yaml:{part}" for part in problem.split("|")] == str(caught.value).split("\n")


def test_the_small_samples_are_valid() -> None:
    assert "here" == parse_target(TARGET, "t.yaml", known=KNOWN).name
    assert "abort" == parse_pack(PACK, "p.yaml").signatures[0].klass


def test_overrides_change_values_lists_and_defaults() -> None:
    scenario = parse_scenario(
        SCENARIO,
        "s.yaml",
        [
            "expect.recover_within=10s",
            "load.agents.sessions=80",
            "cycles.count=3",
            "timeline.wave.when.waiting=>= 5",
            "timeline.0.aim={waiting: '>= 3'}",
            "expect.allow=[healthy, wedged]",
            "load.agents.saturate.waiting=7",
            "load.agents.saturate.max_sessions=100",
            "about=a = b",
        ],
        known=KNOWN,
    )
    assert 10.0 == scenario.expect.recover_within
    assert 80 == scenario.load[0].sessions
    assert 3 == scenario.cycles.count
    assert {"waiting": ">= 5"} == scenario.timeline[0].when
    assert {"waiting": ">= 3"} == scenario.timeline[0].aim
    assert [Outcome.HEALTHY, Outcome.WEDGED] == scenario.expect.allow
    assert scenario.load[0].saturate is not None
    assert 7 == scenario.load[0].saturate.waiting
    assert "a = b" == scenario.about


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("expect.recover_withn=10s", "unknown key `recover_withn` (did you mean recover_within?)"),
        (
            "expect.recover_within=10",
            "`recover_within` must be a duration such as 25s, 300ms or 2m, not 10 (write 10s)",
        ),
        ("load.agnts.sessions=3", "there is no 'agnts' in the list (did you mean agents?)"),
        ("load.7.sessions=3", "there is no '7' in the list (known: agents)"),
        ("name.x=3", "'name' is a single value, nothing is inside it"),
        ("seed=", "`seed` has no value (give it one or remove the key)"),
        ("seed", "an override is PATH=VALUE (such as expect.recover_within=10s)"),
        ("a..b=3", "an override is PATH=VALUE (such as expect.recover_within=10s)"),
        ("timeline.wave.kill.group=x", "there is no group 'x' (known: agents)"),
        (".".join(["a"] * 40) + "=3", "an override is PATH=VALUE (such as expect.recover_within=10s)"),
        ("about=a\0", "the character U+0000 is not allowed (is this a text file?)"),
    ],
)
def test_a_wrong_override_is_positioned_as_itself(override: str, problem: str) -> None:
    place = "1:2" if "\0" in override else "1:1"
    assert [f"--with {override}:{place}: {problem}"] == scenario_problems(SCENARIO, override)


def problems_of(parse: Callable[..., object], *given: object) -> list[Problem]:
    """None when it is accepted; what is refused has at least one, and no other exception is let out."""
    try:
        parse(*given)
    except InvalidFile as error:
        return error.problems or pytest.fail("refused without a reason")
    return []


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([(parse_scenario, SCENARIO), (parse_target, TARGET), (parse_pack, PACK)]),
    st.integers(0, 500),
    st.integers(0, 40),
    st.one_of(
        st.text("a:-[]{}'\"\n &*!>0159s\t.", max_size=8), st.sampled_from(["null", "[]", "{}", "1e99", "~", "yes"])
    ),
)
def test_a_damaged_file_gives_a_model_or_positioned_problems(sample: tuple, at: int, cut: int, put: str) -> None:
    parse, text = sample
    problems = problems_of(parse, text[:at] + put + text[at + cut :], "f.yaml")
    assert all(problem.file == "f.yaml" and problem.line > 0 and problem.column > 0 for problem in problems)


@settings(max_examples=150, deadline=None)
@given(st.text("abelodsxt.=[]{}'\" 0159>~-", max_size=30))
def test_any_override_gives_a_model_or_positioned_problems(override: str) -> None:
    problems_of(parse_scenario, SCENARIO, "s.yaml", [override])


@pytest.mark.parametrize(
    ("parse", "text", "told"),
    [
        (
            parse_scenario,
            "version: 1\nrouter: {url: 'http://a:1'}\n",
            "this is a target file, and a scenario is wanted",
        ),
        (parse_target, "version: 1\nload: []\ntimeline: []\n", "this is a scenario, and a target file is wanted"),
    ],
)
def test_a_file_of_the_other_kind_is_called_what_it_is(parse, text, told):
    with pytest.raises(InvalidFile) as raised:
        parse(text, "f.yaml")
    (problem,) = raised.value.problems
    assert told in problem.message
    assert "swapped" in problem.hint


def test_a_scenario_with_one_key_of_a_target_is_still_read_as_a_scenario():
    with pytest.raises(InvalidFile) as raised:
        parse_scenario("version: 1\nname: a\nload: []\nrouter: {}\n", "f.yaml")
    assert any("router" in problem.message for problem in raised.value.problems)
