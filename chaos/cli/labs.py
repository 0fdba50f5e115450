"""`pdchaos lab`: labs that stay up between runs."""

from __future__ import annotations
