"""`python -m chaos` is `pdchaos`."""

from chaos.cli import main

main()
