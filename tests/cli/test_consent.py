"""A production deployment is broken by nobody who did not say so twice."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TARGET = """\
version: 1
name: prod
environment: production
router: {url: "http://127.0.0.1:9"}
prefill: [{url: "http://127.0.0.1:1"}]
decode: [{url: "http://127.0.0.1:2"}]
allow: [kill]
"""


def run(folder: Path, *words: str, typed: str | None = None) -> subprocess.CompletedProcess[str]:
    """`pdchaos run` of a production target where nobody listens; `typed` makes stdin a terminal."""
    (folder / "target.yaml").write_text(TARGET)
    command = [sys.executable, "-m", "chaos", "run", "abort-cascade", "--target", "target.yaml", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1"}
    ours, theirs = pty.openpty()
    os.write(ours, (typed or "").encode())
    try:
        return subprocess.run(
            command,
            check=False,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL if typed is None else theirs,
            capture_output=True,
            text=True,
            timeout=200,
        )
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    ("words", "typed", "says"),
    [
        ((), None, "prod is a production deployment\n  hint: to break it all the same: --production"),
        (("--confirm", "prod"), None, "prod is a production deployment\n"),
        (("--production",), None, "hint: --confirm prod"),
        (("--production", "--confirm", "prd"), None, "'prd' is not the name of this production deployment"),
        (("--production",), "yes\n", "'yes' is not the name of this production deployment"),
        (("--production",), "\x04", "'' is not the name of this production deployment"),
    ],
)
def test_without_flag_and_name_nothing_is_touched(
    words: tuple[str, ...], typed: str | None, says: str, tmp_path: Path
) -> None:
    said = run(tmp_path, *words, typed=typed)
    assert (5, True) == (said.returncode, says in said.stderr), said.stderr
    assert not (tmp_path / "reports").exists() or [] == list((tmp_path / "reports").iterdir())


@pytest.mark.parametrize(("words", "typed"), [(("--confirm", "prod"), None), ((), "prod\n")])
def test_with_both_the_run_begins(words: tuple[str, ...], typed: str | None, tmp_path: Path) -> None:
    said = run(tmp_path, "--production", *words, typed=typed)
    assert (6, True) == (said.returncode, "does not answer" in said.stderr), said.stderr
    assert ("PRODUCTION" in said.stderr) == (typed is not None)
