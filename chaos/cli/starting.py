"""`init`: a commented target file and a scenario to start from, for servers on this machine or on hosts over SSH."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from chaos import library
from chaos.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOGIN = re.compile(r"(?:(?P<user>[^@\s:]+)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_KEY_HINTS = {
    "--identity": "name the private key that the hosts accept, or leave it out: the file says where it goes",
    "--known-hosts": "name the file that knows the hosts' keys, or leave it out: ~/.ssh/known_hosts is read",
}
ROLES = ("router", "prefill", "decode")


@dataclass(frozen=True, slots=True)
class Login:
    """A host of the command line."""

    host: str
    user: str = ""
    port: str = ""

    @property
    def section(self) -> str:
        """As the node's `ssh` says it."""
        more = f", port: {self.port}" if self.port else ""
        host = self.host.strip("[]")
        return f"{{host: {_scalar(host)}{more}}}"


@dataclass(frozen=True, slots=True)
class OverSsh:
    """What is known of the hosts: the first is the router's, the second prefill's, all others decode's."""

    logins: Sequence[Login]
    identity: str = ""
    known_hosts: str = ""

    def target(self, template: str) -> str:
        """The template with what is known filled in."""
        text = template
        if self.logins:
            first, *others = self.logins
            hosts = {"router": [first], "prefill": others[:1] or [first], "decode": others[1:] or [self.logins[-1]]}
            head, blocks = text.split("decode:\n", 1)
            block, rest = blocks.split("\n\n", 1)
            text = head + "decode:\n" + "\n".join(_at(block, "decode", one) for one in hosts["decode"]) + "\n\n" + rest
            for role in ("router", "prefill"):
                text = _at(text, role, hosts[role][0])
            if first.user:
                text = text.replace("  user: ops\n", f"  user: {_scalar(first.user)}\n")
        for key, file in (("identity", self.identity), ("known_hosts", self.known_hosts)):
            if file:
                line = f"  {key}: {_scalar(file)}"
                text = "\n".join(line if one.startswith(f"  # {key}: ") else one for one in text.split("\n"))
        return text


def _at(text: str, role: str, login: Login) -> str:
    text = text.replace(f"{{host: gpu-{role}}}", login.section)
    return text.replace(f"//gpu-{role}:", f"//{login.host}:")


def _scalar(value: str) -> str:
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("\n...\n").strip()


def parse_logins(words: Sequence[str]) -> list[Login]:
    """`user@host:port` of each; all must log in as the same user, who is said once in the file."""
    logins = []
    for word in words:
        found = _LOGIN.fullmatch(word)
        if found is None:
            raise UsageError(f"{word!r} is no host to log in to", hint="for example ops@gpu1 or ops@gpu1:2222")
        logins.append(Login(found["host"], found["user"] or "", found["port"] or ""))
    users = {login.user for login in logins}
    if len(users) > 1:
        raise UsageError(
            f"different users: {', '.join(sorted(user or 'none' for user in users))}",
            hint="name one here, and write `user` under the `ssh` of single servers in the file",
        )
    return logins


def key_file(text: str, flag: str, folder: Path) -> str:
    """A file of the command line, as a target file in `folder` says it. Raises UsageError where there is none."""
    file = Path(text).expanduser()
    if text and not file.is_file():
        raise UsageError(f"{flag} {text}: there is no such file; nothing was written", hint=_KEY_HINTS[flag])
    stays = not text or text.startswith("~") or file.is_absolute() or folder.resolve() == Path.cwd()
    return text if stays else str(file.absolute())


def init_files(folder: Path, over_ssh: OverSsh | None) -> None:
    """Write a target file and a scenario to start from; overwrites nothing."""
    name = "target.yaml" if over_ssh is None else "target-ssh.yaml"
    template = library.read(library.folder("templates") / name).decode()
    files = {
        "target.yaml": (template if over_ssh is None else over_ssh.target(template)).encode(),
        "abort-cascade.yaml": library.load_scenario("abort-cascade").text,
    }
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise UsageError(f"{folder / there[0]} exists already; nothing was written", hint="choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_bytes(text)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None
    for name in files:
        print(f"wrote {folder / name}")  # noqa: T201
    target, scenario = folder / "target.yaml", folder / "abort-cascade.yaml"
    steps = (
        (f"edit {target}", "where the logs are, which ports, what may be done"),
        (f"pdchaos check {target} {scenario}", "every problem at once, as file:line:col"),
        (f"pdchaos doctor --target {target}", "what is missing, and what mends it; sends one request per path"),
        (f"pdchaos run {scenario} --target {target}", "break it, watch it, judge it"),
    )
    for command, why in steps:
        print(f"next: {command}\n      ({why})")  # noqa: T201
