"""Whom we let ourselves be connected to, as whom, and what is said when it does not work."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sshd import Sshd, before_all, connected, free_port, keygen, needs_sshd

from chaos.engine.hosts.hosts import Hosts
from chaos.model.errors import Refused, Unfit, UsageError
from chaos.model.target import ServerSpec, Ssh, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = needs_sshd

AGENT = "/usr/bin/ssh-agent"
PYTHONS = Path.home() / ".pyenv/versions"


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An agent that holds nothing yet."""
    sock = str(tmp_path / "agent")
    with subprocess.Popen([AGENT, "-D", "-a", sock], stdout=subprocess.DEVNULL) as process:
        while not Path(sock).exists():
            time.sleep(0.01)
        monkeypatch.setenv("SSH_AUTH_SOCK", sock)
        yield
        process.kill()


def executable(file: Path, text: str) -> str:
    file.write_text(text)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


def refusal(kind: type[Exception], ssh: Ssh) -> tuple[str, str]:
    with pytest.raises(kind) as caught, connected(ssh):
        pass
    assert kind is type(caught.value)
    return caught.value.message, caught.value.hint


# ---------------------------------------------------------------------------------------------- host keys


def test_a_host_whose_key_nobody_knows_is_refused_with_what_to_do(sshd: Sshd) -> None:
    sshd.known_hosts.write_text("")
    message, hint = refusal(Refused, sshd.ssh())
    kind, encoded = (sshd.folder / "host.pub").read_text().split()[:2]
    shown = subprocess.run(["ssh-keygen", "-lf", sshd.folder / "host.pub"], capture_output=True, text=True, check=True)
    assert shown.stdout.split()[1] in message  # the fingerprint, as others show it
    assert f"ssh-keyscan -p {sshd.port} 127.0.0.1 >> {sshd.known_hosts}" in hint
    assert f'host_key: "{kind} {encoded}"' in hint


def test_the_hint_really_helps(sshd: Sshd) -> None:
    sshd.known_hosts.write_text("")
    _, hint = refusal(Refused, sshd.ssh())
    command = hint.partition("then: ")[2].partition("   or")[0]
    subprocess.run(command, shell=True, check=True, capture_output=True)  # noqa: S602
    with connected(sshd.ssh()):
        pass
    sshd.known_hosts.write_text("")
    pin = hint.partition('host_key: "')[2].partition('"')[0]
    with connected(sshd.ssh(host_key=pin)):
        pass


def test_a_host_whose_key_has_changed_is_refused_loudly(sshd: Sshd) -> None:
    sshd.kill()
    sshd.new_host_key()
    sshd.start()
    message, hint = refusal(Refused, sshd.ssh())
    assert "THE HOST KEY HAS CHANGED" in message
    assert f"{sshd.known_hosts}:1" in message
    assert "ssh-keygen -R" in hint


def test_a_pinned_key_is_the_only_one_believed(sshd: Sshd, tmp_path: Path) -> None:
    other = " ".join(keygen(tmp_path / "other").with_suffix(".pub").read_text().split()[:2])
    message, _ = refusal(Refused, sshd.ssh(host_key=other))
    assert "the target file knows" in message


def test_hashed_names_are_known(sshd: Sshd) -> None:
    subprocess.run(["ssh-keygen", "-H", "-f", sshd.known_hosts], check=True, capture_output=True)
    assert "127.0.0.1" not in sshd.known_hosts.read_text()
    with connected(sshd.ssh()):
        pass


def test_of_a_host_with_several_keys_a_known_one_is_asked_for(sshd: Sshd) -> None:
    keygen(sshd.folder / "rsa", kind="rsa")
    sshd.kill()
    sshd.options["HostKey"] = f"{sshd.host_key}\nHostKey {sshd.folder / 'rsa'}"
    sshd.start()
    public = " ".join((sshd.folder / "rsa.pub").read_text().split()[:2])
    sshd.known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {public}\n")
    with connected(sshd.ssh()):
        pass


