"""How the log services of hosts are asked, and what they put before each line.

All of them are asked for UTC stamps and for everything since a moment, so that whoever was away can ask for the rest.
"""

from __future__ import annotations

import calendar
import re
import shlex
import time
from typing import Any, Callable

from chaos.outpost.tools import which

OVERLAP_S = 5.0
"""Asked for again after a cut: lines of several pods do not arrive in the order of their stamps."""
MAX_PODS = 64
_STAMP = rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}(?:Z|[+-]\d\d:?\d\d))"

_POD = rb"\[[^\]\s]{1,500}\]"
WRAPS: dict[str, re.Pattern[bytes]] = {
    "journald": re.compile(_STAMP + rb" [^\[:\n]{1,200}(?:\[\d+\])?: "),
    "docker": re.compile(_STAMP + rb" "),
    "kubectl": re.compile(rb"(?=" + _POD + rb" " + _STAMP + rb" )(?P<who>" + _POD + rb") \S+ "),
}
"""What comes before a line. The first group is the stamp, a group `who` says whose line it is."""


def argv(kind: str, what: str, since_ns: int) -> list[str]:
    """The command that prints a log since a moment (of this host's wall clock) and goes on as it grows."""
    return _ARGV[kind](what, since_ns)


def resumes(kind: str) -> bool:
    """Whether it can be asked for what it printed while nobody listened."""
    return kind in WRAPS


def stamp_ns(stamp: str) -> int:
    """Nanoseconds since the epoch of a stamp with a zone, as services write them."""
    match = re.match(r"(.{19})\.(\d+)(Z|([+-])(\d\d):?(\d\d))", stamp)
    if match is None:
        raise ValueError(stamp)
    seconds = calendar.timegm(time.strptime(match[1], "%Y-%m-%dT%H:%M:%S"))
    if match[4]:
        seconds -= (1 if match[4] == "+" else -1) * (int(match[5]) * 3600 + int(match[6]) * 60)
    return seconds * 1_000_000_000 + int(match[2].ljust(9, "0"))


def _journald(unit: str, since_ns: int) -> list[str]:
    # In follow mode it prints no cursor behind lines, so it is resumed by time; its stamps have microseconds.
    options = ["--follow", "--no-tail", "--output=short-iso-precise", "--utc", "--no-hostname", "--no-pager", "--quiet"]
    return [_tool("journalctl"), f"--unit={unit}", *options, f"--since=@{_seconds(since_ns, 6)}"]


def _docker(container: str, since_ns: int) -> list[str]:
    return [_tool("docker"), "logs", "--follow", "--timestamps", f"--since={_seconds(since_ns, 9)}", container]


def _kubectl(arguments: str, since_ns: int) -> list[str]:
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(since_ns // 1_000_000_000))
    options = ["--follow", "--prefix", "--timestamps", "--tail=-1", f"--max-log-requests={MAX_PODS}"]
    fraction = f"{since_ns % 1_000_000_000:09d}"
    return [_tool("kubectl"), "logs", *options, f"--since-time={since}.{fraction}Z", *shlex.split(arguments)]


def _command(command: str, _: int) -> list[str]:
    return ["/bin/sh", "-c", command]


def _seconds(ns: int, digits: int) -> str:
    whole, fraction = divmod(ns, 1_000_000_000)
    return f"{whole}.{f'{fraction:09d}'[:digits]}"


def _tool(name: str) -> str:
    """Its path: the PATH of an SSH session is often a short one."""
    return which(name) or name


_ARGV: dict[str, Callable[[str, int], list[str]]] = {
    "journald": _journald,
    "docker": _docker,
    "kubectl": _kubectl,
    "command": _command,
}
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
Seen = dict[str, list[Any]]
"""Of each who (a pod; nobody: the whole) the last stamp and how many lines bore it."""


class Again:
    """Leaves out what was read before, when a service is asked for the end of it again."""

    def __init__(self, wrap: re.Pattern[bytes] | None, seen: Seen) -> None:
        self._wrap = wrap
        self._whose = wrap is not None and "who" in wrap.groupindex
        self.seen = dict(seen)
        self._left_out = {who: list(last) for who, last in seen.items()}

    def fresh(self, lines: bytes) -> bytes:
        """Of whole lines those that were not read before."""
        if self._left_out:
            lines = b"".join(line for line in _LINE.findall(lines) if not self._known(line))
        self._remember(lines)
        return lines

    @property
    def everything(self) -> bool:
        """Whether nothing is ever left out, for nothing tells lines apart."""
        return self._wrap is None

    def last_ns(self) -> int:
        """The latest stamp read; 0 for none."""
        return max((stamp_ns(last[0]) for last in self.seen.values()), default=0)

    def _known(self, line: bytes) -> bool:
        who, stamp = self._told(self._wrap.match(line) if self._wrap else None)
        last = self._left_out.get(who)
        if last is None or not stamp or stamp > last[0]:
            if stamp:
                self._left_out.pop(who, None)
            return False
        if stamp == last[0]:
            last[1] -= 1
            return bool(last[1] >= 0)
        return True

    def _remember(self, lines: bytes) -> None:
        start = 0
        while self._wrap is not None and start < len(lines):
            who, stamp = self._told(self._wrap.match(lines, start))
            if stamp:
                last = self.seen.get(who)
                self.seen[who] = [stamp, last[1] + 1 if last and last[0] == stamp else 1]
            start = lines.find(b"\n", start) + 1 or len(lines)

    def _told(self, match: re.Match[bytes] | None) -> tuple[str, str]:
        if match is None:
            return "", ""
        return match["who"].decode() if self._whose else "", match[1].decode()
