"""What a bed's folder holds before its hosts start: plan, keys, configurations, target files."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.lab.catalogue import parse_lab
from testbed import keys, mounts, sshd, target
from testbed.engines import engine_of
from testbed.folder import BIN, HERE, Folder, HostFolder

if TYPE_CHECKING:
    from testbed.plan import Plan


def check(plan: Plan) -> Plan:
    """The plan with what its engine needs.

    Raises:
        UsageError: there is no such lab, build or option.
        LabError: it is not installed.
    """
    parse_lab(plan.lab, plan.options)
    engine = engine_of(plan)
    needs = tuple(str(path) for path in engine.needs())
    return dataclasses.replace(plan, keep=needs, disk_mb=plan.disk_mb or engine.disk_mb, patience_s=engine.patience_s)


def furnish(folder: Folder, plan: Plan) -> None:
    """Everything that the hosts and their users will read."""
    for stale in (folder.path / "hosts", folder.shared):
        shutil.rmtree(stale, ignore_errors=True)
    for stale in (folder.state, folder.barrier, folder.log):
        stale.unlink(missing_ok=True)
    folder.shared.mkdir(parents=True)
    folder.path.chmod(0o700)  # it holds keys
    folder.plan.write_text(plan.to_json())
    known = {host.name: host.address for host in plan.hosts}
    for host in plan.servers:
        own = folder.host(host.name)
        for each in (own.etc, own.logs, own.journal, own.scratch):
            each.mkdir(parents=True)
        shutil.copytree(Path(__file__).parent / BIN.name, own.path / BIN.name)
        stacks = Path(sys.executable).parent / "py-spy"
        if stacks.exists():
            (own.path / BIN.name / stacks.name).symlink_to(stacks)
        mounts.write_etc(own, host.name, known)
        sshd.write_config(own, HostFolder(HERE), host.address, plan.timezones.get(host.name, ""))
    keys.make_all(folder, plan)
    target.write(folder, plan)