def test_a_revoked_key_is_refused(sshd: Sshd) -> None:
    line = sshd.known_hosts.read_text()
    sshd.known_hosts.write_text(f"{line}@revoked * {line.partition(' ')[2]}")
    message, _ = refusal(Refused, sshd.ssh())
    assert "revoked" in message


# ---------------------------------------------------------------------------------------------- our keys


def test_a_key_that_the_host_does_not_know_is_told(sshd: Sshd, tmp_path: Path) -> None:
    wrong = keygen(tmp_path / "wrong")
    message, hint = refusal(UsageError, sshd.ssh(identity=str(wrong)))
    assert "does not accept root's key (ssh-ed25519)" in message
    assert f"ssh -p {sshd.port} -i {wrong} root@127.0.0.1" in hint


def test_a_missing_key_file_and_one_that_holds_no_key_are_told(sshd: Sshd, tmp_path: Path) -> None:
    gone = keygen(tmp_path / "gone")
    ssh = sshd.ssh(identity=str(gone))
    gone.unlink()
    message, _ = refusal(UsageError, ssh)
    assert "cannot be read: No such file" in message
    message, hint = refusal(UsageError, sshd.ssh(identity=str(sshd.folder / "id.pub")))
    assert "holds no private key" in message
    assert "not the .pub file" in hint


def test_a_locked_key_is_the_agents_business(sshd: Sshd, agent: None) -> None:
    locked = keygen(sshd.folder / "locked", passphrase="secret")  # noqa: S106 - of a key that lives for a second
    sshd.authorized.write_text((sshd.folder / "locked.pub").read_text())
    (sshd.folder / "locked.pub").unlink()  # the key file itself tells which one it is
    message, hint = refusal(UsageError, sshd.ssh(identity=str(locked)))
    assert f"{locked} is locked with a passphrase" in message
    assert hint.startswith(f"ssh-add {locked}")
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "secret", "-N", "", "-f", locked], check=True, capture_output=True)
    subprocess.run(["ssh-add", "-q", locked], check=True)
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", locked], check=True, capture_output=True)
    with connected(sshd.ssh(identity=str(locked))):
        pass


