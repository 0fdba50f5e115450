"""The load client process: it opens every socket of the simulated agents, and dies for them when a wave kills it.

It imports nothing of ours beyond this package and runs on Python 3.9 with the standard library and h11, so the same
file serves on this machine and on any host (`chaos.engine.pyz`). `main.py` documents the process's protocol.
"""
