"""docs/target.md tells of every key, and its example is a target file."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos import library
from chaos.model.loading import parse_target
from chaos.model.target import LogFrom, ServerSpec, Ssh, Target

TEXT = (Path(__file__).parents[2] / "docs" / "target.md").read_text()


def test_the_example_is_a_valid_target() -> None:
    example = TEXT.split("```yaml\n", 1)[1].split("```", 1)[0]
    target = parse_target(example, "docs/target.md", known=library.known())
    assert ("tunnel", 3) == (target.via, len(target.servers))
    assert all(target.ssh_of(server.spec) for server in target.servers)


@pytest.mark.parametrize("section", [Target, ServerSpec, Ssh], ids=lambda section: section.__name__)
def test_every_key_is_told_of(section: type) -> None:
    told = {
        word for line in TEXT.splitlines() if line.startswith("| `") for word in line.split("|")[1].split("`")[1::2]
    }
    assert set(section.model_fields) - {"version", "about"} <= told


def test_every_kind_of_log_source_is_told_of() -> None:
    assert [] == [kind for kind in LogFrom.model_fields if kind != "file" and f"{{{kind}: " not in TEXT]
