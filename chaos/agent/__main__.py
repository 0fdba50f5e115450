"""`python -m chaos.agent`: one agent process."""

from __future__ import annotations

import sys

from chaos.agent.main import main

if __name__ == "__main__":
    sys.exit(main())
