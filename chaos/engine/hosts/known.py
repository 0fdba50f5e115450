"""Host keys: those that the user knows already are believed, and no others."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.engine.hosts.place import SSH_PORT
from chaos.model.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.engine.hosts.place import Place

_HASHED = "|1|"
_OF_TYPE = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
"""How a key of a type signs, where that is called otherwise."""


@dataclass(frozen=True, slots=True)
class Key:
    """A public key, as known_hosts files have it."""

    kind: str
    blob: bytes

    @classmethod
    def parse(cls, text: str) -> Key | None:
        """`ssh-ed25519 AAAA…`; None for what is no key."""
        kind, _, encoded = text.partition(" ")
        try:
            return cls(kind, base64.b64decode(encoded.split()[0], validate=True))
        except (binascii.Error, IndexError):
            return None

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` shows it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")
        return f"{self.kind} SHA256:{digest}"

    @property
    def line(self) -> str:
        """As files have it."""
        return f"{self.kind} {base64.b64encode(self.blob).decode()}"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one host's keys."""

    place: Place
    keys: tuple[tuple[Key, str], ...]  # and where that is written
    revoked: tuple[tuple[Key, str], ...] = ()

    @classmethod
    def of(cls, place: Place) -> Known:
        """The pinned key, else those in the user's files."""
        pinned = Key.parse(place.host_key) if place.host_key else None
        if pinned:
            return cls(place, ((pinned, "the target file"),))
        lines = [line for file in place.known_hosts for line in _lines(Path(file).expanduser())]
        names = _names(place)
        of_host = [line for line in lines if _matches(line.hosts, names[0])]
        if not any(line.marker == "" for line in of_host):  # as OpenSSH: then any port's will do
            of_host += [line for name in names[1:] for line in lines if _matches(line.hosts, name)]
        return cls(
            place,
            tuple((line.key, line.at) for line in of_host if line.marker == ""),
            tuple((line.key, line.at) for line in lines if line.marker == "@revoked"),
        )

    def preferred(self, offered: tuple[str, ...]) -> tuple[str, ...]:
        """Kinds of signatures, those of known keys first: a host shows only one of its keys."""
        wanted = [name for key, _ in self.keys for name in _OF_TYPE.get(key.kind, (key.kind,))]
        return tuple(dict.fromkeys(name for name in (*wanted, *offered) if name in offered))

    def check(self, shown: Key) -> None:
        """Raise Refused unless the key that a host showed is known to be its own."""
        place = self.place
        for key, at in self.revoked:
            if key == shown:
                raise Refused(f"{place.label}: its host key {shown.fingerprint} was revoked ({at})")
        if any(key == shown for key, _ in self.keys):
            return
        name, file = _names(place)[0], place.known_hosts[0]
        of_kind = [(key, at) for key, at in self.keys if key.kind == shown.kind]
        if of_kind or place.host_key:
            key, at = of_kind[0] if of_kind else self.keys[0]
            drop = "write the new one there" if place.host_key else f"ssh-keygen -R '{name}' -f {file}"
            raise Refused(
                f"{place.label}: THE HOST KEY HAS CHANGED: {at} knows {key.fingerprint}, the host showed "
                f"{shown.fingerprint}; another machine may be answering in its place",
                hint=f"find out why; only when the new key is right: {drop}",
            )
        scan = f"ssh-keyscan -p {place.port} {place.host} >> {file}"
        if place.through:
            scan = f"{place.by_hand}  (and answer yes)"  # ssh-keyscan cannot jump
        raise Refused(
            f"{place.label}: its host key {shown.fingerprint} is not known"
            + (" (another kind of key is)" if self.keys else ""),
            hint=f'compare that fingerprint with the host\'s own, then: {scan}   or pin it: `host_key: "{shown.line}"`',
        )


@dataclass(frozen=True, slots=True)
class _Line:
    marker: str
    hosts: str
    key: Key
    at: str


def _names(place: Place) -> tuple[str, ...]:
    host = place.known_as or place.host
    return (host,) if place.port == SSH_PORT or place.known_as else (f"[{host}]:{place.port}", host)


def _lines(file: Path) -> Iterator[_Line]:
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return  # then nothing is known
    for number, line in enumerate(lines, 1):
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#"):
            continue
        key = Key.parse(" ".join(words[1:3]))
        if key:
            yield _Line(marker, words[0], key, f"{file}:{number}")


def _matches(hosts: str, name: str) -> bool:
    if hosts.startswith(_HASHED):
        try:
            salt, digest = (base64.b64decode(part, validate=True) for part in hosts.removeprefix(_HASHED).split("|"))
        except (binascii.Error, ValueError):
            return False
        return hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), digest)
    found = False
    for pattern in hosts.split(","):
        wanted = pattern.removeprefix("!").lower().replace("[", "[[]")  # brackets are no classes here
        if fnmatchcase(name.lower(), wanted):
            if pattern.startswith("!"):
                return False
            found = True
    return found
