"""The process: configuration and commands in on stdin, events out on stdout, people's diagnostics on stderr.

In, one JSON object per line: first the configuration (`config.Config`; `tls` is `{"verify": ..., "ca": ...}`), then
commands: `{"cmd": "add", "sessions": N}`, `{"cmd": "wave", "id": ..., "how": "rst"|"fin"|"cancel"|"timeout"|
"abort-api"|"stall"|"blackhole", "sessions": "all"|N|[numbers], "deadline_s": of a timeout}`, `{"cmd": "look", "id":
...}` and `{"cmd": "release", "id": ..., "close": bool}` for what a stall or a blackhole holds, `{"cmd": "drain"}`,
`{"cmd": "stop"}`. SIGTERM and SIGINT drain. End of file on stdin means that the harness died: drain, but hang up after
`orphan_drain_s`.

Out: `hello`, then `start` and `end` of each request, `wave` after each wave, `held` after each look or release, `beat`
twice a second, `refused` for a command that could not be carried out, and `bye` as the last line, with what ended it:
`done` when all sessions were, `drained` or `stopped` by command, `terminated` by a signal, `orphaned`. Times are
nanoseconds of CLOCK_MONOTONIC.

A session that a wave hit is over, one that was still to begin included (with "all"); an open loop's arrivals go on.
Requests that are held, given up late or left to be aborted are those that are open: other sessions stay as they are.

Draining suspends the requests' own timeouts: whoever drains wants nothing to be hung up. `stop` ends that, too.

Exit status: 0, or 2 for a bad configuration, or 1 for a defect of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import platform
import resource
import signal
import socket
import ssl
import sys
import threading
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING, Callable
from urllib.parse import urlsplit

from . import codec
from .beat import Beat
from .client import Tools
from .codec import as_mapping, as_text, loads
from .config import Config, ConfigError, parse_config
from .holds import HOLDS, Hold
from .http1 import PARSERS, request_head
from .patience import lose_patience
from .phases import PhaseFile
from .reach import Remote
from .report import Report
from .sessions import Load
from .waves import BadWave, follow, hand_over, parse_order, strike

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from .reach import Address

try:
    import uvloop
except ImportError:
    LOOP, _new_loop = "asyncio", asyncio.new_event_loop
else:
    LOOP, _new_loop = "uvloop", uvloop.new_event_loop

_READ_BYTES = 65536


def main() -> int:
    """Run one agent; the exit status."""
    rest = bytearray()
    line = _read_line(rest)
    try:
        config = parse_config(line)
        remote, host, prefix = resolve(config)
        phases = PhaseFile(config.phase_file, config.phase_slots)
    except (ConfigError, OSError) as error:
        print(f"agent: {error}", file=sys.stderr)  # noqa: T201
        return 2
    parser_name, parser = next(iter(PARSERS.items()))
    tools = Tools(config, remote, request_head(config, host, prefix), parser)
    _raise_file_limit()
    loop = _new_loop()
    try:
        return loop.run_until_complete(_Agent(config, phases, tools, parser_name).run(rest))
    finally:
        loop.close()


def resolve(config: Config) -> tuple[Remote, str, str]:
    """Where to connect, the Host header, and the path before the API's; OSError when the name is unknown."""
    url = urlsplit(config.base_url)
    name = url.hostname or ""
    port = url.port or (443 if url.scheme == "https" else 80)
    found: list[Address] = []
    # Behind a relay the name is one of the relay's network, and nothing to us.
    told = [] if config.unix_socket else socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    for family, _, _, _, address in told:
        if (family, address) not in found:
            found.append((family, address))
    tls = None
    if url.scheme == "https":
        told_ca = config.tls_ca or ""
        named = told_ca.startswith("-----BEGIN")  # an agent elsewhere has no file of ours
        tls = ssl.create_default_context(cafile=None if named else config.tls_ca, cadata=told_ca if named else None)
        if not config.tls_verify:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
    host = url.netloc.rpartition("@")[2]
    return Remote(found, tls, name, config.unix_socket or ""), host, url.path.rstrip("/")


