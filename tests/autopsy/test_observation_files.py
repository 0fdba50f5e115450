"""What is wrong with an observations file is said all at once, with its place and a hint."""

from __future__ import annotations

import pytest
from incidents import CASES

from chaos import library
from chaos.model.errors import InvalidFile
from chaos.model.loading import parse_observations
from chaos.model.moments import parse_moment, utc_text

HEAD = """\
version: 1
name: it
date: 2026-06-20
watched: {from: "14:00:00Z", to: "14:10:00Z"}
deployment: {engine: sglang, nodes: [{role: router}, {role: prefill}, {role: decode}]}
"""


def problems(text: str) -> list[str]:
    try:
        parse_observations(text, "f", known=library.known())
    except InvalidFile as refused:
        return [str(problem) for problem in refused.problems]
    return []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("logs: [{file: a.log, node: prefil-0}]", "6:28: there is no node 'prefil-0' (did you mean prefill-0?)"),
        ('requests: [{at: "14:01:00", ended: refused}]', "(say the zone: Z, or +02:00)"),
        ('requests: [{at: "13:59:00Z", ended: refused}]', "'13:59:00Z' is before the time watched (widen `watched`)"),
        ('requests: [{at: "14:09:30Z", ended: gave-up, took: 60s}]', "it ended after the time watched"),
        ('requests: [{at: "14:01:00Z", ended: gave-up}]', "`took` is missing (how long it was waited for"),
        ('requests: [{at: "14:01:00Z", ended: complete}]', "`took` is missing (from sending it to the last byte"),
        ('requests: [{at: "14:01:00Z", ended: complete, took: 1s, status: 503}]', "status 200, not 503"),
        ('requests: [{at: "14:01:00Z", ended: complete, took: 1s, first_byte: 2s}]', "the first byte came after"),
        ('requests: [{at: "14:01:00Z", ended: gaveup, took: 1s}]', "(did you mean gave-up?)"),
        ('requests: [{at: "14:01:00Z", ended: refused, path: "decode-0>decode-0"}]', "'decode-0' is no prefill node"),
        ('gauges: [{at: "14:01:00Z", node: decode-0, values: {decode_transfer: 1}}]', "mean decode_transfer_queue?"),
        ('load: [{from: "14:02:00Z", to: "14:01:00Z"}]', "`to` is before `from`"),
        ('load: [{from: "14:01:00Z", completed: 5}]', "`completed` needs `failed` (write failed: 0"),
        ('load: [{from: "14:01:00Z", goodput: 0.98}]', "must be a share such as 98%"),
        ('actions: [{at: "14:01:00Z", did: kill}]', "`nodes` is missing (to which nodes it was done"),
        ('actions: [{at: "14:01:00Z", did: kill-clients, nodes: [decode-0]}]', "clients are no nodes"),
        ('actions: [{at: "14:01:00Z", did: kill, nodes: [decode-1]}]', "there is no node 'decode-1'"),
        ('actions: [{at: "14:01:00Z", did: kill-clients, aim: {wating: ">= 1"}}]', "(did you mean waiting?)"),
        ('actions: [{at: "14:01:00Z", did: kill-client}]', "(did you mean kill-clients?)"),
        (
            'actions: [{id: a, at: "14:01:00Z", did: other}, {id: a, at: "14:02:00Z", did: stop, nodes: [decode-0]}]',
            "'a' is stop here and other before",
        ),
        ('health: [{at: "2026-02-31T14:01:00Z", node: decode-0}]', "'2026-02-31T14:01:00Z' is in no calendar"),
        (
            'processes: [{at: "14:01:00Z", node: decode-0, started: "14:01:01Z"}]',
            "6:56: it started after it was looked at (`at` is when",
        ),
        (
            ('processes: [{at: "14:01:00Z", node: decode-0, pid: 7}, '
            '{at: "14:01:00Z", node: decode-0, pid: 7, alive: false}]'),
            "6:98: the same process is alive and dead at the same moment (of two processes",
        ),
        (
            'processes: [{at: "14:01:00Z", node: decode-0, alive: true}, {at: "14:01:00Z", node: decode-0, state: Zl}]',
            "the same process is alive and dead at the same moment (of two processes",
        ),
        (
            ('processes: [{at: "14:01:00Z", node: decode-0, children: '
            '[{name: a, pid: 8}, {name: a, pid: 8, alive: false}]}]'),
            "the same process is alive and dead at the same moment (of two processes",
        ),
        ("outcome: wedged", "unknown key `outcome`"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place_and_a_hint(line, said):
    (problem,) = problems(f"{HEAD}{line}\n")
    assert problem.startswith("f:6:")
    assert said in problem


def test_the_file_without_a_mistake_has_no_problem():
    assert [] == problems(HEAD)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("date: 2026-06-20\n", "", "'14:00:00Z' has no date (add date: 2026-06-20 at the top"),
        ("14:10:00Z", "13:10:00Z", "the watch ends before it begins"),
        ("engine: sglang", "engine: sglan", "there is no pack for 'sglan' (did you mean sglang?)"),
        ("{role: decode}", "{role: decode, name: router-0}", "two nodes are called 'router-0'"),
        ("nodes:", "timeouts: {waitin: 5s}, nodes:", "the pack knows no timeout `waitin` (did you mean waiting?)"),
    ],
)
def test_what_holds_for_the_whole_file_is_checked_too(old, new, said):
    assert old in HEAD
    assert any(said in problem for problem in problems(HEAD.replace(old, new)))


def test_all_mistakes_are_told_at_once():
    text = HEAD + 'requests: [{at: "1:00", ended: refuse}]\nlogs: [{file: a, nod: prefill-0}]\nactions: [{did: kil}]\n'
    assert 5 == len(problems(text))


def test_the_template_and_every_case_are_valid():
    texts = [library.read(library.folder("templates") / "observations.yaml").decode()]
    texts += [path.read_text() for path in CASES.glob("*/observations.yaml")]
    assert 9 == len(texts)
    assert [] == [problem for text in texts for problem in problems(text)]


def test_a_moment_is_what_it_says_in_any_zone():
    moments = ("2026-06-20T14:02:40Z", "2026-06-20T16:02:40+02:00", "2026-06-20T07:02:40-07:00")
    assert 1 == len({parse_moment(moment, None) for moment in moments})
    assert parse_moment("14:02:40.25Z", "2026-06-20") - parse_moment(moments[0], None) == 250_000_000
    assert "2026-06-20T14:02:40Z" == utc_text(parse_moment(moments[1], None))


@pytest.mark.parametrize(
    "other",
    [
        'at: "14:01:00Z", node: decode-0, pid: 8, alive: false',
        'at: "14:01:00Z", node: decode-0, started: "14:00:30Z", alive: false',
        'at: "14:01:01Z", node: decode-0, pid: 7, alive: false',
        'at: "14:01:00Z", node: prefill-0, pid: 7, alive: false',
        'at: "14:01:00Z", node: decode-0, pid: 7, started: "14:01:00Z"',
    ],
)
def test_another_process_and_another_moment_contradict_nothing(other):
    one = 'at: "14:01:00Z", node: decode-0, pid: 7'
    assert [] == problems(f"{HEAD}processes: [{{{one}}}, {{{other}}}]\n")
