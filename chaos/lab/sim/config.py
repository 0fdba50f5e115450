"""What a node is told at its start, and the engine's own clocks under a time scale."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["router", "prefill", "decode"]

LOOPBACK = "127.0.0.1"
CHUNKED_PREFILL_TOKENS = 8192  # the most tokens one forward pass takes (--chunked-prefill-size)
DECODE_LOG_INTERVAL = 40  # decode steps between two status lines, and between two writes of the gauges


def _option(default: float | str, about: str, *, least: float = 0.0, most: float = 1e9) -> Any:
    return field(default=default, metadata={"about": about, "least": least, "most": most})


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of a sim lab, with defaults under which 60 sessions overcommit one decode node."""

    prefill: int = _option(1, "number of prefill nodes", least=1, most=16)
    decode: int = _option(1, "number of decode nodes", least=1, most=16)
    time_scale: float = _option(
        0.1, "the engine's own clocks (300 s timeouts, 30 s gauge lag, ...) are multiplied by this", least=0.01, most=1
    )
    dp: int = _option(1, "data-parallel ranks of each node; slots and KV tokens are shared out", least=1, most=16)
    tp: int = _option(1, "tensor-parallel ranks of each data-parallel rank", least=1, most=16)
    slots: int = _option(20, "requests a decode node holds in transfer or running", least=1)
    kv_tokens: int = _option(65536, "KV tokens of each node", least=64)
    reserved_decode_tokens: int = _option(512, "KV tokens set aside for output at admission")
    step_ms: float = _option(25.0, "one decode step", least=1, most=10_000)
    prefill_tps: float = _option(20_000.0, "prompt tokens a prefill node computes per second", least=1)
    transfer_ms: float = _option(0.0, "a KV transfer takes at least so long", most=60_000)
    context_len: int = _option(131_072, "the model's context length", least=16)
    port: int = _option(0, "the router's port; 0 takes a free one", most=65535)
    model: str = _option("sim-llm", "served model name")


@dataclass(frozen=True, slots=True)
class Clocks:
    """Times of the engine in seconds (0.5.14 defaults), multiplied by the lab's time scale."""

    stream_abort_delay_s: float = 2.0  # create_abort_task after a stream's client left
    disconnect_poll_s: float = 4.0  # SGLANG_REQUEST_STATE_WAIT_TIMEOUT
    health_pause_s: float = 1.0  # the loop in /health sleeps before it looks
    health_timeout_s: float = 20.0  # SGLANG_HEALTH_CHECK_TIMEOUT
    waiting_timeout_s: float = 300.0  # SGLANG_DISAGGREGATION_WAITING_TIMEOUT, decode
    heartbeat_s: float = 5.0  # SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL, decode
    fetch_pause_s: float = 1.0  # between two of the 15 attempts to fetch a prefill's parallel info
    transfer_timeout_s: float = 30.0  # MC_TRANSFER_TIMEOUT, of the Mooncake backend
    idle_log_s: float = 30.0  # gauges are written on idle at most this often; memory is checked on idle then, too
    watchdog_s: float = 300.0  # --watchdog-timeout: a batch that does not end
    watchdog_grace_s: float = 5.0  # between the watchdog's line and the end it brings
    jit_s: float = 34.0  # compiling the kernels of a new shape (33.9 s in ai-dynamo/dynamo#9435)
    deferred_release_s: float = 30.0  # SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT
    router_request_s: float = 1800.0  # request_timeout_secs
    router_health_s: float = 60.0
    router_health_timeout_s: float = 5.0
    breaker_open_s: float = 60.0
    retry_base_s: float = 0.05
    retry_most_s: float = 30.0

    @classmethod
    def scaled(cls, scale: float) -> Clocks:
        """Every clock multiplied by `scale`."""
        default = cls()
        return cls(**{each.name: getattr(default, each.name) * scale for each in dataclasses.fields(cls)})


@dataclass(frozen=True, slots=True)
class Upstream:
    """A node as the router is told of it."""

    url: str
    bootstrap_port: int = 0


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Everything one process is told; it arrives as one line of JSON on stdin.

    `sockets` are listening sockets inherited from the starter by name (`http`, `bootstrap`, `metrics`), so that no
    port is ever free between choosing and binding it. What a node opens itself (control sockets, the KV port) it binds
    to `address` and tells its peers. `ready_fd` is written to once the node serves.
    """

    role: Role
    name: str
    build: str
    settings: Settings
    sockets: dict[str, int]
    ready_fd: int
    bootstrap_port: int = 8998  # the engine's default; of no meaning on a decode node
    prefill: tuple[Upstream, ...] = ()
    decode: tuple[Upstream, ...] = ()
    address: str = LOOPBACK

    @property
    def clocks(self) -> Clocks:
        """The engine's clocks under this lab's time scale."""
        return Clocks.scaled(self.settings.time_scale)

    def to_json(self) -> str:
        """One line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, line: str) -> NodeConfig:
        """The reverse of `to_json`."""
        raw = json.loads(line)
        raw["settings"] = Settings(**raw["settings"])
        for side in ("prefill", "decode"):
            raw[side] = tuple(Upstream(**each) for each in raw[side])
        return cls(**raw)
