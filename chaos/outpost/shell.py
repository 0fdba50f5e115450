"""Runs commands of the target's owner, and tools that undo what we did, to their ends."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from typing import IO, TYPE_CHECKING, Any, Callable

from chaos.outpost.marks import unmarked
from chaos.outpost.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Sequence

OUTPUT_BYTES = 300


def shell(command: str, limit_s: float) -> dict[str, Any]:
    """Run a shell command: its exit `status` and the beginning of what it `said`. Raises Trouble `too-slow`."""
    status, said = to_its_end(["/bin/sh", "-c", command], limit_s)
    return {"status": status, "said": said}


def to_its_end(argv: Sequence[str], limit_s: float) -> tuple[int, str]:
    """Its exit status and the beginning of what it said. After `limit_s` it is killed: Trouble `too-slow`.

    It runs in a session of its own, so that a server it starts survives us and our Ctrl-C, and without the marks by
    which our own processes are found; its output goes into a file, so that a server which keeps it open does not keep
    us waiting. Raises Trouble `missing` when it cannot be run.
    """
    with _file() as output:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=unmarked(),
            )
        except OSError as error:
            raise Trouble("missing", f"cannot be run: {error.strerror}") from None
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise Trouble("too-slow", f"did not end within {limit_s:g} s") from None
        output.seek(0)
        return status, " ".join(output.read(OUTPUT_BYTES).decode(errors="replace").split())


def _file() -> IO[bytes]:
    """A file without a name; where the disk has no room even for that, what is said is lost."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return open(os.devnull, "w+b")  # noqa: PTH123 - the same type as above


OPS: dict[str, Callable[..., object]] = {"shell": shell}
