"""Log services that behave like the real ones as far as we ask them: executables for a PATH of our own.

They print from a file whose lines are `STREAM POD STAMP TEXT`, all since a moment, and go on as it grows. Their real
forms were looked up in the manuals of journalctl 252, docker 20 and kubectl 1.20.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SERVICE = """#!{python}
import calendar, json, os, sys, time
kind, here = {kind!r}, {here!r}
args = sys.argv[1:]
with open(here + "/asked", "a") as asked:
    asked.write(json.dumps([kind, *args]) + "\\n")
option = lambda name: next((a.split("=", 1)[1] for a in args if a.startswith(name + "=")), "")
try:
    source = open(here + "/" + kind)
except FileNotFoundError:
    sys.exit("Error: No such container: gone\\nand more")
def seconds(text):
    whole, _, fraction = text.rstrip("Z").partition(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float("0." + (fraction or "0"))
since = option("--since") or option("--since-time") or "0"
since = float(since.lstrip("@")) if "-" not in since else seconds(since)
while True:
    line = source.readline()
    if not line.endswith("\\n"):
        if "--follow" not in args:
            break
        source.seek(source.tell() - len(line))
        time.sleep(0.005)
        continue
    if line == "END\\n":  # a container that was stopped: the service hangs up
        sys.exit(0)
    stream, pod, stamp, text = line.rstrip("\\n").split(" ", 3)
    if seconds(stamp) < since:
        continue
    out = sys.stderr if stream == "err" else sys.stdout
    if kind == "journalctl" and "--output=cat" in args:
        print(text, file=out, flush=True)
    elif kind == "journalctl":
        print(stamp[:26] + "+0000 sglang[12]: " + text, file=out, flush=True)
    elif kind == "docker":
        print(stamp, text, file=out, flush=True)
    else:
        print("[pod/" + pod + "/engine] " + stamp, text, file=out, flush=True)
"""


class Services:
    """A folder for the PATH, and what the services have to tell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for kind in ("journalctl", "docker", "kubectl"):
            tool = folder / "bin" / kind
            tool.parent.mkdir(exist_ok=True)
            tool.write_text(SERVICE.format(python=sys.executable, kind=kind, here=str(folder)))
            tool.chmod(0o755)

    def tell(self, kind: str, stamp: str, text: str, *, stream: str = "out", pod: str = "p-0") -> None:
        """Log a line."""
        with (self.folder / kind).open("a") as file:
            file.write(f"{stream} {pod} {stamp} {text}\n")

    def end(self, kind: str) -> None:
        """Hang up on whoever follows, each time it gets there."""
        with (self.folder / kind).open("a") as file:
            file.write("END\n")

    def go_on(self, kind: str) -> None:
        """Do not hang up any more."""
        file = self.folder / kind
        file.write_text(file.read_text().replace("END\n", ""))

    @property
    def asked(self) -> list[list[str]]:
        """The command lines that we were called with."""
        file = self.folder / "asked"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
