"""The scheduler's gauges: written at three moments only, and otherwise stale (the real one's blind spot, on purpose).

sglang 0.5.14 writes them after a prefill batch, at every 40th decode step, and on idle at most every 30 s. Idle means
fully idle: with any disaggregation queue non-empty and no batch running nothing is written at all, so in a queue wedge
the gauges keep their last value for ever. `/v1/loads` reads the same snapshot (0.5.13 to 0.5.18).
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass

from chaos.lab.sim.exposition import Exposition
from chaos.lab.sim.families import (
    GAUGES,
    RANK_SCOPES,
    ROUTING_KEY_BANDS,
    ROUTING_KEY_GAUGES,
    node_families,
    node_scopes,
)


@dataclass(frozen=True, slots=True)
class Stats:
    """What a scheduler knows of itself at one moment, under the gauges' names."""

    num_running_reqs: int = 0
    num_queue_reqs: int = 0
    num_retracted_reqs: int = 0
    num_prefill_bootstrap_queue_reqs: int = 0
    num_prefill_inflight_queue_reqs: int = 0
    num_decode_prealloc_queue_reqs: int = 0
    num_decode_transfer_queue_reqs: int = 0
    num_used_tokens: int = 0
    max_total_num_tokens: int = 1
    gen_throughput: float = 0.0
    decode_sum_seq_lens: int = 0
    pending_prealloc_tokens: int = 0

    @property
    def token_usage(self) -> float:
        """Fraction of the KV pool in use."""
        return self.num_used_tokens / self.max_total_num_tokens


class NodeMetrics:
    """One rank's part of a node's metrics page, and the moments at which its gauges are written.

    Of tensor-parallel ranks only the first exports anything (no `--enable-metrics-for-all-schedulers`).
    """

    def __init__(
        self, *, engine_type: str, model: str, pid: int, page: Exposition | None = None, dp_rank: int | None = None
    ) -> None:
        self.page = page or Exposition(node_families(), node_scopes(engine_type=engine_type, model=model, pid=pid))
        self.snapshot = Stats()
        self.last_write = time.monotonic()
        self._rank = {} if dp_rank is None else {"dp_rank": str(dp_rank)}

    def write(self, stats: Stats) -> None:
        """Publish a snapshot now."""
        self.snapshot = stats
        self.last_write = time.monotonic()
        shown: dict[str, float] = asdict(stats)
        used = float(stats.num_used_tokens)
        shown |= {
            "token_usage": round(stats.token_usage, 2),
            "full_token_usage": round(stats.token_usage, 2),
            "kv_used_tokens": used,
            "kv_available_tokens": stats.max_total_num_tokens - used,
            "pending_prealloc_token_usage": stats.pending_prealloc_tokens / stats.max_total_num_tokens,
            "fwd_occupancy": math.nan,
        }
        for name, _, _ in GAUGES:
            if name in ROUTING_KEY_GAUGES:
                for above, up_to in ROUTING_KEY_BANDS:
                    self.page.set(f"sglang:{name}", 0.0, gt=above, le=up_to, **self._rank)
            else:
                self.page.set(f"sglang:{name}", float(shown.get(name, 0.0)), **self._rank)

    def count(self, name: str, by: float = 1.0, /, **labels: str) -> None:
        """Add to a counter; counters are live."""
        self.page.add(f"sglang:{name}", by, **labels, **self._of_rank(name))

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Add to a histogram; histograms are live."""
        self.page.observe(f"sglang:{name}", value, **labels, **self._of_rank(name))

    def _of_rank(self, name: str) -> dict[str, str]:
        """Only what the scheduler processes export carries their rank."""
        return self._rank if self.page.scope(f"sglang:{name}") in RANK_SCOPES else {}
