"""The command line without a deployment: help, files, recorded runs; a user's mistake never shows a traceback."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from chaos.cli.app import app
from chaos.lab.catalogue import catalogue

ROOT = Path(__file__).parents[2]
JOURNALS = ROOT / "tests" / "judge" / "journals"


def pdchaos(
    *words: str, cwd: Path | None = None, code: str = "", columns: int = 100
) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-c", code] if code else [sys.executable, "-m", "chaos"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(columns), "NO_COLOR": "1"}
    return subprocess.run([*start, *words], capture_output=True, text=True, check=False, cwd=cwd, env=env, timeout=60)


def test_help_answers_without_importing_what_only_runs_need() -> None:
    probe = (
        "import sys\nfrom chaos.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('LOADED', sorted({'asyncio', 'pydantic', 'httpx', 'plotly'} & set(sys.modules)))"
    )
    said = pdchaos("--help", code=probe)
    assert "LOADED []" in said.stdout, said.stdout + said.stderr
    for command in (
        "run", "judge", "autopsy", "plan", "check", "schema", "scenarios", "init", "doctor", "sweep", "demo", "lab",
    ):  # fmt: skip
        assert f" {command} " in said.stdout


def every_command(command=None, words: tuple[str, ...] = ()):
    command = command or typer.main.get_command(app)
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from every_command(inner, (*words, name))


def test_every_option_and_argument_is_explained() -> None:
    mute = [(words, each.name) for words, command in every_command() for each in command.params if not each.help]
    assert [] == mute


def test_the_examples_of_every_help_text_are_lines_that_can_be_typed() -> None:
    known = dict(every_command())
    examples = [line for command in known.values() for line in re.findall("`(pdchaos [^`]+)`", command.epilog or "")]
    assert 15 < len(examples)
    for example in examples:
        words = shlex.split(example.split(" > ")[0])[1:]
        names = max((name for name in known if name == tuple(words[: len(name)])), key=len)
        known[names].make_context(" ".join(names), words[len(names) :])  # raises what a mistake would print


def test_help_is_filled_to_the_width_of_the_terminal() -> None:
    said = pdchaos("run", "--help", columns=80).stdout
    assert "Everything is recorded in a run folder that pdchaos judge can judge" in said


def test_check_reports_every_problem_of_every_file_with_its_place(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("version: 1\nname: good\nload: [{name: agents}]\n")
    bad.write_text("version: 1\nname: bad\nload: [{name: agents, sesions: 3, timeout: 20}]\n")
    said = pdchaos("check", str(good), str(bad))
    assert 2 == said.returncode
    assert f"{good}: a valid scenario" in said.stdout
    assert f"{bad}:3:23: unknown key `sesions` (did you mean sessions?)" in said.stderr
    assert "(write 20s)" in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (("run", "abort-cascad"), 2, "abort-cascade"),
        (("run", "abort-cascade", "-t", "lab:simm"), 2, "sim"),
        (("run", "abort-cascade", "-t", "lab:sim@nixl"), 2, "healthy"),
        (("run", "abort-cascade", "-t", "nowhere.yaml"), 2, "cannot be read"),
        (("run", "abort-cascade", "-t", "lab:sim", "--set", "prefil=2"), 2, "prefill"),
        (("run", "abort-cascade", "-t", "lab:sim", "--with", "expect.recover_within=10"), 2, "write 10s"),
        (("judge", "nowhere"), 2, "no run folder"),
        (("schema", "scenarios"), 2, "scenario, target, pack"),
        (("bogus",), 2, "No such command"),
    ],
)
def test_a_mistake_is_answered_with_a_hint_and_its_exit_code(
    words: tuple[str, ...], code: int, hint: str, tmp_path: Path
) -> None:
    said = pdchaos(*words, cwd=tmp_path)
    assert (code, True) == (said.returncode, hint in said.stderr), said.stderr
    assert "Traceback" not in said.stderr
    assert [] == list(tmp_path.iterdir())


def test_what_a_lab_is_known_to_lack_is_refused_before_anything_of_it_is_started(tmp_path: Path) -> None:
    said = pdchaos("run", "kill-one-of-two", "-t", "lab:sim", cwd=tmp_path)
    refusal, hint = said.stderr.splitlines()  # and no line about something that starts
    assert [] == list(tmp_path.iterdir())
    assert (5, True) == (said.returncode, "(a lab: --set decode=2)" in refusal), said.stderr
    assert hint.endswith("hint: the scenario's `requires` names what it needs")


@pytest.mark.parametrize(
    ("scenario", "changes", "code", "refusal"),
    [
        ("kill-one-of-two", {"allow": ["kill", "signal"]}, 5, "it takes 2 decode nodes, and the target has 1"),
        ("freeze-worker", {}, 5, "t does not allow: signal"),
        ("freeze-worker", {"allow": ["kill", "signal"]}, 5, "the process of decode-0 cannot be found"),
        ("abort-cascade", {"environment": "production"}, 5, "t is a production deployment"),
        ("abort-cascade", {"api_key": "env:PDCHAOS_IS_NOT_SET"}, 2, "PDCHAOS_IS_NOT_SET"),
    ],
)
def test_what_the_files_alone_show_is_refused_before_any_host_is_asked_and_leaves_nothing(
    scenario: str, changes: dict[str, object], code: int, refusal: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sshd:
        sshd.setblocking(False)
        router, prefill, decode = ({"url": f"http://127.0.0.1:{port}"} for port in (1, 2, 3))
        told = {"version": 1, "name": "t", "environment": "staging", "allow": ["kill"]}
        told |= {"ssh": {"host": "127.0.0.1", "port": sshd.getsockname()[1]}}
        told |= {"router": router, "prefill": [prefill], "decode": [decode], **changes}
        (tmp_path / "target.yaml").write_text(json.dumps(told))
        said = pdchaos("run", scenario, "-t", "target.yaml", "--reports", "deep/reports", cwd=tmp_path)
        assert (code, True) == (said.returncode, refusal in said.stderr), said.stderr
        with pytest.raises(BlockingIOError):  # nobody knocked
            sshd.accept()
    assert ["target.yaml"] == [path.name for path in tmp_path.iterdir()]


def test_check_holds_a_scenario_against_the_target_beside_it(tmp_path: Path) -> None:
    target, scenario = tmp_path / "target.yaml", tmp_path / "stop.yaml"
    servers = "router: {url: http://h:1}\nprefill: [{url: http://h:2}]\ndecode: [{url: http://h:3}]\n"
    target.write_text(f"version: 1\nname: t\nenvironment: staging\nallow: [kill]\nengine: dynamo\n{servers}")
    scenario.write_text(
        "version: 1\nname: stop\nload: [{name: agents}]\n"
        "timeline:\n  - {id: stop, kill: {group: agents, how: abort-api}, at: 1s}\n"
    )
    assert 0 == pdchaos("check", str(scenario)).returncode
    said = pdchaos("check", str(scenario), str(target))
    assert 2 == said.returncode
    assert f"{scenario}:5:43: nothing says how to have a request aborted" in said.stderr


def test_init_writes_files_that_check_accepts_and_overwrites_nothing(tmp_path: Path) -> None:
    assert 0 == pdchaos("init", "here", cwd=tmp_path).returncode
    files = sorted(str(path) for path in (tmp_path / "here").iterdir())
    assert 0 == pdchaos("check", *files).returncode
    again = pdchaos("init", "here", cwd=tmp_path)
    assert (2, True) == (again.returncode, "exists already; nothing was written" in again.stderr)


def test_plan_shows_every_duration_on_the_labs_clock() -> None:
    said = pdchaos("plan", "abort-cascade", "-t", "lab:sim", "--set", "time_scale=0.05")
    assert 0 == said.returncode
    assert "its engine's clocks x 0.05" in said.stdout
    assert "recovery within 3 s; allowed: healthy" in said.stdout


def test_the_builds_can_be_read_and_their_names_copied_from_a_narrow_terminal() -> None:
    said = pdchaos("lab", "list", columns=60).stdout
    filled = " ".join(said.split())
    for build in (build for lab in catalogue() for build in lab.builds):
        assert f"\n{build.name} " in said
        assert f"{build.name} engine {build.version}" in filled
        assert " ".join(build.about.split()) in filled


@pytest.mark.parametrize("kind", ["scenario", "target", "pack", "observations"])
def test_a_schema_is_json(kind: str) -> None:
    assert f"pdchaos {kind}" == json.loads(pdchaos("schema", kind).stdout)["title"]


def test_a_recorded_run_is_judged_again_to_the_same_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "journal.jsonl").write_bytes((JOURNALS / "wedged-by-abort.jsonl").read_bytes())
    first, second = pdchaos("judge", str(folder), "--json"), pdchaos("judge", str(folder / "journal.jsonl"), "--json")
    assert (1, first.stdout) == (second.returncode, second.stdout)
    assert "wedged" == json.loads(first.stdout)["outcome"]
    shown = pdchaos("judge", str(folder), "--write")
    assert (1, True) == (shown.returncode, "WEDGED" in shown.stdout)
    assert {"verdict.json", "report.html", "junit.xml", "summary.md"} <= {path.name for path in folder.iterdir()}


def test_nobody_reading_the_output_changes_no_exit_code(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "journal.jsonl").write_bytes((JOURNALS / "wedged-by-abort.jsonl").read_bytes())
    for words in ("--json", "--write"):
        shell = f"{sys.executable} -m chaos judge {folder} {words} | true; exit ${{PIPESTATUS[0]}}"
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        said = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False, env=env, timeout=60)
        assert (1, "") == (said.returncode, said.stderr)