def test_the_agents_keys_are_tried_when_no_key_is_named(sshd: Sshd, agent: None, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # no key files there
    message, _ = refusal(UsageError, sshd.ssh(identity=None))
    assert "there is neither a key file nor an agent" in message
    subprocess.run(["ssh-add", "-q", sshd.identity], check=True)
    with connected(sshd.ssh(identity=None)):
        pass


# ---------------------------------------------------------------------------------------------- the way


def test_nobody_listening_and_an_unknown_name_are_told() -> None:
    message, hint = refusal(Unfit, Ssh(host="127.0.0.1", port=free_port(), user="root", ssh_config=False))
    assert "Connection refused" in message
    assert "sshd" in hint
    message, _ = refusal(Unfit, Ssh(host="no-such-host.invalid", user="root", ssh_config=False))
    assert "the name no-such-host.invalid is not known" in message


def test_who_listens_and_says_nothing_is_given_up(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.engine.hosts.place.CONNECT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        message, hint = refusal(Unfit, sshd.ssh(port=mute.getsockname()[1]))
    assert "did not answer as an SSH server" in message
    assert "hangs" in hint


def test_hosts_behind_others_are_reached_through_them(tmp_path: Path, nothing_left: None) -> None:
    with Sshd(tmp_path / "a") as bastion, Sshd(tmp_path / "b") as inner:
        known = tmp_path / "known"
        known.write_text(bastion.known_hosts.read_text() + inner.known_hosts.read_text())
        bastion.authorized.write_text((inner.folder / "id.pub").read_text())
        way = inner.ssh(jump=f"root@127.0.0.1:{bastion.port}", known_hosts=str(known))
        target = _target(way, way.model_copy(update={"sudo": True}))  # two hosts, one jump
        hosts = Hosts.open(target, lambda _: None)
        try:
            assert [True, True, True] == [
                host.remote for host in (hosts.at("router-0"), hosts.at("prefill-0"), hosts.at("decode-0"))
            ]
            assert hosts.at("router-0").call_now("now")
            assert 2 == sum(process.name().startswith("sshd") for process in bastion.processes)  # one connection
        finally:
            hosts.close()


def test_a_jump_host_that_cannot_get_further_is_told(tmp_path: Path, sshd: Sshd) -> None:
    message, hint = refusal(Unfit, sshd.ssh(port=(nobody := free_port()), jump=f"127.0.0.1:{sshd.port}"))
    assert f"root@127.0.0.1:{sshd.port} cannot get to 127.0.0.1:{nobody}" in message
    with Sshd(tmp_path / "closed", AllowTcpForwarding="no") as closed:
        known = tmp_path / "known"
        known.write_text(closed.known_hosts.read_text() + sshd.known_hosts.read_text())
        closed.authorized.write_text((sshd.folder / "id.pub").read_text())
        message, hint = refusal(Unfit, sshd.ssh(jump=f"127.0.0.1:{closed.port}", known_hosts=str(known)))
        assert "cannot get to" in message
        assert "AllowTcpForwarding" in hint


# ---------------------------------------------------------------------------------------------- starting there


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.8"])
def test_a_python_that_is_too_old_says_so(sshd: Sshd, version: str) -> None:
    old = next(iter(PYTHONS.glob(f"{version}.*/bin/python")), None)
    if old is None:
        pytest.skip(f"no Python {version} here")
    message, hint = refusal(UsageError, sshd.ssh(python=str(old)))
    assert f"is Python {version}." in message
    assert "3.9 or later is needed" in message
    assert "`python: PATH`" in hint


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
def test_every_python_from_3_9_will_do(sshd: Sshd, version: str) -> None:
    python = next(iter(PYTHONS.glob(f"{version}.*/bin/python")), None)
    if python is None:
        pytest.skip(f"no Python {version} here")
    with connected(sshd.ssh(python=str(python))) as host:
        assert host.hello["python"].startswith(f"{version}.")
        assert host.call_now("now")


def test_a_python_that_is_not_there_is_told(sshd: Sshd) -> None:
    message, hint = refusal(UsageError, sshd.ssh(python="/no/such/python"))
    assert "/no/such/python cannot be run" in message
    assert "`python: PATH`" in hint


@pytest.mark.parametrize(
    ("program", "says"),
    [("/bin/cat", "invalid option"), ("/bin/true", "it says nothing"), ("/usr/bin/yes", "invalid option")],
)
def test_a_python_that_is_none_is_told_with_what_it_says_instead(sshd: Sshd, program: str, says: str) -> None:
    message, hint = refusal(UsageError, sshd.ssh(python=program))
    assert f": {program} is no Python: asked for its version (-V) it says " in message
    assert says in message
    assert "`python` under `ssh`" in hint
    assert "login shell" not in hint


def test_a_shell_that_ends_at_once_is_not_laid_to_a_python_that_is_one(tmp_path: Path) -> None:
    with Sshd(tmp_path / "sshd", **before_all('case "$SSH_ORIGINAL_COMMAND" in *-ESsc*) exit 5;; esac')) as sshd:
        message, hint = refusal(Unfit, sshd.ssh())
    assert "ended at once (status 5)" in message
    assert "login shell" in hint


def test_a_python_without_memfd_keeps_the_code_in_a_file_without_a_name(sshd: Sshd, tmp_path: Path) -> None:
    old = executable(
        tmp_path / "python",
        "#!/bin/bash\n"
        f'[[ $1 != -ESsc ]] || exec {sys.executable} -ESsc "import os; del os.memfd_create; $2"\n'
        f'exec {sys.executable} "$@"\n',
    )
    with connected(sshd.ssh(python=old)) as host:
        files = [str(link.readlink()) for link in Path(f"/proc/{host.hello['pid']}/fd").iterdir()]
        assert any(file.startswith("/dev/shm/") and file.endswith("(deleted)") for file in files), files


@pytest.fixture
def sudo(tmp_path: Path) -> Iterator[Callable[[str], Sshd]]:
    """A server whose user is not root, as far as anybody can tell, and has a `sudo` that does what the text says."""
    tools = tmp_path / "tools"
    tools.mkdir()
    executable(tools / "id", "#!/bin/sh\necho 1000\n")
    with Sshd(tmp_path / "sshd", **before_all(f"PATH={tools}:$PATH")) as sshd:

        def says(text: str) -> Sshd:
            executable(tools / "sudo", f"#!/bin/sh\n{text}\n")
            return sshd

        yield says


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("sudo: a password is required", "sudo asks for a password"),
        ("sudo: sorry, you must have a tty to run sudo", "sudo asks for a password"),
        ("root is not in the sudoers file.  This incident has been reported to sudo.", "sudo does not run us"),
    ],
)
def test_a_sudo_that_refuses_is_told(sudo: Callable[[str], Sshd], says: str, told: str) -> None:
    message, hint = refusal(UsageError, sudo(f"echo '{says}' >&2; exit 1").ssh(sudo=True))
    assert told in message
    assert says in message
    assert "sudo" in hint


