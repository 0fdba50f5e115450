"""Finds scenarios and packs by name or path, in a wheel or beside an editable install, and reads our YAML files.

A name (`abort-cascade`) is looked up in the library, anything with a `/` or ending in `.yaml` is a path.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from chaos.model.errors import HarnessError, UserError
from chaos.model.known import Known
from chaos.model.loading import parse_pack, parse_scenario, parse_target, parse_variants
from chaos.model.tree import child, did_you_mean, override
from chaos.model.yamlpos import parse_yaml
from chaos.model.yamltext import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chaos.model.pack import Pack
    from chaos.model.scenario import Scenario
    from chaos.model.target import ServerSpec, Ssh, Target
    from chaos.model.yamlpos import Node

Folder = Literal["scenarios", "probes", "templates"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """A file's content with what it was read from; `text` is as on disk, for the run folder."""

    value: T
    path: Path
    text: bytes

    @property
    def sha256(self) -> str:
        """Of the file as it was read."""
        return hashlib.sha256(self.text).hexdigest()


def folder(kind: Folder) -> Path:
    """Where the library's files are: inside the package (wheel) or beside it (editable install)."""
    package = resources.files("chaos")
    if not isinstance(package, Path):
        raise HarnessError("pdchaos cannot run from inside an archive", hint="install it with pip")
    for candidate in (package / "_data" / kind, package.parent / kind):
        if candidate.is_dir():
            return candidate
    raise HarnessError(f"this installation has no {kind} folder", hint="reinstall pdchaos")


def names(kind: Folder) -> list[str]:
    """Names of the library's scenarios or packs."""
    return sorted(path.stem for path in folder(kind).glob("*.yaml"))


def find(kind: Folder, reference: str) -> Path:
    """The file that a name or path means; UserError when there is none."""
    if "/" in reference or reference.endswith((".yaml", ".yml")):
        return Path(reference)
    known = names(kind)
    if reference in known:
        return folder(kind) / f"{reference}.yaml"
    what = {"scenarios": "scenario", "probes": "pack", "templates": "template"}[kind]
    raise UserError(f"there is no {what} {reference!r}", hint=did_you_mean(reference, known))


def read(path: Path, limit: int = MAX_BYTES) -> bytes:
    """A regular file's bytes, its size checked first; UserError says why it cannot be read."""
    try:
        # O_NONBLOCK: opening a named pipe that nobody writes to would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise UserError(f"{path} is {'a folder' if stat.S_ISDIR(found.st_mode) else 'not a regular file'}")
            if found.st_size > limit:
                raise UserError(f"{path} has {found.st_size} bytes; {limit} is the limit")
            return b"".join(iter(lambda: os.read(descriptor, limit + 1), b""))[: limit + 1]
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(f"{path} cannot be read: {why}") from None


def load_pack(reference: str) -> Loaded[Pack]:
    """A pack by name or path."""
    path = find("probes", reference)
    text = read(path)
    return Loaded(parse_pack(text, str(path)), path, text)


def load_packs() -> Mapping[str, Loaded[Pack]]:
    """All packs of the library by name."""
    return {name: load_pack(name) for name in names("probes")}


@cache
def known() -> Known:
    """What the library's packs define."""
    return Known.of(pack.value for pack in load_packs().values())


def load_scenario(reference: str, overrides: Sequence[str] = ()) -> Loaded[Scenario]:
    """A scenario by name or path, with `--with` overrides; its gauge names are checked against the packs."""
    path = find("scenarios", reference)
    text = read(path)
    return Loaded(parse_scenario(text, str(path), overrides, known=known()), path, text)


def load_variants(reference: str, overrides: Sequence[str] = ()) -> list[tuple[str, Scenario]]:
    """A scenario by name or path, once for each dose of its sweep, with the dose in words."""
    path = find("scenarios", reference)
    return parse_variants(read(path), str(path), overrides, known=known())


def where(reference: str, overrides: Sequence[str], *keys: str) -> str:
    """Where a scenario, or an override of it, has the value under these keys: file:line:col."""
    path = find("scenarios", reference)
    tree = parse_yaml(read(path), str(path))
    for wish in overrides:
        override(tree, wish)
    node: Node = tree
    for key in keys:
        node = child(node, key) or node
    return f"{node.mark.file}:{node.mark.line}:{node.mark.column}"


def load_target(reference: str, overrides: Sequence[str] = ()) -> Loaded[Target]:
    """A target file; its engine and timeout names are checked against the packs, its paths taken from its folder."""
    path = Path(reference)
    text = read(path)
    target = parse_target(text, str(path), overrides, known=known())
    return Loaded(_anchored(target, path.absolute().parent), path, text)


def _anchored(target: Target, folder: Path) -> Target:
    """The target with every file path absolute."""

    def anchor(path: str | None) -> str | None:
        return None if path is None else str(folder / Path(path).expanduser())

    def server(spec: ServerSpec) -> ServerSpec:
        ssh = local(spec.ssh)
        if target.ssh_of(spec) is not None:  # its other paths are paths on its host
            return spec.model_copy(update={"ssh": ssh})
        logs = [log.model_copy(update={"file": anchor(log.file)}) for log in spec.log]
        return spec.model_copy(update={"log": logs, "pidfile": anchor(spec.pidfile)})

    def local(ssh: Ssh | None) -> Ssh | None:
        paths = {} if ssh is None else {"identity": anchor(ssh.identity), "known_hosts": anchor(ssh.known_hosts)}
        return None if ssh is None else ssh.model_copy(update=paths)

    def secret(reference: str | None) -> str | None:
        return f"file:{anchor(reference[5:])}" if reference and reference.startswith("file:") else reference

    agents = target.agents

    return target.model_copy(
        update={
            "router": server(target.router),
            "prefill": [server(spec) for spec in target.prefill],
            "decode": [server(spec) for spec in target.decode],
            "ssh": local(target.ssh),
            "api_key": secret(target.api_key),
            "headers": {
                name: value.model_copy(update={"secret": secret(value.secret)})
                for name, value in target.headers.items()
            },
            "agents": None if agents is None else agents.model_copy(update={"ssh": local(agents.ssh)}),
            "tls": target.tls.model_copy(update={"ca": anchor(target.tls.ca)}),
        }
    )
