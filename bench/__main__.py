"""Runs every benchmark, or those named: `python -m bench scrape scan`.

`python -m bench accuracy` measures the judge; it takes hours and options of its own (`--help`), so it is never one of
"every"; nor is `python -m bench kills`, which kills pdchaos itself (root, an SSH server, tens of minutes).
"""

from __future__ import annotations

import importlib
import sys

ALL = ("scrape", "scan", "wave")

if sys.argv[1:2] == ["accuracy"]:
    from bench.judge_accuracy import main

    sys.exit(main(sys.argv[2:]))

if sys.argv[1:2] == ["kills"]:
    from bench.kill_the_harness import main

    sys.exit(main(sys.argv[2:]))

for name in sys.argv[1:] or ALL:
    print(f"== {name}")
    importlib.import_module(f"bench.{name}").main()
