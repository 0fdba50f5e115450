"""Restarts nodes, and measures that the old process is gone, that a newer one is there, and that it serves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chaos.engine.faults.guard import STANDING_TTL_S, TTL_MARGIN_S, Guards, NotArmed
from chaos.engine.faults.life import Measured, NodeFault, NotApplied, or_lost, to_its_end
from chaos.engine.faults.processes import are_gone, processes_of
from chaos.engine.hosts import HostLost, HostTrouble
from chaos.engine.probes.http import TRANSPORT_ERRORS, describe
from chaos.engine.probes.locate import NotLocated
from chaos.model.errors import HarnessError, PdchaosError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chaos.engine.faults.kit import FaultKit
    from chaos.engine.faults.processes import Process
    from chaos.engine.hosts import Host
    from chaos.engine.ports import Restarter
    from chaos.model.faults import Restart
    from chaos.model.scenario import Step
    from chaos.model.target import Server, Target

ASK_S = 5.0
POLL_S = 0.1
MARGIN_S = 10.0
"""What a host may take on top of a command's own time."""


def run_command(host: Host, command: str, what: str, timeout_s: float) -> None:
    """Run a shell command of the target's owner on a host to its end. HarnessError when it fails.

    After `timeout_s` it is killed. It runs in a session of its own, so that a server it starts survives our end.
    """
    try:
        told = host.call_now("shell", timeout_s=timeout_s + MARGIN_S, command=command, limit_s=timeout_s)
    except HostTrouble as why:
        raise HarnessError(f"{what} {why.text}") from None
    except HostLost:
        raise HarnessError(f"nobody knows what became of {what}: its host did not answer") from None
    if told["status"]:
        raise HarnessError(f"{what} ended with {told['status']}: {told['said']}")


class CommandRestarter:
    """Restarts nodes by the shell commands that a target file gives; those of variants stand under (node, variant)."""

    def __init__(self, commands: Mapping[tuple[str, str | None], str]) -> None:
        self._commands = dict(commands)

    @classmethod
    def of(cls, target: Target) -> CommandRestarter:
        """The commands of a target."""
        commands: dict[tuple[str, str | None], str] = {}
        for server in target.servers:
            if server.spec.restart:
                commands[server.id, None] = server.spec.restart
            commands |= {(server.id, variant): command for variant, command in server.spec.restart_as.items()}
        return cls(commands)

    def can_restart(self, node: str, variant: str | None = None) -> bool:
        """Whether there is a command for the node."""
        return (node, variant) in self._commands

    def plainly(self, node: str) -> str | None:
        """The node's own command."""
        return self._commands.get((node, None))

    def restart(self, node: str, host: Host, timeout_s: float, variant: str | None = None) -> None:
        """Run the node's command on its host, to its end. Raises HarnessError when it fails."""
        run_command(host, self._commands[node, variant], f"the restart command of {node}", timeout_s)


