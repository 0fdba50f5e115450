"""Load agents on a host: started, spoken to, counted, and killed in one blow; nothing of them touches its disk.

An agent belongs to the stream that started it. When that ends, or we do, the end of its stdin tells it to finish what
it has and go.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import struct
import subprocess
import tempfile
import threading
import time
from typing import Any, Callable

from chaos.outpost import ourselves, sockets
from chaos.outpost.marks import marked
from chaos.outpost.trouble import Trouble

COUNT_EVERY_S = 0.05
GONE_S = 5.0
"""The kernel closes 1000 sockets in about 10 ms; a machine that starves needs longer."""
_LOOK_S = 0.002
_HEADER_BYTES = 64
_HEADER = struct.Struct("<4sII")  # as `chaos.agent.phases` writes it
_READ = 1 << 16
_LAST_WORDS_S = 2.0


class _Agent:
    """One that runs."""

    def __init__(self, run: str, config: dict[str, Any]) -> None:
        self._phases = _memory()
        words, code = ourselves.command("agent")
        line = json.dumps({**config, "phase_file": f"/proc/self/fd/{self._phases}"})
        try:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=[self._phases, *code],
                env=marked(run),
            )
        except OSError as error:
            os.close(self._phases)
            raise Trouble("not-started", f"an agent cannot be started: {error.strerror}") from None
        self._lock = threading.Lock()
        self.say(line)

    def say(self, line: str) -> None:
        """Hand it one line; nothing when it has ended."""
        assert self.process.stdin is not None  # noqa: S101
        with self._lock, contextlib.suppress(OSError, ValueError):
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()

    def count(self) -> dict[str, int] | None:
        """Sessions by the number of their phase; None while it has not begun to count."""
        data = os.pread(self._phases, os.fstat(self._phases).st_size, 0)
        if len(data) < _HEADER_BYTES or data[:4] != b"PDCH":
            return None
        slots = data[_HEADER_BYTES : _HEADER_BYTES + _HEADER.unpack_from(data)[2]]
        return {str(phase): slots.count(phase) for phase in sorted(set(slots)) if phase}

    def let_go(self) -> None:
        """Have it finish by itself; somebody takes note of its end."""
        assert self.process.stdin is not None  # noqa: S101
        with self._lock, contextlib.suppress(OSError, ValueError):
            self.process.stdin.close()
        threading.Thread(target=self._bury, daemon=True, name="bury").start()

    def _bury(self) -> None:
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        os.close(self._phases)


_agents: dict[str, _Agent] = {}


def agent(send: Callable[[Any], None], stopped: threading.Event, *, key: str, run: str, config: dict[str, Any]) -> None:
    """Run an agent, known as `key`, and tell what it tells.

    Sends `{"pid": …}`, then `{"lines": […]}` of its stdout, `{"log": text}` of its stderr, `{"count": {phase: n}}` when
    that has changed, at last `{"exit": status}`. Raises Trouble when it cannot be started.
    """
    this = _agents[key] = _Agent(run, config)
    assert this.process.stdout is not None  # noqa: S101
    assert this.process.stderr is not None  # noqa: S101
    names = {this.process.stdout.fileno(): "out", this.process.stderr.fileno(): "log"}
    try:
        send({"pid": this.process.pid})
        rest, counted = b"", None
        while names and not stopped.is_set():
            ready, _, _ = select.select(list(names), [], [], COUNT_EVERY_S)
            for fd in ready:
                data = os.read(fd, _READ)
                if not data:
                    del names[fd]
                elif names[fd] == "log":
                    send({"log": data.decode("utf-8", "replace")})
                else:
                    *lines, rest = (rest + data).split(b"\n")
                    if lines:
                        send({"lines": [line.decode("utf-8", "replace") for line in lines]})
            now = this.count()
            if now != counted:
                counted = now
                send({"count": now})
        if not stopped.is_set():
            send({"exit": this.process.wait(_LAST_WORDS_S)})
    except subprocess.TimeoutExpired:  # it closed its pipes and runs on: nobody would hear of it again
        this.process.kill()
        send({"exit": this.process.wait()})
    finally:
        _agents.pop(key, None)
        this.let_go()


def say(key: str, line: str) -> None:
    """Hand an agent a line of its stdin; one that has ended hears nothing."""
    if key in _agents:
        _agents[key].say(line)


def kill(key: str) -> dict[str, Any]:
    """SIGKILL an agent: the census is copied just before, and the kernel's connections are counted before and after.

    Gives `phases`, `ordered_ns` and `killed_ns` (right
    before and after the signal), `gone_ns` (when the last connection was seen to be gone), `connections` and `left` of
    them (None where the kernel does not tell), and `exit`. Raises Trouble where there is no such agent.
    """
    this = _agents.get(key)
    if this is None:
        raise Trouble("missing", "the agent has ended")
    process = this.process
    try:
        held: set[str] | None = set(sockets.connections(process.pid))
    except Trouble:
        held = None
    phases = this.count()
    ordered_ns = time.monotonic_ns()
    process.send_signal(signal.SIGKILL)
    killed_ns = time.monotonic_ns()
    until = time.monotonic() + GONE_S
    left = _left(held)
    while (left or process.poll() is None) and time.monotonic() < until:
        time.sleep(_LOOK_S)
        left = _left(held)
    return {
        "phases": phases,
        "ordered_ns": ordered_ns,
        "killed_ns": killed_ns,
        "gone_ns": time.monotonic_ns(),
        "connections": None if held is None else len(held),
        "left": left,
        "exit": process.poll(),
    }


def _left(held: set[str] | None) -> int | None:
    if held is None:
        return None
    try:
        return sockets.still_open(held)
    except Trouble:
        return None


def _memory() -> int:
    """A file without a name."""
    with contextlib.suppress(AttributeError, OSError):  # old kernels, and Pythons built for old systems
        return os.memfd_create("pdchaos-phases")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


OPS: dict[str, Callable[..., object]] = {"agent.say": say, "agent.kill": kill}
STREAMS: dict[str, Callable[..., None]] = {"agent": agent}
