"""Engine versions in order: `0.5.9` < `0.5.12` < `0.5.12.post1` < `0.5.13`."""

from __future__ import annotations

import re

VERSION_PATTERN = r"^(?:v?[0-9]+(?:\.[0-9]+)*(?:[.-]?(?:post|rc|dev|a|b)[0-9]*)?(?:\+[0-9A-Za-z.]+)?)?$"

_STAGE = {"dev": -4, "a": -3, "b": -2, "rc": -1, "": 0, "post": 1}


def version_key(text: str) -> tuple[tuple[int, ...], int, int] | None:
    """A key that sorts versions; None for what is no version (unknown)."""
    match = re.match(r"v?([0-9]{1,9}(?:\.[0-9]{1,9})*)(?:[.-]?(post|rc|dev|a|b)([0-9]{0,9}))?", text)
    if match is None:
        return None
    numbers = [int(part) for part in match[1].split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), _STAGE[match[2] or ""], int(match[3] or 0)


def in_range(version: str, *, since: str = "", until: str = "") -> bool:
    """Whether `version` lies in the range, both ends included and empty meaning open; True when it is unknown."""
    key, low, high = version_key(version), version_key(since), version_key(until)
    if key is None:
        return True
    return (low is None or low <= key) and (high is None or key <= high)
