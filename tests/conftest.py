"""What holds for all tests: none leaves a process behind, and none depends on who started them."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 10.0

since: dict[psutil.Process, str] = {}
"""Our children and the test after which each was there first: of most, a fixture of several tests takes care."""


def pytest_configure() -> None:
    """A shell that starts us in the background has SIGINT ignored, and so would every process of ours."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def children() -> list[psutil.Process]:
    """Our children, ended ones that nobody waited for among them."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return []  # as after most tests, and found out without a look at every process of the machine
    return psutil.Process().children()


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Note whose children there are."""
    for child in children():
        since.setdefault(child, nodeid)


@pytest.fixture(scope="session", autouse=True)
def nobody_is_left() -> Iterator[None]:
    """Every child has ended and been waited for when all tests and all other fixtures are over."""
    yield
    until = time.monotonic() + PATIENCE_S
    while (left := children()) and time.monotonic() < until:
        time.sleep(0.05)  # a thread may be about to wait for one
    if left:
        pytest.fail("\n".join(f"{child}, there since {since.get(child, 'the last test')}" for child in left))
