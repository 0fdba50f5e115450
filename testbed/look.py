"""What is on a host that was not there when it came up: what somebody left behind."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from testbed import processes
from testbed.mounts import PRIVATE
from testbed.needs import program
from testbed.network import DEVICE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_TIMEOUT_S = 30.0
_OF_SUDO = "/run/sudo"  # its notes of who has used it: sudo's own, as a log would be


@dataclass(frozen=True, slots=True)
class Leftovers:
    """All that is there too much, as text. `stopped`: processes in state T, the bed's own included."""

    processes: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    qdiscs: list[str] = field(default_factory=list)
    filters: list[str] = field(default_factory=list)
    nft: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def items(self) -> list[tuple[str, list[str]]]:
        """By kind."""
        return list(asdict(self).items())

    def __bool__(self) -> bool:
        return any(found for _, found in self.items())


class Baseline:
    """How the host was when it came up."""

    def __init__(self) -> None:
        self._network = _network()
        self._files = set(files())

    def leftovers(self, *, own: set[int]) -> Leftovers:
        """What is there now and is neither of then nor a process of the bed's own."""
        running = processes.all_processes()
        self._files |= processes.held_files(own)  # a restarted engine's shared memory has another name
        now = _network()
        new = {kind: [each for each in found if each not in self._network[kind]] for kind, found in now.items()}
        return Leftovers(
            processes=[str(each) for each in running if each.pid not in own],
            stopped=[str(each) for each in running if each.state in "Tt"],
            files=sorted(set(files()) - self._files),
            **new,
        )


def _network() -> dict[str, list[str]]:
    return {
        "qdiscs": [_text(each) for each in _json("tc", "-j", "qdisc", "show")],
        "filters": [
            _text(each)
            for parent in ((), ("ingress",), ("egress",))
            for each in _json("tc", "-j", "filter", "show", "dev", DEVICE, *parent)
        ],
        "nft": [_text(each["table"]) for each in _json("nft", "-j", "list", "tables")["nftables"] if "table" in each],
        "links": [str(each["ifname"]) for each in _json("ip", "-j", "link", "show")],
    }


def _json(name: str, *arguments: str) -> Any:
    told = subprocess.run([program(name), *arguments], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    return json.loads(told.stdout) if told.stdout.strip() else []


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def files(folders: Iterable[Path] = PRIVATE) -> Iterator[str]:
    """All that is on these disks, and not on others that are mounted below them."""
    for folder in folders:
        if folder.is_dir():
            yield from _below(folder, folder.stat().st_dev)


def _below(folder: Path, device: int) -> Iterator[str]:
    """Everything on that one disk: not what is mounted below it."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.stat(follow_symlinks=False).st_dev != device:
                continue
            if entry.path == _OF_SUDO:
                continue
            yield entry.path
            if entry.is_dir(follow_symlinks=False):
                yield from _below(type(folder)(entry.path), device)
