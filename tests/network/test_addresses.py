"""What a host knows of addresses: its own, those of names, and by which connection we came."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from chaos.outpost import addresses
from chaos.outpost.trouble import Trouble

TELL = "from chaos.outpost import addresses; print(addresses.ssh())"


def told(*before: str, ssh: str) -> str:
    argv = [*before, sys.executable, "-c", TELL]
    environ = {**os.environ, "SSH_CONNECTION": ssh}
    return subprocess.run(argv, capture_output=True, text=True, check=True, env=environ).stdout.strip()


def test_the_connection_by_which_we_came_is_told_by_sshd_or_by_an_ancestor_where_sudo_dropped_it() -> None:
    expected = "{'client': '10.0.0.9', 'port': 2222}"
    assert expected == told(ssh="10.0.0.9 40000 10.0.0.1 2222")
    assert expected == told(ssh="::ffff:10.0.0.9 40000 ::ffff:10.0.0.1 2222")
    forgetful = ["sh", "-c", 'env -u SSH_CONNECTION "$@"; true', "sh"]
    assert expected == told(*forgetful, ssh="10.0.0.9 40000 10.0.0.1 2222")
    assert "{'client': 'fe80::1', 'port': 22}" == told(ssh="fe80::1%eth0 40000 fe80::2%eth0 22")


def test_nonsense_in_its_place_is_no_connection() -> None:
    assert "None" == told(ssh="nobody")


def test_a_host_knows_its_own_addresses() -> None:
    assert "127.0.0.1" in addresses.local()


def test_names_and_addresses_are_resolved_each_address_once() -> None:
    assert ["127.0.0.1"] == addresses.resolve(["127.0.0.1", "::ffff:127.0.0.1"])
    assert ["::1"] == addresses.resolve(["[::1]"])


def test_a_name_that_nobody_knows_is_said() -> None:
    with pytest.raises(Trouble, match=r"does not know the address of no-such-host\.invalid") as unknown:
        addresses.resolve(["no-such-host.invalid"])
    assert "unknown-name" == unknown.value.kind