class _Agent:
    """Wires the parts together and decides when it is over."""

    def __init__(self, config: Config, phases: PhaseFile, tools: Tools, parser_name: str) -> None:
        self._config = config
        self._phases = phases
        self._tools = tools
        self._parser_name = parser_name
        self._reason = "done"
        self._waves: set[asyncio.Task[None]] = set()
        self._holds: dict[str, Hold] = {}

    async def run(self, rest: bytearray) -> int:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._report = report = Report(loop, sys.stdout.fileno(), self._orphaned)
        report.emit("hello", self._introduction())
        self._load = load = Load(self._tools, self._phases, report)
        beat = Beat(loop, load, report)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._drain, "terminated")
        load.start()
        beat.start()
        self._listen(rest)
        await load.finished
        if self._waves:
            await asyncio.wait(self._waves)
        beat.stop()
        report.emit("bye", {"reason": self._reason})
        report.close()
        self._phases.close()
        return 1 if load.defects else 0

    def _introduction(self) -> dict[str, object]:
        return {
            "pid": os.getpid(),
            "py": platform.python_version(),
            "parser": self._parser_name,
            "json": codec.NAME,
            "loop": LOOP,
            "seed": self._config.seed,
            "sockets": own_sockets(),
        }

    # ------------------------------------------------------------------------------------------ commands

    def _listen(self, rest: bytearray) -> None:
        """Read commands in a thread: their stamps are right however busy the loop is, and stdin may be any file."""

        def read() -> None:
            while True:
                line = _read_line(rest)
                if not line:
                    _in_loop(self._loop, self._orphaned)
                    return
                read_ns = monotonic_ns()
                _in_loop(self._loop, functools.partial(self._command, line, read_ns))

        threading.Thread(target=read, name="commands", daemon=True).start()

    def _command(self, line: bytes, read_ns: int) -> None:
        try:
            command = as_mapping(loads(line))
        except ValueError:
            command = {}
        name = command.get("cmd")
        count = command.get("sessions")
        if name == "drain":
            self._drain("drained")
        elif name == "stop":
            if self._reason != "terminated":
                self._reason = "stopped"
            self._load.stop("stopped by the harness")
        elif name == "add" and isinstance(count, int) and count > 0:
            self._load.add(count)
        elif name == "wave":
            self._wave(command, read_ns)
        elif name in ("look", "release") and command.get("id") in self._holds:
            hold = self._holds[as_text(command.get("id"))]
            hold.look() if name == "look" else hold.release(close=bool(command.get("close")))
        elif line.strip():
            self._refuse(line, "not a command")

    def _wave(self, command: dict[str, object], read_ns: int) -> None:
        try:
            order = parse_order(command, read_ns)
        except BadWave as error:
            self._refuse(codec.dumps(command), str(error))
            return
        sessions = list(self._load.live.values())
        if order.how in HOLDS:
            self._holds[order.wave] = Hold(order, sessions, self._report)
        elif order.how == "abort-api":
            hand_over(order, sessions, self._report)
        elif order.how == "timeout":
            self._await(lose_patience(order, sessions, self._report))
        else:
            self._await(follow(strike(order, sessions), self._report))

    def _await(self, wave: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(wave)
        self._waves.add(task)
        task.add_done_callback(self._waves.discard)

    def _refuse(self, line: bytes, detail: str) -> None:
        print(f"agent: {detail}: {line[:200]!r}", file=sys.stderr)  # noqa: T201
        self._report.emit("refused", {"command": line[:200].decode("utf-8", "replace"), "detail": detail})

    def _drain(self, reason: str) -> None:
        if self._reason == "done":
            self._reason = reason
        self._load.drain()

    def _orphaned(self) -> None:
        """The harness died."""
        if self._reason not in ("stopped", "terminated"):
            self._reason = "orphaned"
        self._load.drain()
        self._loop.call_later(self._config.orphan_drain_s, self._load.stop, "the harness died")


def own_sockets() -> list[str]:
    """Inodes of the sockets that are open before any request is: none of them goes to a server."""
    found = []
    for entry in Path("/proc/self/fd").iterdir() if Path("/proc/self/fd").is_dir() else ():
        with contextlib.suppress(OSError):
            target = str(entry.readlink())
            if target.startswith("socket:["):
                found.append(target[8:-1])
    return found


def _in_loop(loop: asyncio.AbstractEventLoop, action: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(action)
    except RuntimeError:  # the loop is closed: we are leaving
        return


def _read_line(rest: bytearray) -> bytes:
    """The next line of stdin, empty at its end; `rest` holds what was read beyond it."""
    while b"\n" not in rest:
        data = os.read(0, _READ_BYTES)
        if not data:
            line = bytes(rest)
            rest.clear()
            return line
        rest += data
    end = rest.index(b"\n") + 1
    line = bytes(rest[:end])
    del rest[:end]
    return line


def _raise_file_limit() -> None:
    """Use all the file descriptors that we may: each open request is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
