"""Test beds: namespaces, a real sshd on every host, the embedded lab inside; the laptop reaches nothing but SSH."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from laptops import Laptop

from testbed.bed import Bed
from testbed.needs import missing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def healthy_bed() -> Iterator[Bed]:
    if why := missing():
        pytest.skip(f"no test bed here: {why}")
    with Bed.start() as bed:
        bed.only_ssh()
        yield bed


@pytest.fixture(scope="module")
def broken_bed() -> Iterator[Bed]:
    if why := missing():
        pytest.skip(f"no test bed here: {why}")
    with Bed.start(build="nixl-abort-unhandled") as bed:
        bed.only_ssh()
        yield bed


@pytest.fixture
def laptop(healthy_bed: Bed, tmp_path: Path) -> Iterator[Laptop]:
    """On a bed that is as it should be, and is put right again afterwards."""
    yield Laptop(healthy_bed, tmp_path / "reports")
    healthy_bed.mend()
    for host in healthy_bed.hosts:
        healthy_bed.sshd_cont(host)
        healthy_bed.empty_disk(host)
