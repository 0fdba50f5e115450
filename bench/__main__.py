"""Runs every benchmark, or those named: `python -m bench scrape scan`."""

from __future__ import annotations

import importlib
import sys

ALL = ("scrape", "scan", "wave")

for name in sys.argv[1:] or ALL:
    print(f"== {name}")
    importlib.import_module(f"bench.{name}").main()
