"""Where a host is and how to get in, worked out from a target file and the user's own SSH configuration."""

from __future__ import annotations

import getpass
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paramiko
from paramiko.ssh_exception import CouldNotCanonicalize

from chaos.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from chaos.model.target import Ssh

CONFIG = "~/.ssh/config"
KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")  # as OpenSSH
DEFAULT_KEYS = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
SSH_PORT = 22
CONNECT_S = 10.0
PYTHON = "python3"
MOST_JUMPS = 8
_DEEPEST = 16  # files that include files, as OpenSSH


@dataclass(frozen=True, slots=True)
class Place:
    """One way in to one host. Equal places are one host, reached over one connection."""

    name: str = field(compare=False)  # as the target file calls it
    host: str
    port: int
    user: str
    identities: tuple[str, ...] = ()  # files
    insisted: bool = False  # the target file names the identity: that and no other
    only_identities: bool = False  # of the agent's keys, these alone
    known_as: str = ""  # in known_hosts, where it is not `host`
    known_hosts: tuple[str, ...] = KNOWN_HOSTS
    host_key: str | None = None
    through: Place | None = None
    timeout_s: float = CONNECT_S
    sudo: bool = False
    python: str = PYTHON

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.user}@{self.name}" + (f":{self.port}" if self.port != SSH_PORT else "")

    @property
    def by_hand(self) -> str:
        """The command with which a person gets in likewise."""
        words = ["ssh"]
        if self.through:
            words += ["-J", ",".join(hop.label for hop in self.hops)]
        if self.port != SSH_PORT:
            words += ["-p", str(self.port)]
        words += [word for file in self.identities if self.insisted for word in ("-i", file)]
        return " ".join([*words, f"{self.user}@{self.name}"])

    @property
    def hops(self) -> tuple[Place, ...]:
        """The hosts on the way, the first one first."""
        return (*self.through.hops, self.through) if self.through else ()


def resolve(ssh: Ssh) -> Place:
    """The place that a target file means. Raises UsageError for a configuration that cannot be followed."""
    assert ssh.host is not None  # noqa: S101 - `Target.ssh_of` gives none without
    return _place(ssh.host, ssh, ssh.port, ssh.user, _hops(ssh.jump), ())


def demand_files(ssh: Ssh) -> None:
    """Raise UsageError for files that the target file names and that cannot be read."""
    keys = None if ssh.host_key and not ssh.jump else ssh.known_hosts  # else the pinned key alone counts
    hints = {
        "identity": "`identity` names our private key",
        "known_hosts": "`known_hosts` names the file with the hosts' keys; begin an empty one and each key is shown",
    }
    for what, file in (("identity", ssh.identity), ("known_hosts", keys)):
        if file is None:
            continue
        try:
            with Path(file).expanduser().open("rb"):
                pass
        except OSError as error:
            raise UsageError(
                f"`{what}` under `ssh`: {file} cannot be read: {error.strerror}", hint=hints[what]
            ) from None


def _place(
    name: str, ssh: Ssh, port: int | None, user: str | None, hops: list[str] | None, on_the_way_to: tuple[str, ...]
) -> Place:
    said = _said(name) if ssh.ssh_config is not False else {"hostname": name}
    if said.get("proxycommand") and hops is None:
        raise UsageError(
            f"{CONFIG} reaches {name} by a ProxyCommand, which pdchaos cannot use",
            hint="say ProxyJump there, or `jump` under `ssh` in the target file",
        )
    if hops is None:
        hops = _hops(said.get("proxyjump")) or []
    ours = [ssh.identity] if ssh.identity else []
    theirs = [file for file in said.get("identityfile", []) if file != "none"]
    # A jump host is another host: it may well want another key.
    insisted = bool(ours) and not on_the_way_to
    identities = ours if insisted else [*ours, *theirs] or list(DEFAULT_KEYS)
    known = [ssh.known_hosts] if ssh.known_hosts else said.get("userknownhostsfile", "").split()
    return Place(
        name=name,
        host=said["hostname"],
        port=port or _number(said, "port", name) or SSH_PORT,
        user=user or said.get("user") or ssh.user or getpass.getuser(),
        identities=tuple(str(Path(file).expanduser()) for file in identities),
        insisted=insisted,
        only_identities=insisted or said.get("identitiesonly") == "yes",
        known_as=said.get("hostkeyalias", ""),
        known_hosts=tuple(known) or KNOWN_HOSTS,
        host_key=ssh.host_key,
        through=_through(hops, ssh, (*on_the_way_to, name)),
        timeout_s=_number(said, "connecttimeout", name) or CONNECT_S,
        sudo=bool(ssh.sudo),
        python=ssh.python or PYTHON,
    )


