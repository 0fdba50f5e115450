"""The `pdchaos` command. No rule lives here: commands fetch, hand over, and show.

Every command imports what it needs when it runs, so that `pdchaos --help` answers at once.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the console script."""
    from chaos.cli.boundary import guarded  # noqa: PLC0415

    sys.exit(guarded())


if __name__ == "__main__":
    main()
