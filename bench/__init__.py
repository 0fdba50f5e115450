"""Benchmarks, run by hand: `make bench`. They compare in one run and print ratios, because machines are noisy."""