class RestartFault(NodeFault):
    """Replaces the processes of the chosen nodes, all at once. A restart as a variant is undone by a plain one."""

    def __init__(self, step: Step, kit: FaultKit, *, cycle: int = 1) -> None:
        super().__init__(step, kit, cycle=cycle)
        self._old: dict[str, tuple[Process, ...]] = {}
        self._work: dict[str, asyncio.Task[None]] = {}
        self._ordered_ns = 0
        self._guards = Guards()

    @property
    def restart(self) -> Restart:
        """What the step says."""
        assert self.step.restart is not None  # noqa: S101 - the registry sees to it
        return self.step.restart

    @property
    def ends(self) -> bool:
        """It ends the process that is replaced."""
        return True

    @property
    def reversal(self) -> str:
        """A variant gives way to the node as it was."""
        return "restart" if self.restart.variant else "none"

    @property
    def ttl_s(self) -> float | None:
        """When the node's host restarts a variant as it was, whatever became of us."""
        if self.restart.variant is None:
            return None
        lasts_s = STANDING_TTL_S if self.lasts_s is None else self.lasts_s
        return lasts_s + 2 * self.restart.timeout + TTL_MARGIN_S

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that are replaced."""
        return tuple(process.pid for processes in self._old.values() for process in processes)

    async def apply(self) -> Measured:
        """Note who is there and order the restarts."""
        ordered = await self._order(self.restart.variant)
        self.stands = self.restart.variant is not None
        return ordered

    async def verify(self) -> Measured:
        """Old process gone, a newer one there, its liveness endpoint green: for every node, within the timeout."""
        return await self._checked()

    async def revert(self) -> Measured:
        """Order plain restarts."""
        try:
            return await self._order(None)
        except NotApplied as why:
            return Measured(ok=False, detail=str(why))

    async def verify_reverted(self) -> Measured:
        """As `verify`, of the process that takes the variant's place; then the guards may go."""
        measured = await self._checked()
        if measured.ok:
            await self._guards.dismiss()
        return measured

    async def _order(self, variant: str | None) -> Measured:
        restarter = self.kit.restarter
        if restarter is None:
            raise NotApplied("nobody knows how to restart a node of this target")
        for server in self.chosen:
            try:
                self._old[server.id] = await processes_of(self.kit.hosts.at(server.id), server.spec)
            except NotLocated as why:
                raise NotApplied(f"{server.id}: {why}") from None
        if self.kit.before_restart is not None:
            await self.kit.before_restart(", ".join(self._old))
        if variant is not None:
            try:
                await to_its_end(self._arm(restarter))
            except asyncio.CancelledError:
                await self._guards.dismiss()  # nothing was touched
                raise
        self._ordered_ns = self.kit.clock.now_ns()
        for node in self._old:
            order = asyncio.to_thread(restarter.restart, node, self.kit.hosts.at(node), self.restart.timeout, variant)
            self._work[node] = asyncio.create_task(order)
        return Measured(ok=True, facts={node: f"pid {old[0].pid}" for node, old in self._old.items()})

    async def _arm(self, restarter: Restarter) -> None:
        """A guard for every node that its host can restart without us. Raises NotApplied."""
        commands = {node: command for node in self._old if (command := restarter.plainly(node))}
        undo = [
            (self.kit.hosts.at(node), [{"argv": ["/bin/sh", "-c", command], "limit_s": self.restart.timeout}])
            for node, command in commands.items()
        ]
        try:
            await self._guards.arm(undo, run=self.kit.run_id, fault=self.step.id, ttl_s=self.ttl_s or 0.0)
        except NotArmed as unarmed:
            raise NotApplied(f"{unarmed}, so nothing was restarted") from None

    async def _checked(self) -> Measured:
        try:
            async with asyncio.TaskGroup() as tasks:
                checks = [tasks.create_task(or_lost(self._check(server))) for server in self.chosen]
        finally:
            # A restart that is under way is not left half done, not even by a Ctrl-C; it ends by its own timeout.
            await asyncio.wait(self._work.values())
        done = [check.result() for check in checks]
        facts = {node: text for one in done for node, text in one.facts.items()}
        return Measured(all(one.ok for one in done), facts, "; ".join(one.detail for one in done if one.detail))

    async def _check(self, server: Server) -> Measured:
        node, old = server.id, self._old[server.id]
        work = self._work[node]
        await asyncio.wait([work])
        error = work.exception()
        if isinstance(error, PdchaosError):
            return Measured(ok=False, detail=error.message)
        if error is not None:
            raise error
        host = self.kit.hosts.at(node)
        new: tuple[Process, ...] = ()
        health = "nobody was asked: the pack names no liveness endpoint"
        while True:
            gone = await are_gone(host, [*old, *new[:1]])
            alive = not gone[0]
            new = new if new and not gone[-1] else await _newer(host, server, old[0])
            serves, health = await self._serves(node, health) if new and not alive else (False, health)
            if serves:
                took_s = (self.kit.clock.now_ns() - self._ordered_ns) / 1e9
                text = f"pid {old[0].pid} gone, pid {new[0].pid} started later, {health} after {took_s:.1f} s"
                left = gone[1 : len(old)].count(False)
                text += f"; {left} of its old children still run" if left else ""
                return Measured(ok=True, facts={node: text})
            if (self.kit.clock.now_ns() - self._ordered_ns) / 1e9 > self.restart.timeout:
                break
            await self.kit.clock.sleep(POLL_S)
        if alive:
            why = f"{node}: the old process {old[0].pid} still runs"
        elif not new:
            why = f"{node}: no process took the place of {old[0].pid}"
        else:
            why = f"{node}: the new process {new[0].pid} does not serve ({health})"
        return Measured(ok=False, detail=f"{why} {self.restart.timeout:g} s after the order")

    async def _serves(self, node: str, silent: str) -> tuple[bool, str]:
        source = self.kit.health.get(node)
        if source is None or not source.endpoints or self.kit.http is None:
            return True, silent
        endpoint = source.endpoints[0]
        try:
            async with asyncio.timeout(ASK_S):
                response = await self.kit.http.get(source.base_url + endpoint)
        except TimeoutError:
            return False, f"{endpoint} does not answer"
        except TRANSPORT_ERRORS as error:
            return False, f"{endpoint}: {describe(error)[0]}"
        return response.is_success, f"{endpoint} answers {response.status_code}"


async def _newer(host: Host, server: Server, old: Process) -> tuple[Process, ...]:
    """The processes of the node when they are newer than the old one."""
    try:
        found = await processes_of(host, server.spec)
    except NotLocated:
        return ()
    return found if found[0].pid != old.pid and found[0].start_ticks >= old.start_ticks else ()
