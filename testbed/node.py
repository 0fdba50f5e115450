"""The engine's node on a host, as a service manager would run it.

Killed, it stays dead until it is restarted, and its pid file keeps the old number. Its log goes to a file, or where
only `pd-logs` finds it.
"""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

from testbed import processes
from testbed.errors import BedError

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from testbed.engines.kind import Engine
    from testbed.folder import HostFolder
    from testbed.plan import HostPlan

_END_TIMEOUT_S = 30.0
_POLL_S = 0.02
_TAIL = 2000


class Node:
    """Started, ended, restarted."""

    def __init__(self, engine: Engine, host: HostPlan, folder: HostFolder) -> None:
        self._engine = engine
        self._host = host
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._changing = threading.Lock()
        self.out, self.err = log_files(folder, host)

    @property
    def pid(self) -> int:
        """Of the process; 0 when it is dead."""
        return self._process.pid if self._process and self._process.returncode is None else 0

    @property
    def pids(self) -> set[int]:
        """Of everything that the process has started, orphans included: all that is of its session."""
        if self._process is None:
            return set()
        return {each.pid for each in processes.all_processes() if each.session == self._process.pid}

    def start(self) -> None:
        """Return once it serves; BedError carries the end of its log."""
        with self._changing:
            if not self.pid:
                self._end()
                self._start()

    def stop(self) -> None:
        """SIGKILL it and its children."""
        with self._changing:
            self._end()

    def restart(self) -> None:
        """End it, and start it anew on the same ports."""
        with self._changing:
            self._end()
            time.sleep(self._engine.reload_s)
            self._start()

    def _end(self) -> None:
        deadline = time.monotonic() + _END_TIMEOUT_S
        while left := self.pids:
            if time.monotonic() > deadline:
                raise BedError(f"{self._host.name}: processes that do not end: {sorted(left)}")
            for pid in left:
                processes.kill(pid, signal.SIGKILL)
            time.sleep(_POLL_S)
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None

    def _start(self) -> None:
        with self.out.open("ab") as out, self.err.open("ab") as err:
            started = self._engine.start(self._host, (out, err), (self.out, self.err))
        process = self._process = started.process
        threading.Thread(target=process.wait, daemon=True).start()  # so that it is no zombie when somebody kills it
        self._folder.pidfile(self._host.name).write_text(f"{process.pid}\n")
        if not started.serves(self._engine.patience_s):
            raise BedError(f"{self._host.name} does not serve\n{_tail(self.err)}")


def log_files(folder: HostFolder, host: HostPlan) -> tuple[Path, Path]:
    """Where a node's standard output and error go."""
    if host.source == "file":
        log = folder.logs / f"{host.name}.log"
        return log, log
    return folder.journal / f"{host.name}.out", folder.journal / f"{host.name}.err"


def _tail(path: Path) -> str:
    try:
        return path.read_bytes()[-_TAIL:].decode(errors="replace")
    except OSError:
        return ""
