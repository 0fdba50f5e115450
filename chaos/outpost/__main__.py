"""`python -m chaos.outpost WORD [MARK]`, and the archive's words but for `agent`.

With a mark the first line out is `{"hello": 1, "mark": …, "pid", "python", "uid", "mono_ns", "wall_ns", "tz_s"}`: by it
whoever started us through a shell tells us from the shell.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys

from chaos.outpost.ops import now

WORDS = {"outpost": "serve", "guard": "guard", "relay": "relay"}


def main() -> int:
    """Run the module that the first argument means; its exit status."""
    word, mark = [*sys.argv[1:], "", ""][:2]
    if word not in WORDS:
        print(f"not one of {', '.join(WORDS)}: {word!r}", file=sys.stderr)  # noqa: T201
        return 2
    if mark:
        told = {"hello": 1, "mark": mark, "pid": os.getpid(), "python": platform.python_version(), "uid": os.getuid()}
        # Whatever a shell's start-up files printed may lack the end of its line.
        os.write(1, b"\n" + json.dumps({**told, **now()}).encode() + b"\n")
    return importlib.import_module(f"chaos.outpost.{WORDS[word]}").main() or 0


if __name__ == "__main__":
    sys.exit(main())