def test_sudo_is_never_let_ask(sudo: Callable[[str], Sshd], tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    with connected(sudo(f'echo "$1 $2" > {asked}; shift 2; exec "$@"').ssh(sudo=True)) as host:
        assert host.call_now("now")
    assert "-n --\n" == asked.read_text()


def test_root_needs_no_sudo(tmp_path: Path) -> None:
    with Sshd(tmp_path / "sshd", **before_all("sudo() { exit 9; }")) as sshd, connected(sshd.ssh(sudo=True)) as host:
        assert host.call_now("now")


def test_a_shell_that_talks_without_end_is_given_up(tmp_path: Path) -> None:
    with Sshd(tmp_path / "sshd", **before_all("yes welcome")) as sshd:
        message, hint = refusal(Unfit, sshd.ssh())
    assert "its shell printed" in message
    assert "silent" in hint


def test_a_shell_that_swallows_our_code_is_told(tmp_path: Path) -> None:
    with Sshd(tmp_path / "sshd", **before_all("head -c 9000 > /dev/null")) as sshd:
        _, hint = refusal(Unfit, sshd.ssh())
    assert "standard input" in hint


def test_one_session_is_enough_and_none_is_told(tmp_path: Path) -> None:
    with Sshd(tmp_path / "one", MaxSessions="1") as sshd, connected(sshd.ssh()) as host:
        assert host.call_now("now")
    with Sshd(tmp_path / "none", MaxSessions="0") as sshd:
        message, hint = refusal(Unfit, sshd.ssh())
    assert "gives no further session" in message
    assert "MaxSessions" in hint


# ---------------------------------------------------------------------------------------------- all of a target's


def test_equal_ways_are_one_connection_and_what_has_none_is_here(sshd: Sshd, nothing_left: None) -> None:
    lines: list[str] = []
    hosts = Hosts.open(_target(None, sshd.ssh()), lines.append, run="a1b2c3d4")
    try:
        assert not hosts.at("router-0").remote
        assert hosts.at("prefill-0") is hosts.at("decode-0")
        assert ("prefill-0", "decode-0") == hosts.servers_at(hosts.at("prefill-0"))
        assert 2 == sum(process.name().startswith("sshd") for process in sshd.processes)
    finally:
        hosts.close()
    assert [f"reaching root@127.0.0.1:{sshd.port}", f"reached root@127.0.0.1:{sshd.port}"] == [
        line.partition(" (")[0] for line in lines
    ]


def test_all_that_is_wrong_is_said_at_once(sshd: Sshd, tmp_path: Path, nothing_left: None) -> None:
    (tmp_path / "empty").touch()
    unknown = sshd.ssh(known_hosts=str(tmp_path / "empty"))
    dead = sshd.ssh(port=free_port())
    with pytest.raises(Refused) as caught:
        Hosts.open(_target(sshd.ssh(), unknown, dead), lambda _: None)
    told = caught.value.message
    assert told.startswith("2 hosts cannot be used:")
    assert "is not known" in told
    assert "Connection refused" in told
    assert 2 == told.count("hint:")


def test_hosts_with_the_same_problem_are_told_of_together(tmp_path: Path) -> None:
    """Two users of one machine are two hosts."""
    with Sshd(tmp_path / "sshd") as sshd:
        wrong = {"identity": str(keygen(tmp_path / "wrong"))}
        ways = [sshd.ssh(**wrong), sshd.ssh(**wrong, jump="none", host="localhost"), sshd.ssh(port=free_port())]
        sshd.known_hosts.write_text(sshd.known_hosts.read_text().replace("[127", f"[localhost]:{sshd.port},[127"))
        with pytest.raises(UsageError) as caught:
            Hosts.open(_target(*ways), lambda _: None)
    both = f"root@127.0.0.1:{sshd.port}, root@localhost:{sshd.port}: the host does not accept root's key"
    told = caught.value.message
    assert (1, 1, 2) == (told.count(both), told.count("does not accept"), told.count("hint:")), told
    assert told.startswith("3 hosts cannot be used:")


@pytest.mark.parametrize("what", ["identity", "known_hosts"])
def test_a_file_that_the_target_names_and_that_is_not_there_is_told_once_for_all_before_anybody_is_asked(
    tmp_path: Path, what: str
) -> None:
    missing = {"host": "h.invalid", "user": "me", "ssh_config": False, what: str(tmp_path / "none")}
    ways = [Ssh.model_validate({**missing, "host": f"h{number}.invalid"}) for number in range(3)]
    with pytest.raises(UsageError) as caught:
        Hosts.open(_target(*ways), lambda _: None)
    assert f"`{what}` under `ssh`: {tmp_path}/none cannot be read: No such file or directory" == caught.value.message
    assert f"`{what}` names" in caught.value.hint


def test_a_pinned_key_needs_no_file(sshd: Sshd, tmp_path: Path) -> None:
    pin = " ".join((sshd.folder / "host.pub").read_text().split()[:2])
    ssh = sshd.ssh(host_key=pin, known_hosts=str(tmp_path / "none"))
    hosts, failures = Hosts.reach(_target(ssh), lambda _: None)
    hosts.close()
    assert {} == failures


def test_whoever_interrupts_connecting_is_not_kept(sshd: Sshd, monkeypatch, nothing_left: None) -> None:
    def impatient(_threads: object, _timeout_s: float) -> None:
        time.sleep(0.2)
        raise KeyboardInterrupt

    with socket.create_server(("127.0.0.1", 0)) as mute:
        with monkeypatch.context() as patched:
            patched.setattr("chaos.engine.hosts.hosts._join", impatient)
            with pytest.raises(KeyboardInterrupt):
                Hosts.open(_target(sshd.ssh(port=mute.getsockname()[1])), lambda _: None)
        for thread in threading.enumerate():
            if thread.name.startswith("ssh"):
                thread.join(60.0)


def _target(*ways: Ssh | None) -> Target:
    """Router, prefill and decode, reached in these ways; the last one for those that are left."""
    router, prefill, decode = [*ways, *[ways[-1]] * 3][:3]
    url = "http://127.0.0.1:1"
    return Target(
        version=1,
        name="t",
        router=ServerSpec(url=url, ssh=router),
        prefill=[ServerSpec(url=url, ssh=prefill)],
        decode=[ServerSpec(url=url, ssh=decode)],
    )
