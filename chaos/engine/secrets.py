"""Secrets come by reference (`env:NAME`, `file:PATH`), looked up at the last moment; no file of ours holds one."""

from __future__ import annotations

import os
from pathlib import Path

from chaos.model.errors import UsageError


def look_up(reference: str | None) -> str | None:
    """The secret behind a reference; None for none. Raises `UsageError` when it is not there."""
    if reference is None:
        return None
    kind, _, name = reference.partition(":")
    if kind == "env":
        value = os.environ.get(name, "")
        if not value:
            raise UsageError(f"api_key: the environment variable {name} is not set", hint=f"export {name}=…")
        return value
    try:
        value = Path(name).expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"api_key: {name} cannot be read: {error}") from None
    if not value:
        raise UsageError(f"api_key: {name} is empty")
    return value
