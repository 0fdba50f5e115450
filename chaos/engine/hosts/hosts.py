"""Which host each server of a target is on, and reaching all of them."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from chaos.engine.hosts.connect import Ways
from chaos.engine.hosts.failures import joined
from chaos.engine.hosts.here import Here
from chaos.engine.hosts.place import demand_files, resolve
from chaos.engine.hosts.relays import Relays
from chaos.engine.hosts.remote import Remote
from chaos.model.errors import Unfit, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from chaos.engine.hosts.host import Host
    from chaos.engine.hosts.place import Place
    from chaos.model.target import Ssh, Target

OPENING_S = 90.0
"""No step of connecting takes so long; should a name server or an agent hang, it ends here."""
CLOSING_S = 4.0
LOAD = "load"
_LOOK_S = 0.1


class Hosts:
    """The hosts of a target: one object, and one connection, for each place."""

    def __init__(self, by_server: Mapping[str, Host], load: Host, ways: Ways | None = None) -> None:
        self._by_server = dict(by_server)
        self._ways = ways
        self.load = load
        """Where agents run."""
        self.relays = Relays()
        """How requests reach the servers; directly until `relay` was called."""

    @classmethod
    def here(cls, target: Target) -> Hosts:
        """Everything on this machine."""
        host = Here()
        return cls({server.id: host for server in target.servers}, host)

    @classmethod
    def open(cls, target: Target, progress: Callable[[str], None], *, run: str = "") -> Hosts:
        """Reach every host of a target, all at once; `run` marks what is started there.

        Raises one UserError that names every host that could not be reached, why, and what to do.
        """
        hosts, failures = cls.reach(target, progress, run=run)
        if failures:
            hosts.close()
            raise joined(failures)
        return hosts

    @classmethod
    def reach(
        cls, target: Target, progress: Callable[[str], None], *, run: str = ""
    ) -> tuple[Hosts, dict[str, UserError]]:
        """Reach what can be reached: the hosts, and by server (`load` for where agents run) why its host cannot be."""
        here, ways = Here(), Ways()
        remotes: dict[Place, Remote] = {}
        failures: dict[str, UserError] = {}

        def at(name: str, ssh: Ssh | None) -> Host | None:
            if ssh is None:
                return here
            try:
                demand_files(ssh)
                place = resolve(ssh)
            except UserError as error:
                failures[name] = error
                return None
            return remotes.setdefault(place, Remote(place, ways, run=run, progress=progress))

        wanted = {server.id: at(server.id, target.ssh_of(server.spec)) for server in target.servers}
        load = at(LOAD, _load_ssh(target))
        opening = _Opening(list(remotes.values()), progress)
        try:
            opening.run()
        except BaseException:
            cls({server: host for server, host in wanted.items() if host}, load or here, ways).close()
            raise
        for name, host in (*wanted.items(), (LOAD, load)):
            if isinstance(host, Remote) and (error := opening.failures.get(host)):
                failures[name] = error
        by_server = {server: host for server, host in wanted.items() if host and server not in failures}
        return cls(by_server, load if load and LOAD not in failures else here, ways), failures

    def relay(self, target: Target, *, run: str) -> None:
        """Have requests go as the target's `via` says. Raises Unfit."""
        self.relays = Relays.open(target, self, run=run)

    def at(self, server: str) -> Host:
        """The host of a server, by its id."""
        return self._by_server[server]

    @property
    def all(self) -> tuple[Host, ...]:
        """Every host once."""
        return tuple({id(host): host for host in (*self._by_server.values(), self.load)}.values())

    def servers_at(self, host: Host) -> tuple[str, ...]:
        """The ids of the servers on a host."""
        return tuple(server for server, at in self._by_server.items() if at is host)

    def close(self) -> None:
        """Let go of all of them, at once; a few seconds at most."""
        self.relays.close()
        closing = [threading.Thread(target=host.close, name="ssh-close", daemon=True) for host in self.all]
        for thread in closing:
            thread.start()
        _join(closing, CLOSING_S)
        if self._ways is not None:
            self._ways.close()
        _join(closing, CLOSING_S / 4)  # what was held up by a jump host is free now


def _load_ssh(target: Target) -> Ssh | None:
    """How the host is reached where agents run."""
    if target.via != "remote":
        return None
    if target.agents is None:
        return target.ssh_of(target.router)
    return target.agents.ssh.over(target.ssh)


class _Opening:
    """Reaches hosts, each in a thread of its own."""

    def __init__(self, remotes: Sequence[Remote], progress: Callable[[str], None]) -> None:
        self._remotes = remotes
        self._progress = progress
        self.failures: dict[Remote, UserError] = {}

    def run(self) -> None:
        """Return when each is reached or given up."""
        threads = {
            remote: threading.Thread(target=self._reach, args=(remote,), name="ssh-open", daemon=True)
            for remote in self._remotes
        }
        if threads:
            self._progress(f"reaching {', '.join(dict.fromkeys(remote.label for remote in self._remotes))}")
        try:
            for thread in threads.values():
                thread.start()
            _join(list(threads.values()), OPENING_S)
        finally:
            for remote, thread in threads.items():
                if thread.is_alive():
                    remote.give_up()
                    late = Unfit(f"{remote.label}: connecting did not end within {OPENING_S:g} s")
                    self.failures.setdefault(remote, late)

    def _reach(self, remote: Remote) -> None:
        try:
            remote.open()
        except UserError as error:
            self.failures.setdefault(remote, error)
        except Exception as error:  # noqa: BLE001 - told as one line like every other failure
            self.failures.setdefault(remote, Unfit(f"{remote.label}: {error or type(error).__name__}"))
        else:
            doubt_ms = remote.clock.uncertainty_ns / 1e6
            self._progress(f"reached {remote.label} (Python {remote.hello['python']}, clock ±{doubt_ms:.1f} ms)")


def _join(threads: Sequence[threading.Thread], timeout_s: float) -> None:
    """Wait for threads, in short pieces: a Ctrl-C gets through between them."""
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        while thread.is_alive() and time.monotonic() < deadline:
            thread.join(_LOOK_S)
