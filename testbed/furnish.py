"""What a bed's folder holds before its hosts start: plan, keys, configurations, target files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import keys, mounts, sshd, target
from testbed.folder import BIN, HERE, Folder, HostFolder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from testbed.plan import Plan


def check(build: str, options: Mapping[str, str]) -> None:
    """UsageError when there is no such build or option."""
    target.parse(build, options)


def furnish(folder: Folder, plan: Plan) -> None:
    """Everything that the hosts and their users will read."""
    shutil.rmtree(folder.path / "hosts", ignore_errors=True)
    for stale in (folder.state, folder.barrier):
        stale.unlink(missing_ok=True)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.path.chmod(0o700)  # it holds keys
    folder.plan.write_text(plan.to_json())
    known = {host.name: host.address for host in plan.hosts}
    for host in plan.servers:
        own = folder.host(host.name)
        for each in (own.etc, own.logs, own.journal):
            each.mkdir(parents=True)
        shutil.copytree(Path(__file__).parent / BIN.name, own.path / BIN.name)
        mounts.write_etc(own, host.name, known)
        sshd.write_config(own, HostFolder(HERE), host.address, plan.timezones.get(host.name, ""))
    keys.make_all(folder, plan)
    target.write(folder, plan)
