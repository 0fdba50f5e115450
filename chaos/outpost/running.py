"""A command that runs until we end it, and never longer than we live.

It leads a process group of its own, and a watcher in that group waits for the end of a pipe that only we hold: when we
close it or die, however we die, the group is ended, first asked to and then killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
from typing import TYPE_CHECKING

from chaos.outpost.marks import marked

if TYPE_CHECKING:
    from collections.abc import Sequence

ENDS_WITHIN_S = 0.5
"""Between asking and killing."""
PIPE_BYTES = 1 << 20
"""A pipe that holds what is written between two looks, so that nobody waits for us; the kernel's limit for users."""
_F_SETPIPE_SZ = 1031
_WATCHED = (
    "exec 3<&0 </dev/null; "
    '( trap "" TERM HUP INT; read _; kill -TERM 0; sleep 1; kill -KILL 0 ) <&3 >/dev/null 2>&1 & '
    'exec 3<&-; exec "$@"'
)


class Running:
    """A command, started. `out` and `err` are the ends of its pipes, which never block."""

    def __init__(self, argv: Sequence[str], run: str) -> None:
        """Raises OSError when there is no such command."""
        held, self._hold = os.pipe()
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHED, "sh", *argv],
                stdin=held,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=marked(run),
            )
        except OSError:
            os.close(self._hold)
            raise
        finally:
            os.close(held)
        if self._process.stdout is None or self._process.stderr is None:
            raise OSError("no pipes")  # cannot be: they were asked for
        self.out, self.err = self._process.stdout.fileno(), self._process.stderr.fileno()
        for fd in (self.out, self.err):
            os.set_blocking(fd, False)
            with contextlib.suppress(OSError):  # a user who has too many large ones already
                fcntl.fcntl(fd, _F_SETPIPE_SZ, PIPE_BYTES)

    @property
    def group(self) -> int:
        """Its process group."""
        return self._process.pid

    def status(self) -> int | None:
        """Its exit status (negative: the signal that ended it); None while it runs."""
        return self._process.poll()

    def end(self) -> None:
        """End the whole group, and return when nothing of it is left but what cannot die."""
        # The watcher ignores the request, so the group's number is not given to anybody else meanwhile.
        self._kill(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDS_WITHIN_S)
        self._kill(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDS_WITHIN_S)
        os.close(self._hold)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _kill(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.group, number)
