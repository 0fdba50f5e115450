"""Metric families of a node, as sglang 0.5.14 and 0.5.16 export them.

Names, labels, types, help texts and buckets are facts of the exposition: the families of the two samples were printed
by the real collectors of 0.5.14, the others (`realtime_tokens_total`, HTTP, stages) are named in its source.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from chaos.lab.sim.exposition import Family

if TYPE_CHECKING:
    from collections.abc import Iterator

_LATENCY = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_LONG_LATENCY = (*_LATENCY, 600, 1200, 1800, 2400)
_TOKENS = (
    *(100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10_000, 12_500, 15_000, 17_500),
    *(20_000, 22_500, 25_000, 27_500, 30_000, 35_000, 40_000, 60_000, 80_000, 100_000, 200_000, 300_000, 400_000),
    *(600_000, 800_000, 1_000_000, 1_100_000),
)
_TRANSFER_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000)
_TRANSFER_GBPS = (0.1, 0.5, 1, 5, 10, 25, 50, 100, 200, 400)
_INTER_TOKEN = (0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6,
                0.8, 1, 2, 4, 6, 8)  # fmt: skip
_ROUTING_KEY_BOUNDS = ("0", "1", "2", "3", "5", "7", "10", "20", "50", "100", "200", "+Inf")

_HISTOGRAMS = (
    ("kv_transfer_speed_gb_s", "scheduler", "Histogram of KV cache transfer speed in GB/s.", _TRANSFER_GBPS),
    ("kv_transfer_latency_ms", "scheduler", "Histogram of KV cache transfer latency in ms.", _TRANSFER_MS),
    ("e2e_request_latency_seconds", "tokenizer", "Histogram of End-to-end request latency in seconds", _LONG_LATENCY),
    ("prompt_tokens_histogram", "tokenizer", "Histogram of prompt token length.", _TOKENS),
    (
        "uncached_prompt_tokens_histogram",
        "tokenizer",
        "Histogram of uncached (compute) prompt token length.",
        _TOKENS,
    ),
    ("generation_tokens_histogram", "tokenizer", "Histogram of generation token length.", _TOKENS),
    ("time_to_first_token_seconds", "tokenizer", "Histogram of time to first token in seconds.", _LATENCY),
    ("inter_token_latency_seconds", "tokenizer", "Histogram of inter-token latency in seconds.", _INTER_TOKEN),
)
_COUNTERS = (
    ("num_bootstrap_failed_reqs_total", "scheduler", "The number of bootstrap failed requests."),
    ("num_transfer_failed_reqs_total", "scheduler", "The number of transfer failed requests."),
    ("num_retracted_requests_total", "scheduler", "Total number of retracted requests."),
    ("realtime_tokens_total", "scheduler", "Total number of tokens processed, updated on each iteration."),
    ("prompt_tokens_total", "tokenizer", "Number of prefill tokens processed."),
    ("generation_tokens_total", "tokenizer", "Number of generation tokens processed."),
    ("num_requests_total", "tokenizer", "Number of requests processed."),
    ("num_aborted_requests_total", "tokenizer", "Number of requests aborted."),
    ("http_requests_total", "http", "Total number of HTTP requests by endpoint and method."),
    ("http_responses_total", "http", "Total number of HTTP responses by endpoint and status code."),
)
GAUGES = (
    ("num_retracted_reqs", "pid", "The number of retracted requests."),
    ("num_paused_reqs", "pid", "The number of paused requests by async weight sync."),
    ("num_running_reqs", "scheduler", "The number of running requests."),
    ("num_queue_reqs", "scheduler", "The number of requests in the waiting queue."),
    ("num_grammar_queue_reqs", "scheduler", "The number of requests in the grammar waiting queue."),
    ("gen_throughput", "scheduler", "The generation throughput (token/s)."),
    ("cache_hit_rate", "scheduler", "The prefix cache hit rate."),
    ("decode_sum_seq_lens", "scheduler", "The sum of all sequence lengths in decode."),
    ("token_usage", "scheduler", "The token usage."),
    ("full_token_usage", "scheduler", "The token usage for full attention layers."),
    ("swa_token_usage", "scheduler", "The token usage for SWA layers."),
    ("mamba_usage", "scheduler", "The token usage for Mamba layers."),
    ("num_used_tokens", "scheduler", "The number of used tokens."),
    ("kv_available_tokens", "scheduler", "Number of free token slots in the KV cache pool."),
    ("kv_evictable_tokens", "scheduler", "Number of evictable (radix-cached) token slots in the KV cache pool."),
    ("kv_used_tokens", "scheduler", "Number of actively used token slots in the KV cache pool."),
    ("swa_available_tokens", "scheduler", "Number of free token slots in the SWA pool (hybrid-SWA only)."),
    ("swa_evictable_tokens", "scheduler", "Number of evictable (radix-cached) token slots in the SWA pool."),
    ("swa_used_tokens", "scheduler", "Number of actively used token slots in the SWA pool."),
    ("mamba_available_tokens", "scheduler", "Number of free state slots in the mamba SSM pool (hybrid-SSM only)."),
    ("mamba_evictable_tokens", "scheduler", "Number of evictable (radix-cached) state slots in the mamba SSM pool."),
    ("mamba_used_tokens", "scheduler", "Number of actively used state slots in the mamba SSM pool."),
    (
        "spec_accept_length",
        "scheduler",
        "Mean acceptance length of speculative decoding (accepted drafts + bonus token per forward).",
    ),
    ("spec_accept_rate", "scheduler", "Speculative acceptance rate (`accepted drafts / proposed drafts` in batch)."),
    ("spec_num_steps", "scheduler", "Currently active speculative_num_steps."),
    (
        "spec_num_draft_tokens",
        "scheduler",
        "Currently active speculative_num_draft_tokens (decouples from steps under topk>1).",
    ),
    ("num_prefill_bootstrap_queue_reqs", "scheduler", "The number of requests in the prefill bootstrap queue."),
    ("num_prefill_inflight_queue_reqs", "scheduler", "The number of requests in the prefill inflight queue."),
    ("num_decode_prealloc_queue_reqs", "scheduler", "The number of requests in the decode prealloc queue."),
    ("num_decode_transfer_queue_reqs", "scheduler", "The number of requests in the decode transfer queue."),
    (
        "pending_prealloc_token_usage",
        "scheduler",
        "The token usage for pending preallocated tokens (not preallocated yet).",
    ),
    ("utilization", "scheduler", "The utilization."),
    ("fwd_occupancy", "scheduler", "Forward pass GPU occupancy percentage."),
    ("new_token_ratio", "scheduler", "The new token ratio."),
    ("is_cuda_graph", "scheduler", "Whether the batch is using CUDA graph."),
    ("num_unique_running_routing_keys", "scheduler", "Number of unique routing keys in running batch."),
    (
        "routing_key_running_req_count",
        "scheduler",
        "Distribution of routing keys by running request count (gt < count <= le).",
    ),
    (
        "routing_key_all_req_count",
        "scheduler",
        "Distribution of routing keys by running+waiting request count (gt < count <= le).",
    ),
    ("max_total_num_tokens", "scheduler", "Maximum total number of tokens in the KV cache pool."),
)
_HTTP_ACTIVE = ("http_requests_active", "http", "Number of currently active HTTP requests.")
ROUTING_KEY_GAUGES = ("routing_key_running_req_count", "routing_key_all_req_count")
ROUTING_KEY_BANDS = tuple(itertools.pairwise(_ROUTING_KEY_BOUNDS))


RANK_SCOPES = ("scheduler", "pid")  # with several data-parallel ranks their children carry `dp_rank`, too


def node_families() -> Iterator[Family]:
    """Every family a node can export; which ones appear depends on what happened to it."""
    for name, scope, text, buckets in _HISTOGRAMS:
        yield Family(f"sglang:{name}", "histogram", scope, text, tuple(float(bound) for bound in buckets))
    for name, scope, text in _COUNTERS:
        yield Family(f"sglang:{name}", "counter", scope, text)
    for name, scope, text in (*GAUGES, _HTTP_ACTIVE):
        yield Family(f"sglang:{name}", "gauge", scope, text)


def node_scopes(*, engine_type: str, model: str, pid: int) -> dict[str, dict[str, str]]:
    """Constant labels by scope."""
    tokenizer = {"engine_type": engine_type, "model_name": model}
    scheduler = {**tokenizer, "moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
    return {"tokenizer": tokenizer, "scheduler": scheduler, "pid": {**scheduler, "pid": str(pid)}, "http": {}}
