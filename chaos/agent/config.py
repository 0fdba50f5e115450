"""The one line of configuration, checked: unknown keys and wrong types are refused, all of them at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .codec import loads

if TYPE_CHECKING:
    from collections.abc import Mapping

API_PATHS: dict[str, str] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "generate": "/generate",
}


class ConfigError(Exception):
    """The configuration line was refused; the message lists everything that is wrong with it."""


@dataclass(frozen=True)
class Config:
    """What one agent process shall do. Times are seconds."""

    group: str
    base_url: str
    api: str
    phase_file: str
    run: str = ""
    seed: int = 1
    stream: bool = True
    model: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    api_key: str | None = None
    tls_verify: bool = True
    tls_ca: str | None = None
    sessions: int = 1
    first_session: int = 0
    rounds: int = 1
    prompt_tokens: int = 64
    max_tokens: int = 64
    timeout_s: float = 120.0
    ramp_s: float = 0.0
    rate_per_s: float | None = None
    think_s: float = 0.0
    phase_slots: int = 1
    orphan_drain_s: float = 20.0
    path: str = "routed"
    unix_socket: str | None = None  # of a relay that connects to the host of `base_url` in our place
    temperature: float = 0.0
    ignore_eos: bool = True
    owner: str | None = None  # of codewords: the SPACE of SPACE-SESSION-ROUND; none are asked for without
    rid: bool = False  # requests carry their id in the body, by which an engine can abort them


class _Reader:
    """Takes values out of a JSON object by type and keeps a list of what is wrong."""

    def __init__(self, values: Mapping[str, object], problems: list[str], prefix: str = "") -> None:
        self._left = dict(values)
        self._problems = problems
        self._prefix = prefix

    def _take(self, key: str, default: object) -> object:
        return self._left.pop(key, default)

    def _refuse(self, key: str, wanted: str, value: object) -> None:
        self._problems.append(f"{self._prefix}{key}: wanted {wanted}, got {value!r}")

    def text(self, key: str, default: str | None = None) -> str:
        value = self._take(key, default)
        if isinstance(value, str):
            return value
        self._refuse(key, "a string", value)
        return ""

    def maybe_text(self, key: str) -> str | None:
        value = self._take(key, None)
        if value is None or isinstance(value, str):
            return value
        self._refuse(key, "a string or null", value)
        return None

    def count(self, key: str, default: int, least: int = 0) -> int:
        value = self._take(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        self._refuse(key, f"an integer of at least {least}", value)
        return least

    def seconds(self, key: str, default: float) -> float:
        value = self._take(key, default)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
            return float(value)
        self._refuse(key, "a number that is not negative", value)
        return 0.0

    def maybe_rate(self, key: str) -> float | None:
        value = self._take(key, None)
        if value is None:
            return None
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return float(value)
        self._refuse(key, "a positive number or null", value)
        return None

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._take(key, default)
        if isinstance(value, bool):
            return value
        self._refuse(key, "true or false", value)
        return default

    def section(self, key: str) -> Mapping[str, object]:
        value = self._take(key, None)
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
        self._refuse(key, "an object or null", value)
        return {}

    def finish(self) -> None:
        self._problems.extend(f"{self._prefix}{key}: unknown key" for key in self._left)


def _headers(values: Mapping[str, object], problems: list[str]) -> tuple[tuple[str, str], ...]:
    headers = []
    for name, value in values.items():
        if not isinstance(value, str) or any(char in name + value for char in "\r\n\0"):
            problems.append(f"headers.{name}: wanted one line of text")
        else:
            headers.append((name, value))
    return tuple(headers)


def parse_config(line: bytes) -> Config:
    """The configuration in one JSON line; ConfigError lists every problem."""
    try:
        document = loads(line)
    except ValueError as error:
        raise ConfigError(f"the configuration line is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError("the configuration line is not a JSON object")
    problems: list[str] = []
    read = _Reader(document, problems)
    tls = _Reader(read.section("tls"), problems, "tls.")
    config = Config(
        group=read.text("group"),
        run=read.text("run", ""),
        seed=read.count("seed", 1, -(2**63)),
        base_url=read.text("base_url"),
        api=read.text("api"),
        stream=read.flag("stream", default=True),
        model=read.maybe_text("model"),
        headers=_headers(read.section("headers"), problems),
        api_key=read.maybe_text("api_key"),
        tls_verify=tls.flag("verify", default=True),
        tls_ca=tls.maybe_text("ca"),
        sessions=read.count("sessions", 1),
        first_session=read.count("first_session", 0),
        rounds=read.count("rounds", 1, 1),
        prompt_tokens=read.count("prompt_tokens", 64, 1),
        max_tokens=read.count("max_tokens", 64, 1),
        timeout_s=read.seconds("timeout_s", 120.0),
        ramp_s=read.seconds("ramp_s", 0.0),
        rate_per_s=read.maybe_rate("rate_per_s"),
        think_s=read.seconds("think_s", 0.0),
        phase_file=read.text("phase_file"),
        phase_slots=read.count("phase_slots", 1, 1),
        orphan_drain_s=read.seconds("orphan_drain_s", 20.0),
        path=read.text("path", "routed"),
        unix_socket=read.maybe_text("unix_socket"),
        temperature=read.seconds("temperature", 0.0),
        ignore_eos=read.flag("ignore_eos", default=True),
        owner=read.maybe_text("owner"),
        rid=read.flag("rid", default=False),
    )
    read.finish()
    tls.finish()
    told = {problem.partition(":")[0] for problem in problems}
    problems.extend(problem for problem in _inconsistent(config) if problem.partition(":")[0] not in told)
    if problems:
        raise ConfigError("\n".join(problems))
    return config


def _inconsistent(config: Config) -> list[str]:
    problems = []
    if config.api not in API_PATHS:
        problems.append(f"api: wanted one of {', '.join(API_PATHS)}, got {config.api!r}")
    if config.api_key is not None and any(char in config.api_key for char in "\r\n\0"):
        problems.append("api_key: wanted one line of text")
    try:
        url = urlsplit(config.base_url)
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        usable = False
    if not usable:
        problems.append(f"base_url: wanted http://HOST:PORT or https://HOST:PORT, got {config.base_url!r}")
    return problems
