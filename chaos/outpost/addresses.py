"""Names and addresses as this host knows them: what peers are called, which are its own, where SSH comes in."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from chaos.outpost import proc
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOCAL = re.compile(r"\|-- (\S+)\n\s+/32 host LOCAL")
SSH_PORT = 22
_MOST_ANCESTORS = 32


def resolve(names: Sequence[str]) -> list[str]:
    """Every address of these hosts, each once, as this host resolves them. Raises Trouble."""
    found: dict[str, None] = {}
    for name in names:
        bare = name.strip("[]")
        try:
            infos = socket.getaddrinfo(bare, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise Trouble("unknown-name", f"this host does not know the address of {bare}") from None
        found.update((plain(str(info[4][0])), None) for info in infos)
    return list(found)


def plain(address: str) -> str:
    """An address in its shortest form: without a zone, and IPv4 as such where it is wrapped into IPv6."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def is_v4(address: str) -> bool:
    """Which of the two families it is of."""
    return ":" not in address


def local() -> list[str]:
    """The addresses of this host itself, those of its loopback too."""
    found: dict[str, None] = {}
    for table, addresses in (("fib_trie", _local_v4), ("if_inet6", _local_v6)):
        try:
            text = Path("/proc/net", table).read_text()
        except OSError:
            continue  # without this family
        found.update((address, None) for address in addresses(text))
    return list(found)


def _local_v4(text: str) -> list[str]:
    return _LOCAL.findall(text)


def _local_v6(text: str) -> list[str]:
    return [str(ipaddress.IPv6Address(int(line.split()[0], 16))) for line in text.splitlines() if line.strip()]


def ssh() -> dict[str, Any] | None:
    """How we came here: `{"client": address, "port": of the sshd}`; None when not over SSH.

    `sudo` drops the variable, so that it is looked for in our ancestors, too.
    """
    told = os.environ.get("SSH_CONNECTION") or _of_ancestors()
    parts = told.split()
    if len(parts) != 4:
        return None
    try:
        return {"client": plain(parts[0]), "port": int(parts[3])}
    except ValueError:
        return None


def _of_ancestors() -> str:
    one = proc.stat(os.getpid())
    for _ in range(_MOST_ANCESTORS):
        one = proc.stat(one.parent) if one else None
        if one is None:
            break
        with suppress(OSError):  # somebody else's
            told = proc.environment(one.pid).get("SSH_CONNECTION")
            if told:
                return told
    return ""


def is_here(name: str) -> bool:
    """Whether a name means this host. Raises Trouble when nobody knows it."""
    ours = local()
    return any(address in ours for address in resolve([name]))


def split(addresses: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those of IPv4, and those of IPv6."""
    return [one for one in addresses if is_v4(one)], [one for one in addresses if not is_v4(one)]


OPS: dict[str, Callable[..., Any]] = {"net.ssh": ssh, "net.is_here": is_here}
