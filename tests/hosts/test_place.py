"""What a target file and the user's SSH configuration together say of the way to a host."""

from __future__ import annotations

import getpass
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from chaos.engine.hosts.known import Key, Known
from chaos.engine.hosts.place import DEFAULT_KEYS, KNOWN_HOSTS, Place, resolve
from chaos.model.errors import UsageError
from chaos.model.target import Ssh

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def config(home: Path, text: str) -> None:
    (home / ".ssh/config").write_text(text)


def test_without_a_configuration_a_host_is_what_it_is_called(home: Path) -> None:
    place = resolve(Ssh(host="gpu1"))
    assert ("gpu1", "gpu1", 22, getpass.getuser()) == (place.name, place.host, place.port, place.user)
    assert tuple(file.replace("~", str(home)) for file in DEFAULT_KEYS) == place.identities
    assert (KNOWN_HOSTS, None, False) == (place.known_hosts, place.through, place.only_identities)
    assert f"{getpass.getuser()}@gpu1" == place.label


def test_the_configuration_says_what_the_target_file_leaves_out(home: Path) -> None:
    config(
        home,
        "Host gpu*\n HostName %h.cluster\n User ops\n Port 2222\n IdentityFile ~/.ssh/staging\n IdentitiesOnly yes\n"
        " UserKnownHostsFile ~/.ssh/lab /etc/lab\n ConnectTimeout 3\n HostKeyAlias lab\n",
    )
    place = resolve(Ssh(host="gpu1"))
    assert ("gpu1.cluster", 2222, "ops", "lab") == (place.host, place.port, place.user, place.known_as)
    assert ((f"{home}/.ssh/staging",), True, False) == (place.identities, place.only_identities, place.insisted)
    assert (("~/.ssh/lab", "/etc/lab"), 3) == (place.known_hosts, place.timeout_s)


def test_the_target_file_has_the_last_word(home: Path) -> None:
    config(home, "Host gpu1\n User ops\n Port 2222\n IdentityFile ~/.ssh/staging\n ProxyJump bastion\n")
    place = resolve(Ssh(host="gpu1", user="root", port=22, identity="/key", known_hosts="/known", jump="none"))
    assert ("root", 22, ("/key",), True) == (place.user, place.port, place.identities, place.insisted)
    assert (("/known",), None) == (place.known_hosts, place.through)
    assert getpass.getuser() == resolve(Ssh(host="gpu1", ssh_config=False)).user


def hops(place: Place) -> list[str]:
    return [hop.label for hop in place.hops]


def test_jumps_are_followed_through_the_configuration_of_each(home: Path) -> None:
    config(
        home,
        "Host gpu1\n ProxyJump me@inner:2200\nHost inner\n ProxyJump outer\nHost outer\n User you\n HostName gate\n"
        "Host *\n User ops\n",
    )
    place = resolve(Ssh(host="gpu1", identity="/key", host_key="ssh-ed25519 AAAA", sudo=True))
    assert ["you@outer", "me@inner:2200"] == hops(place)
    assert place.through is not None
    assert (None, False, False) == (place.through.host_key, place.through.sudo, place.through.insisted)
    assert place.through.identities[0] == "/key"
    assert place.through.through is not None
    assert "gate" == place.through.through.host
    assert "ssh -J you@outer,me@inner:2200 -i /key ops@gpu1" == place.by_hand


def test_jumps_of_the_target_file_come_before_those_of_the_configuration(home: Path) -> None:
    config(home, "Host gpu1\n ProxyJump inner\nHost a\n ProxyJump outer\nHost b\n ProxyJump never\n")
    place = resolve(Ssh(host="gpu1", user="ops", jump="a, root@b:2022"))
    assert ["ops@outer", "ops@a", "root@b:2022"] == hops(place)
    assert ["root@fe80::1:2022"] == hops(resolve(Ssh(host="gpu1", jump="root@[fe80::1]:2022")))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Host a\n ProxyJump b\nHost b\n ProxyJump a\n", "in a circle"),
        ("Host a\n ProxyCommand nc %h %p\n", "ProxyCommand"),
        ("Host a\n Port many\n", "port of a is not a number"),
        ("Host a\n ProxyJump b:many\n", "not a host to jump over"),
        ("what\n", "cannot be followed"),
        ("Match all host b\n", "cannot be followed"),
    ],
)
def test_a_configuration_that_cannot_be_followed_is_told(home: Path, text: str, told: str) -> None:
    config(home, text)
    with pytest.raises(UsageError, match=told):
        resolve(Ssh(host="a"))


