"""Our process on a host: it looks, it acts, it heals. Called in place on this machine, spoken to over SSH elsewhere.

Standard library alone, Python 3.9 or later, and nothing else of ours, because it travels to hosts that have neither.
"""
