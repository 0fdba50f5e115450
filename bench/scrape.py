"""Reading the wanted metrics of one /metrics body: ours against prometheus_client, which parses all of it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from bench.timing import paired
from chaos import library
from chaos.engine.probes.exposition import Exposition, Wanted

RANKS = 8
FILLER_FAMILIES = 120


def body() -> bytes:
    """About 220 kB, like an engine with eight ranks."""
    lines = []
    wanted = [alias.metric for metric in library.load_pack("sglang").value.metrics for alias in metric.aliases]
    for family in [*dict.fromkeys(wanted), *(f"sglang:filler_{n}_bucket" for n in range(FILLER_FAMILIES))]:
        lines += [f"# HELP {family} Something.", f"# TYPE {family} gauge"]
        for rank in range(RANKS):
            labels = f'engine_type="prefill",model_name="some-model-name",moe_ep_rank="0",pp_rank="0",tp_rank="{rank}"'
            lines.append(f"{family}{{{labels}}} {rank}.0")
    return ("\n".join(lines) + "\n").encode()


def main() -> None:
    """Print the ratio."""
    text = body()
    reader = Exposition(
        [
            Wanted(name=metric.name, kind=metric.kind, use=metric.use, exposed=metric.exposed_as())
            for metric in library.load_pack("sglang").value.metrics
        ]
    )
    whole = text.decode()
    ours, theirs = paired(lambda: reader.read(text), lambda: list(text_string_to_metric_families(whole)))
    print(f"{len(text) / 1000:.0f} kB: ours {ours * 1e3:.2f} ms, prometheus_client {theirs * 1e3:.1f} ms")
    print(f"ratio {theirs / ours:.0f}x")
