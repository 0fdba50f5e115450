# ruff: noqa: E501 - messages stand here as they are shown
"""How the parts of a target file must fit together: each misfit is told at its place, with what to do."""

from __future__ import annotations

import pytest

from chaos.model.errors import InvalidFile
from chaos.model.loading import parse_scenario, parse_target

OVER_SSH = """\
version: 1
name: there
environment: staging
allow: [kill]
via: tunnel
ssh: {user: ops}
router: {url: "http://127.0.0.1:1", ssh: {host: gpu1}, log: [/var/log/a.log]}
prefill: [{url: "http://127.0.0.1:1", ssh: {host: gpu2}, pidfile: /run/p.pid, port: 1}]
decode: [{url: "http://127.0.0.1:1", ssh: {host: gpu3, jump: "me@[fd00::1]:22, b-2"}, log: [{journald: decode}]}]
headers: {x-team: chaos, x-gate: {secret: env:GATE}, x-key-id: {text: "7"}}
"""


def problems(text: str) -> list[str]:
    try:
        parse_target(text, "t.yaml")
    except InvalidFile as error:
        return str(error).split("\n")
    return []


def changed(*changes: tuple[str, str]) -> str:
    text = OVER_SSH
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def test_a_target_over_ssh_is_valid_and_the_same_address_on_two_hosts_is_two_servers() -> None:
    assert [] == problems(OVER_SSH)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            [("via: tunnel\n", "")],
            "7:17: prefill-0 has the same address as router|8:16: decode-0 has the same address as router",
        ),
        (
            [("pidfile: /run/p.pid, port: 1", "pidfile: /run/p.pid, systemd: p")],
            "8:79: `systemd` and `pidfile` both say how prefill-0's process is found (keep one; `port` may stand beside it)",
        ),
        (
            [("port: 1}", "port: 1, restart_as: {other: x}}")],
            "8:88: `restart_as` starts a variant, and nothing says how to put the node right again (add restart: COMMAND)",
        ),
        (
            [("/run/p.pid", "p.pid")],
            "8:67: 'p.pid' is a path on prefill-0's host, and nobody knows from where it would begin (`pidfile` with ssh: write the whole path, from /)",
        ),
        (
            [("/var/log/a.log", "~/a.log, {file: b.log}")],
            (
                "7:62: '~/a.log' is a path on router's host, and nobody knows from where it would begin (`log` with ssh: write the whole path, from /)"
                "|7:78: 'b.log' is a path on router's host, and nobody knows from where it would begin (`log` with ssh: write the whole path, from /)"
            ),
        ),
        (
            [("ssh: {host: gpu2}", "ssh: {port: 23}")],
            (
                "8:11: prefill-0 has no `ssh`, so no request reaches it with via: tunnel (give it ssh: {host: NAME}, or write via: direct)"
                "|8:39: `ssh` of prefill-0 names no host, so nothing is reached over it (add host: NAME, here or in the target's own `ssh`)"
            ),
        ),
        (
            [(", ssh: {host: gpu1}", ""), ("via: tunnel", "via: remote")],
            "7:9: router has no `ssh`, so no request reaches it with via: remote (give it ssh: {host: NAME}, or write via: direct)",
        ),
        (
            [('"me@[fd00::1]:22, b-2"', "a b")],
            "9:62: `jump` must be [user@]host[:port], several separated by commas, not 'a b'",
        ),
        (
            [("headers:", "agents: {ssh: {host: gpu1}}\nheaders:")],
            "10:1: `agents` says where the load runs with via: remote, and this target has via: tunnel (write via: remote, or remove it)",
        ),
        (
            [("headers:", "agents: {ssh: {port: 5}}\nheaders:"), ("via: tunnel", "via: remote")],
            "10:10: `ssh` of `agents` names no host (add host: NAME)",
        ),
        (
            [('{text: "7"}', '"7"')],
            "10:64: `x-key-id` looks like a secret, and those are never written here (write {secret: env:NAME}, or {text: …} if it is none)",
        ),
        (
            [("{secret: env:GATE}", "{secret: hunter2}")],
            "10:43: `secret` must be a reference env:NAME, file:PATH or cmd:COMMAND (keys are never written here)",
        ),
        (
            [("{secret: env:GATE}", "{secret: env:GATE, text: x}")],
            "10:34: `x-gate` must have exactly one of text, secret",
        ),
    ],
)
def test_each_misfit_has_its_message(changes: list[tuple[str, str]], problem: str) -> None:
    assert [f"t.yaml:{one}" for one in problem.split("|")] == problems(changed(*changes))


def test_defaults_for_ssh_without_any_host_reach_nobody() -> None:
    servers = 'router: {url: "http://h:1"}\nprefill: [{url: "http://h:2"}]\ndecode: [{url: "http://h:3"}]\n'
    text = f"version: 1\nname: t\nenvironment: staging\nallow: []\n{servers}ssh: {{user: me}}\n"
    assert [
        "t.yaml:8:1: `ssh` is said, and no server has a host to reach over it (give each server ssh: {host: NAME}, or remove it)"
    ] == problems(text)


def test_a_header_of_a_load_that_calls_itself_a_secret_is_refused() -> None:
    with pytest.raises(InvalidFile, match=r"3:39: `x-api-key` looks like a secret"):
        parse_scenario("version: 1\nname: s\nload: [{name: a, headers: {x-api-key: sk-1}}]\n", "s.yaml")