def test_a_proxy_command_can_be_overruled(home: Path) -> None:
    config(home, "Host a\n ProxyCommand nc %h %p\nHost b\n ProxyCommand none\n")
    assert [f"{getpass.getuser()}@gate"] == hops(resolve(Ssh(host="a", jump="gate")))
    assert [] == hops(resolve(Ssh(host="b")))


def test_included_files_count_where_they_are_included(home: Path) -> None:
    (home / ".ssh/d").mkdir()
    (home / ".ssh/d/1").write_text("Host gpu1\n User first\n")
    (home / ".ssh/d/2").write_text("Host gpu2\n User second\n")
    config(home, "Include d/* none\nPort 2222\nHost gpu2\n HostName inner\n")
    one, two = resolve(Ssh(host="gpu1")), resolve(Ssh(host="gpu2"))
    assert ("first", 2222) == (one.user, one.port)
    assert ("second", 2222, "inner") == (two.user, two.port, two.host)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="takes OpenSSH's own client to compare with")
@pytest.mark.parametrize("host", ["gpu1", "gpu1.far", "other"])
def test_openssh_reads_the_configuration_likewise(home: Path, host: str) -> None:
    (home / ".ssh/more").write_text("Match host *.far\n Port 2022\n")
    text = f"Include {home}/.ssh/more\nHost gpu1 !other\n User ops\n HostName %h.cluster\nMatch user ops\n Port 2200\n"
    config(home, text)
    asked = subprocess.run(["ssh", "-G", "-F", home / ".ssh/config", host], capture_output=True, text=True, check=True)
    said = dict(line.split(" ", 1) for line in asked.stdout.splitlines())
    place = resolve(Ssh(host=host))
    assert (said["hostname"], said["user"], said["port"]) == (place.host, place.user, str(place.port))


# ---------------------------------------------------------------------------------------------- known hosts

A, B = "ssh-ed25519 QUFBQQ==", "ssh-rsa QkJCQg=="


@pytest.mark.parametrize(
    ("line", "port", "known"),
    [
        (f"gpu1 {A}", 22, True),
        (f"gpu1,gpu2 {A} comment", 22, True),
        (f"GPU1 {A}", 22, True),
        (f"gpu2 {A}", 22, False),
        (f"gpu* {A}", 22, True),
        (f"gpu?,!gpu1 {A}", 22, False),
        (f"[gpu1]:2222 {A}", 2222, True),
        (f"[gpu1]:2222 {A}", 22, False),
        (f"[gpu1]:* {A}", 2222, True),
        (f"gpu1 {A}", 2222, True),  # as OpenSSH: then any port's will do
        (f"# gpu1 {A}", 22, False),
        (f"@cert-authority gpu1 {A}", 22, False),
        ("gpu1 ssh-ed25519 not-base64!", 22, False),
        ("gpu1 ssh-ed25519", 22, False),
        (f"|1|nonsense {A}", 22, False),
    ],
)
def test_a_line_means_what_openssh_takes_it_for(tmp_path: Path, line: str, port: int, known: bool) -> None:
    file = tmp_path / "known"
    file.write_text(f"\n{line}\n")
    found = Known.of(Place(name="gpu1", host="gpu1", port=port, user="ops", known_hosts=(str(file),)))
    assert known == bool(found.keys)


def test_a_host_is_asked_for_kinds_of_keys_that_are_known() -> None:
    place = Place(name="gpu1", host="gpu1", port=22, user="ops", host_key=B)
    offered = ("ssh-ed25519", "rsa-sha2-256", "rsa-sha2-512")
    assert ("rsa-sha2-512", "rsa-sha2-256", "ssh-ed25519") == Known.of(place).preferred(offered)


def test_a_key_reads_as_it_is_written() -> None:
    key = Key.parse(A)
    assert key is not None
    assert A == key.line
    assert key.fingerprint.startswith("ssh-ed25519 SHA256:")
