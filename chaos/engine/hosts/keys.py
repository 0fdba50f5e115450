"""Who we are to a host: keys in files and in the user's agent. A passphrase is the agent's business alone."""

from __future__ import annotations

import base64
import struct
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import paramiko

from chaos.model.errors import Unfit, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chaos.engine.hosts.place import Place

_OPENSSH = b"openssh-key-v1\0"


def authenticate(transport: paramiko.Transport, place: Place) -> None:
    """Be let in. Raises UsageError when no key of ours will do, Unfit when the host wants something else."""
    with _agent() as held:
        keys, locked = _candidates(place, held)
        for key in keys:
            if _accepted(transport, place, key):
                return
            if not transport.is_active():
                break  # too many keys for its taste
    if locked:
        files = ", ".join(locked)
        raise UsageError(
            f"{place.label}: {files} is locked with a passphrase, and the SSH agent does not hold it",
            hint=f"ssh-add {locked[0]}" + ("" if held else "  (no agent answers: eval $(ssh-agent) first)"),
        )
    tried = ", ".join(dict.fromkeys(_told(key) for key in keys)) or "none: there is neither a key file nor an agent"
    raise UsageError(
        f"{place.label}: the host does not accept {place.user}'s key ({tried})",
        hint=f"`user` and `identity` under `ssh` say who we are; by hand: {place.by_hand}",
    )


def _accepted(transport: paramiko.Transport, place: Place, key: paramiko.PKey) -> bool:
    try:
        further = transport.auth_publickey(place.user, key)
    except paramiko.BadAuthenticationType as error:
        wanted = ", ".join(error.allowed_types)
        raise Unfit(
            f"{place.label} takes no keys, only: {wanted}", hint="allow PubkeyAuthentication for this user"
        ) from None
    except paramiko.AuthenticationException as error:
        if "timeout" in str(error).lower():
            raise Unfit(f"{place.label} does not answer while we log in") from None
        return False
    if further:
        raise Unfit(
            f"{place.label} wants more than a key: {', '.join(further)}", hint="allow this user in with a key alone"
        )
    return True


def _candidates(place: Place, held: Sequence[paramiko.PKey]) -> tuple[list[paramiko.PKey], list[str]]:
    """Keys in the order in which they are tried, and files that are locked and that the agent does not hold."""
    keys: list[paramiko.PKey] = []
    locked: list[str] = []
    for file in place.identities:
        if not place.insisted and not Path(file).exists():
            continue
        loaded = _load(place, file)
        if loaded is not None:
            keys.append(loaded)
            continue
        public = _public_of(file)
        ours = [key for key in held if public is None or key.asbytes() == public]
        keys += ours
        if not ours:
            locked.append(file)
    if not place.only_identities:
        keys += held
    return list({key.asbytes(): key for key in reversed(keys)}.values())[::-1], locked


def _load(place: Place, file: str) -> paramiko.PKey | None:
    """The private key in a file; None when it is locked."""
    try:
        return paramiko.PKey.from_path(file)
    except (paramiko.PasswordRequiredException, TypeError):  # the latter is the crypto library's word for it
        return None
    except OSError as error:
        raise UsageError(
            f"{place.label}: {file} cannot be read: {error.strerror}",
            hint="`identity` under `ssh`, or IdentityFile in ~/.ssh/config, names our private key",
        ) from None
    except Exception as error:  # noqa: BLE001 - whatever a parser of keys may say
        raise UsageError(
            f"{place.label}: {file} holds no private key that can be used ({error})",
            hint="`identity` names the private key, not the .pub file",
        ) from None


def _public_of(file: str) -> bytes | None:
    """The public part of a locked key, in SSH's form: from the file itself, else from beside it."""
    try:
        text = Path(file).read_text(errors="replace")
        body = base64.b64decode("".join(line for line in text.splitlines() if not line.startswith("-----")))
        if body.startswith(_OPENSSH):
            at = len(_OPENSSH)
            for _ in range(3):  # cipher, key derivation, its options
                at += 4 + struct.unpack_from(">I", body, at)[0]
            at += 4  # how many keys
            size = struct.unpack_from(">I", body, at)[0]
            return body[at + 4 : at + 4 + size]
    except (OSError, ValueError, struct.error):
        pass
    try:
        return base64.b64decode(Path(f"{file}.pub").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None


@contextmanager
def _agent() -> Iterator[Sequence[paramiko.PKey]]:
    """The keys that the user's agent holds; none without one."""
    try:
        agent = paramiko.Agent()
    except (paramiko.SSHException, OSError):
        yield ()
        return
    try:
        yield agent.get_keys()
    finally:
        agent.close()


def _told(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {getattr(key, 'comment', '') or ''}".rstrip()
