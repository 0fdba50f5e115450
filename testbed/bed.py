"""A bed as tests and the command line use it: started or found, looked at, disturbed, ended."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from testbed import control, keys, look, network
from testbed.errors import BedError
from testbed.folder import REPOSITORY, Folder, HostFolder
from testbed.look import Leftovers
from testbed.mounts import OF_LAPTOP
from testbed.needs import missing, program
from testbed.plan import LAPTOP, TIME_LIMIT_S, Plan, lay_out
from testbed.sshd import HOST_PATH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

_KEPT = (
    "HOME",
    "LANG",
    "LC_ALL",
    "PATH",
    "PDCHAOS_LABS",
    "TMPDIR",
    "XDG_CACHE_HOME",
)  # of our environment: no PDCHAOS_RUN of a test's may mark a host
_END_TIMEOUT_S = 30.0
_POLL_S = 0.02


class Bed:
    """A cluster that is up. A context manager: leaving it ends what `start` has begun."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.plan = Plan.from_json(folder.plan.read_text())
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._temporary: Path | None = None

    # ------------------------------------------------------------------ life

    @classmethod
    def start(
        cls,
        *,
        build: str = "healthy",
        engine: str = "",
        prefill: int = 1,
        decode: int = 1,
        options: Mapping[str, str] | None = None,
        timezones: Mapping[str, str] | None = None,
        folder: Path | None = None,
        time_limit_s: float = TIME_LIMIT_S,
        disk_mb: int = 0,
        alone: bool = False,
    ) -> Self:
        """Start one; every host answers over SSH and every node serves when this returns.

        `build` is one of the embedded lab; `engine` has a real one instead: `sglang@0.5.14`, `dynamo@1.6.1`.
        `options` are the lab's (`pdchaos lab list`), `timezones` POSIX ones by host (`{"decode-0": "IST-5:30"}`).
        Without `folder` a temporary one is made and removed. The bed ends with this process, unless it is `alone`.

        Raises:
            BedError: this machine cannot, or a host did not come up.
            UsageError, LabError: there is no such build or option, or it is not installed.
        """
        if why := missing():
            raise BedError(f"no test bed can be started here: {why}")
        from testbed import furnish  # noqa: PLC0415, it takes half a second, which every `exec` would pay

        plan = Plan(
            lab=engine or f"sim@{build}",
            options=dict(options or {}),
            hosts=lay_out(prefill, decode),
            time_limit_s=time_limit_s,
            disk_mb=disk_mb,
            timezones=dict(timezones or {}),
        )
        temporary = Path(tempfile.mkdtemp(prefix="pdchaos-bed-")) if folder is None else None
        made = Folder((folder or temporary or Path()).absolute())
        if is_up(made):
            raise BedError(f"a bed is up in {made.path} already", hint="end it, or name another folder")
        furnish.furnish(made, furnish.check(plan))
        bed = cls(made)
        bed._temporary = temporary
        try:
            bed._launch(alone=alone)
        except BaseException:
            bed.stop()
            raise
        return bed

    @classmethod
    def attach(cls, folder: Path) -> Self:
        """The bed that is up in a folder; BedError when none is."""
        found = Folder(folder.absolute())
        if not is_up(found) or not found.state.exists():
            raise BedError(f"no bed is up in {folder}", hint="python -m testbed up")
        return cls(found)

    def _launch(self, *, alone: bool) -> None:
        with self.folder.log.open("ab") as log:
            self._supervisor = subprocess.Popen(
                [program("unshare"), "--net", sys.executable, "-m", "testbed.supervisor", str(self.folder.path)]
                + ["--alone"] * alone,
                stdin=subprocess.DEVNULL if alone else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                env={name: os.environ[name] for name in _KEPT if name in os.environ} | {"PYTHONPATH": str(REPOSITORY)},
                start_new_session=True,
            )
        out = self._supervisor.stdout
        line = (
            out.readline()
            if out and select.select([out], [], [], self.plan.ready_timeout_s + _END_TIMEOUT_S)[0]
            else b""
        )
        told = json.loads(line) if line else {"error": "its supervisor said nothing"}
        if "error" in told:
            raise BedError(f"the bed did not come up: {told['error']}", hint=f"see {self.folder.log}")

    def stop(self) -> None:
        """End every process of the bed; idempotent."""
        supervisor = self._supervisor
        if supervisor is not None:
            if supervisor.stdin is not None:
                supervisor.stdin.close()
            supervisor.terminate()
            try:
                supervisor.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                supervisor.kill()
                supervisor.wait()
            if supervisor.stdout is not None:
                supervisor.stdout.close()
        elif is_up(self.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.state["supervisor"], signal.SIGTERM)
            deadline = time.monotonic() + _END_TIMEOUT_S
            while is_up(self.folder):
                if time.monotonic() > deadline:
                    raise BedError(f"the bed in {self.folder.path} does not end")
                time.sleep(_POLL_S)
        self._supervisor = None
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ------------------------------------------------------------------ what there is

    @property
    def state(self) -> dict[str, Any]:
        """Process ids: the supervisor's, and of each host's process 1."""
        found: dict[str, Any] = json.loads(self.folder.state.read_text())
        return found

    @property
    def hosts(self) -> tuple[str, ...]:
        """Their names, without the laptop."""
        return tuple(host.name for host in self.plan.servers)

    def address(self, host: str) -> str:
        """Its address, the only one it has besides loopback."""
        return self.plan.host(host).address

    def host_folder(self, host: str) -> HostFolder:
        """What the host sees as /run/pd, from outside: its node's log, pid file, sshd's log."""
        return self.folder.host(host)

    def target(self, via: str = "tunnel") -> Path:
        """The target file for a way to the engines."""
        return self.folder.target(via)

    def pid(self, host: str) -> int:
        """Of its node, as the host counts; 0 when it is dead."""
        return int(self._ask(host, "node", act="status")["pid"])

    # ------------------------------------------------------------------ commands on hosts

    def command(self, host: str, argv: Sequence[str]) -> list[str]:
        """What runs `argv` on a host; on the laptop in this folder, under the process id that it is started with."""
        pid = self.state["hosts"][self.plan.host(host).name]
        if host == LAPTOP:
            go = ("sh", "-c", 'cd "$0" && exec "$@"', str(Path.cwd()))
            return [program("nsenter"), f"--target={pid}", "--net", "--uts", "--mount", "--", *go, *argv]
        inside = ("--net", "--uts", "--pid", "--mount", "--ipc", "--wd=/")
        return [program("nsenter"), f"--target={pid}", *inside, "--", "env", f"PATH={HOST_PATH}", "HOME=/root", *argv]

    def run_on(
        self, host: str, argv: Sequence[str], *, timeout_s: float = 60.0, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host, not over SSH; CalledProcessError when it fails."""
        return subprocess.run(
            self.command(host, argv),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=check,
            stdin=subprocess.DEVNULL,
        )

    def popen_laptop(self, argv: Sequence[str], **more: Any) -> subprocess.Popen[Any]:
        """Start a command on the laptop; its pid is the command's own."""
        return subprocess.Popen(self.command(LAPTOP, argv), **more)

    def ssh(self, host: str, *words: str) -> list[str]:
        """A command for the laptop: plain `ssh` to a host with the bed's key and known hosts."""
        return [program("ssh"), "-F", str(self.folder.ssh_config), host, *words]

    # ------------------------------------------------------------------ disturbances

    def restart_node(self, host: str) -> None:
        """As `pd-node restart` on the host."""
        self._ask(host, "node", act="restart")

    def sshd_restart(self, host: str, *, sessions: bool = True) -> None:
        """Restart a host's SSH server, by default with the end of all present connections."""
        self._ask(host, "sshd", act="restart", sessions=sessions)

    def sshd_stop(self, host: str) -> None:
        """A hung host: SIGSTOP to sshd and the processes of all its connections. TCP goes on."""
        self._ask(host, "sshd", act="stop")

    def sshd_cont(self, host: str) -> None:
        """The reverse of `sshd_stop`."""
        self._ask(host, "sshd", act="cont")

    def cut(self, *hosts: str) -> None:
        """Drop every packet between the laptop and these hosts, or all; the hosts reach each other."""
        barrier = self._barrier()
        self._set_barrier({**barrier, "cut": sorted({*barrier["cut"], *(hosts or self.hosts)})})

    def mend(self, *hosts: str) -> None:
        """The reverse of `cut`."""
        barrier = self._barrier()
        self._set_barrier({**barrier, "cut": sorted(set(barrier["cut"]) - set(hosts or self.hosts))})

    def only_ssh(self, *, on: bool = True) -> None:
        """Drop what the laptop sends to any port of a host but SSH's: engines are reached through SSH or not at all."""
        self._set_barrier({**self._barrier(), "only_ssh": on})

    def _barrier(self) -> dict[str, Any]:
        file = self.folder.barrier
        return json.loads(file.read_text()) if file.exists() else {"cut": [], "only_ssh": False}

    def _set_barrier(self, barrier: dict[str, Any]) -> None:
        cut = [self.address(host) for host in barrier["cut"]]
        script = network.barrier(self.address(LAPTOP), cut, only_ssh=barrier["only_ssh"])
        switch = f"--net=/proc/{self.state['supervisor']}/ns/net"
        command = [program("nsenter"), switch, program("nft"), "-f", "-"]
        subprocess.run(command, input=script, text=True, check=True, capture_output=True, timeout=_END_TIMEOUT_S)
        self.folder.barrier.write_text(json.dumps(barrier))

    def change_host_key(self, host: str) -> None:
        """Give a host another key; `known_hosts` keeps the old one."""
        keys.make_key(self.host_folder(host).host_key, host)
        self.sshd_restart(host)

    def trust_host_keys(self) -> None:
        """Write the present keys into `known_hosts`."""
        keys.write_known_hosts(self.folder, self.plan)

    def fill_disk(self, host: str) -> None:
        """Fill /tmp, /run, /dev/shm, the homes and /var/log of a host to the last byte (its node's log goes on)."""
        self._ask(host, "fill")

    def empty_disk(self, host: str) -> None:
        """The reverse of `fill_disk`."""
        self._ask(host, "empty")

    def flood_log(self, host: str, mb_per_s: float, seconds: float) -> None:
        """Have the log of a host's node grow by that much, beginning now."""
        self._ask(host, "flood", mb_per_s=mb_per_s, seconds=seconds)

    # ------------------------------------------------------------------ what was left behind

    def leftovers(self) -> dict[str, Leftovers]:
        """What is on the hosts and the laptop that is not the bed's own; empty when all is clean.

        Of the laptop: processes in its network, and files in /run and /dev/shm.
        """
        found = {host: Leftovers(**self._ask(host, "look")) for host in self.hosts}
        found[LAPTOP] = self._on_laptop()
        return {host: left for host, left in found.items() if left}

    def _on_laptop(self) -> Leftovers:
        holder = self.state["hosts"][LAPTOP]
        namespace = Path(f"/proc/{holder}/ns/net").stat().st_ino
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it ended meanwhile
                if (process / "ns" / "net").stat().st_ino == namespace and int(process.name) != holder:
                    words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found.append(f"{process.name} {words}".strip())
        root = Path(f"/proc/{holder}/root")
        there = look.files([root / folder.relative_to("/") for folder in OF_LAPTOP])
        return Leftovers(processes=found, files=sorted(each.removeprefix(str(root)) for each in there))

    def _ask(self, host: str, what: str, **more: object) -> dict[str, Any]:
        self.plan.host(host)
        return control.ask(self.host_folder(host).control, what, **more)


def is_up(folder: Folder) -> bool:
    """Whether a supervisor lives that holds this folder."""
    if not folder.lock.exists():
        return False
    with folder.lock.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