def _through(hops: list[str], ssh: Ssh, on_the_way_to: tuple[str, ...]) -> Place | None:
    """The last of the hops, itself reached through those before it; the first one as the configuration says."""
    if not hops:
        return None
    user, name, port = _hop(hops[-1])
    if len(on_the_way_to) > MOST_JUMPS:
        way = ", ".join((*on_the_way_to, name))
        raise UsageError(f"the way to {on_the_way_to[0]} jumps too often, or in a circle: {way}")
    common = ssh.model_copy(update={"host_key": None, "sudo": None, "python": None})
    return _place(name, common, port, user, hops[:-1] or None, on_the_way_to)


def _hops(text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [] if text.strip().lower() == "none" else [hop.strip() for hop in text.split(",") if hop.strip()]


def _hop(text: str) -> tuple[str | None, str, int | None]:
    """`[user@]host[:port]`, an IPv6 address in brackets where it has a port; or `ssh://` before it."""
    user, _, rest = text.removeprefix("ssh://").rpartition("@")
    bracketed, _, after = rest.rpartition("]")
    name, _, port = after.partition(":") if bracketed else (rest, "", "")
    if bracketed:
        name, port = bracketed.removeprefix("["), after.removeprefix(":")
    elif rest.count(":") == 1:
        name, _, port = rest.partition(":")
    if not name or (port and not port.isdecimal()):
        raise UsageError(f"not a host to jump over: {text!r}", hint="it is [user@]host[:port], several with commas")
    return user or None, name, int(port) if port else None


def _number(said: Mapping[str, Any], key: str, name: str) -> int:
    try:
        return int(said.get(key, "0"))
    except ValueError:
        raise UsageError(f"{CONFIG}: {key} of {name} is not a number: {said[key]}") from None


def _said(name: str) -> Mapping[str, Any]:
    """What the configuration says of a host; lists for what may be said several times, else texts."""
    try:
        return _config(Path(CONFIG).expanduser()).lookup(name)
    except (paramiko.ConfigParseError, CouldNotCanonicalize, KeyError, ValueError, ImportError) as error:
        hint = "`ssh_config: false` under `ssh` in the target file leaves it aside"
        raise UsageError(f"{CONFIG} cannot be followed for {name}: {error}", hint=hint) from None


@cache
def _config(file: Path) -> paramiko.SSHConfig:
    return paramiko.SSHConfig.from_text("\n".join(_lines(file, 0)))


def _lines(file: Path, depth: int) -> Iterator[str]:
    """The lines of a configuration, what it includes in place: that is left to us."""
    try:
        lines = file.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    block = "Host *"
    for line in lines:
        word, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if word.lower() in ("host", "match"):
            block = line
        if word.lower() != "include":
            yield line
            continue
        for pattern in rest.split():
            whole = Path("~/.ssh").expanduser() / Path(pattern).expanduser()
            for found in sorted(Path(whole.anchor).glob(str(whole.relative_to(whole.anchor)))):
                if depth < _DEEPEST:
                    yield from _lines(found, depth + 1)
                    yield block  # what follows belongs to the block again that the file was included in
