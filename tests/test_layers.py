"""Imports go down only. ARCHITECTURE.md has the order; this test walks every import statement."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "chaos"

MAY_IMPORT = {
    "model": {"model"},
    "journal": {"journal", "model"},
    "judge": {"judge", "model"},
    "library": {"library", "model"},
    "engine": {"engine", "agent", "judge", "journal", "library", "model", "outpost"},
    "outpost": {"outpost"},
    "autopsy": {"autopsy", "engine", "library", "model", "outpost"},
    "render": {"render", "model"},
    "campaign": {"campaign", "judge", "journal", "model"},
    "lab": {"lab", "model"},
    "agent": {"agent"},
    "faults": {"engine", "library", "model"},
    "launch": {"launch", "engine", "judge", "journal", "lab", "library", "model", "render"},
    "cli": {"cli", "autopsy", "campaign", "engine", "journal", "lab", "launch", "library", "model", "render"},
    "pytest_plugin": {"pytest_plugin", "campaign", "engine", "launch", "library", "model", "render"},
    "__main__": {"cli"},
    "__init__": set(),
}
"""What each part may import. The version in `chaos` itself is free for all but `agent`, `outpost` and `lab.sim`."""

STANDALONE = ("agent", "outpost")
"""They travel without the rest of us."""
PURE = ("model", "judge")
EFFECTS = {"asyncio", "httpx", "aiohttp", "os", "socket", "subprocess", "threading", "time", "zmq", "psutil", "random"}
"""Modules whose import in a pure layer would mean a clock, the outside world or chance."""


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    package = ("chaos", *path.relative_to(ROOT).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, (base, node.module or "")))
            # `from chaos import library` names a part, `from chaos import __version__` does not
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
    return found


def breaches(path: Path) -> list[str]:
    part = part_of(path)
    sim = path.relative_to(ROOT).parts[:2] == ("lab", "sim")
    found = []
    for line, name in imports(path):
        top, _, rest = name.partition(".")
        if top == "chaos":
            imported = rest.split(".")[0]
            if imported == "__version__" and part not in STANDALONE and not sim:
                continue
            allowed = {"lab"} if sim else MAY_IMPORT[part]
            if imported not in allowed or (sim and not rest.startswith("lab.sim")):
                found.append(f"{path}:{line}: {part} imports {name}")
        elif part in PURE and top in EFFECTS:
            found.append(f"{path}:{line}: {part} is pure and imports {name}")
    return found


SOURCES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_lies_below_it(path: Path) -> None:
    assert [] == breaches(path)


def test_every_part_has_its_place_in_the_order() -> None:
    assert set(MAY_IMPORT) == {part_of(path) for path in SOURCES}


def test_a_breach_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_layers.ROOT", tmp_path)
    (tmp_path / "judge").mkdir()
    bad = tmp_path / "judge" / "rules.py"
    bad.write_text("import time\nfrom chaos.engine import run\nfrom chaos import lab\n")
    assert [1, 2, 3] == [int(breach.split(":")[1]) for breach in breaches(bad)]


def test_the_engine_asks_hosts_about_processes_and_looks_at_none_itself() -> None:
    """What it looked at itself would be looked at in another way over SSH, or not at all."""
    assert [] == [
        f"{path}:{line}"
        for path in (ROOT / "engine").rglob("*.py")
        for line, name in imports(path)
        if name.partition(".")[0] == "psutil"
    ]


def test_pytest_is_imported_only_by_what_pytest_loads() -> None:
    assert {"pytest_plugin"} == {
        part_of(path)
        for path in SOURCES
        for _, name in imports(path)
        if name.partition(".")[0] in ("pytest", "_pytest")
    }


def test_no_engine_is_named_in_the_judge() -> None:
    names = ("sglang", "nixl", "mooncake", "vllm", "dynamo", "bootstrap", "sim@")
    found = [
        f"{path.name}: {name}"
        for path in (ROOT / "judge").rglob("*.py")
        for name in names
        if name in path.read_text().lower()
    ]
    assert [] == found
