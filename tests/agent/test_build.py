"""The agent as one file: the same bytes every time, on every Python that hosts have, with nothing of ours around it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import scripted
from scripted import Server, stream_response

OLDEST = (3, 9)
NEWEST = (3, 15)


def _interpreters() -> dict[str, str]:
    """A working interpreter of each minor version that this machine has, from PATH and pyenv."""
    names = [f"python3.{minor}" for minor in range(OLDEST[1], NEWEST[1])]
    found = [path for name in names if (path := shutil.which(name))]
    found += [str(path) for name in names for path in sorted(Path.home().glob(f".pyenv/versions/*/bin/{name}"))]
    working: dict[str, str] = {}
    for path in [*found, sys.executable]:
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        asked = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
        if asked.returncode == 0:
            working.setdefault(asked.stdout.strip(), path)
    return working


PYTHONS = _interpreters()


def test_the_same_sources_give_the_same_bytes(tmp_path: Path, pyz: Path) -> None:
    again = tmp_path / "again.pyz"
    code = f"import pathlib, chaos.engine.pyz as b; b.build_pyz(pathlib.Path({str(again)!r}))"
    # Another process orders its sets differently.
    subprocess.run([sys.executable, "-c", code], check=True, cwd=scripted.ROOT, env={"PYTHONHASHSEED": "7"})
    assert pyz.read_bytes() == again.read_bytes()
    assert ["again.pyz"] == [file.name for file in tmp_path.iterdir()]


def test_the_file_holds_the_agent_the_outpost_and_h11_and_nothing_else_of_ours(pyz: Path) -> None:
    names = zipfile.ZipFile(pyz).namelist()
    wanted = {"__main__.py", "chaos/__init__.py", "chaos/agent/main.py", "chaos/outpost/serve.py", "h11/__init__.py"}
    assert wanted <= set(names)
    ours = ("chaos/agent/", "chaos/outpost/", "h11/")
    assert [] == [name for name in names if not name.startswith(ours) and "__" not in name]
    assert any("LICENSE" in name for name in names)


@pytest.mark.parametrize("version", sorted(PYTHONS, key=lambda version: int(version.split(".")[1])))
async def test_the_file_runs_alone_under_every_python_from_3_9(version: str, pyz: Path, tmp_path: Path) -> None:
    config = {"group": "g", "api": "chat", "phase_file": str(tmp_path / "p"), "sessions": 2, "rounds": 2}
    async with Server(scripted.always(stream_response(scripted.chat_events(3)))) as server:
        # -S: no site-packages; -W error: nothing deprecated either.
        command = [PYTHONS[version], "-S", "-W", "error", str(pyz)]
        async with scripted.Process(command, {**config, "base_url": server.url}) as agent:
            assert 0 == await agent.ended()
    hello = agent.events[0]
    assert version == ".".join(hello["py"].split(".")[:2])
    assert ("h11", "json", "asyncio") == (hello["parser"], hello["json"], hello["loop"])
    assert [("", 3)] * 4 == [(end["error"], end["tokens"]) for end in agent.of("end")]
    assert "" == agent.stderr


@pytest.mark.parametrize("version", sorted(PYTHONS, key=lambda version: int(version.split(".")[1])))
async def test_a_wave_works_under_every_python_from_3_9(version: str, pyz: Path, tmp_path: Path) -> None:
    from test_process import Gate

    config = {"group": "g", "api": "chat", "phase_file": str(tmp_path / "p"), "sessions": 3}
    async with Server(Gate()) as server:
        command = [PYTHONS[version], "-S", str(pyz)]
        async with scripted.Process(command, {**config, "base_url": server.url}) as agent:
            await server.until(lambda: len(server.connections) == 3)
            await agent.say({"cmd": "wave", "id": "w", "how": "rst", "sessions": "all"})
            assert 0 == await agent.ended()
        await server.until(lambda: all(connection.end == "reset" for connection in server.connections))
    assert (3, 0) == (agent.of("wave")[0]["rst"], agent.of("wave")[0]["fin"])


def test_the_command_line_module_is_the_same_agent(tmp_path: Path) -> None:
    done = subprocess.run(scripted.SOURCE, input=b"{}\n", capture_output=True, cwd=scripted.ROOT, check=False)
    assert 2 == done.returncode
    assert b"group: wanted a string" in done.stderr
