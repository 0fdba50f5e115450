"""Runs a shell command of the target's owner to its end."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from typing import Any, Callable

from chaos.outpost.marks import unmarked
from chaos.outpost.trouble import Trouble

OUTPUT_BYTES = 300


def shell(command: str, limit_s: float) -> dict[str, Any]:
    """Its exit `status` and the beginning of what it `said`. After `limit_s` it is killed: Trouble `too-slow`.

    It runs in a session of its own, so that a server it starts survives us and our Ctrl-C, and without the marks by
    which our own processes are found; its output goes into a file, so that a server which keeps it open does not keep
    us waiting.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(  # noqa: S602 - the target's owner wrote it
            command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=unmarked(),
        )
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise Trouble("too-slow", f"did not end within {limit_s:g} s") from None
        output.seek(0)
        said = " ".join(output.read(OUTPUT_BYTES).decode(errors="replace").split())
    return {"status": status, "said": said}


OPS: dict[str, Callable[..., object]] = {"shell": shell}
