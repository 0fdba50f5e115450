"""Finding known lines in an engine's log: ours against the patterns tried one alternation per line."""

from __future__ import annotations

import re

from bench.timing import paired
from chaos import library
from chaos.engine.probes.follow import known_lines
from chaos.outpost.scan import Scanner

MEGABYTES = 20
HIT_EVERY = 230  # lines; 0.43 % hit lines, as in the field


def log(samples: list[str]) -> bytes:
    """A log of batch lines with a known line now and then."""
    batch = (
        "[2026-06-20 14:02:09 TP0] Decode batch, #running-req: 24, #token: 51200, token usage: 0.31, "
        "pre-allocated usage: 0.12, #prealloc-req: 6, #transfer-req: 8, #retracted-req: 0, cuda graph: True, "
        "gen throughput (token/s): 1480.22, #queue-req: 0"
    )
    lines, size, n = [], 0, 0
    while size < MEGABYTES << 20:
        line = samples[n // HIT_EVERY % len(samples)] if n % HIT_EVERY == 0 else batch
        lines.append(line)
        size += len(line) + 1
        n += 1
    return ("\n".join(lines) + "\n").encode()


def main() -> None:
    """Print the ratio, and that both find the same lines."""
    signatures = library.load_pack("sglang").value.signatures
    text = log([sample for signature in signatures for sample in signature.samples.match if "\n" not in sample])
    scanner = Scanner(known_lines(signatures))
    together = re.compile("|".join(f"(?:{re.sub(r'[(][?]P<[a-z_]+>', '(?:', s.pattern)})" for s in signatures))

    def per_line() -> int:
        return sum(together.search(line.decode()) is not None for line in text.split(b"\n"))

    ours, theirs = paired(lambda: scanner.scan(text), per_line, rounds=3)
    print(f"hits: ours {len(scanner.scan(text))}, per line {per_line()}")
    print(f"{MEGABYTES} MB: ours {MEGABYTES / ours:.0f} MB/s, per line {MEGABYTES / theirs:.0f} MB/s")
    print(f"ratio {theirs / ours:.1f}x")
