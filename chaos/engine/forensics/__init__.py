"""Saves what a wedged deployment looks like from inside, before anybody restarts it and the evidence is gone.

nodes      stacks, processes, logs: asked of each node's host
stacks     thread names and stacks of every process (py-spy, where it is there and may look)
processes  command lines, a filtered environment, TCP sockets and what waits in them
servers    raw metrics and what each server says of itself
redact     what must not be in a folder that people pass on
suspicion  when to save
folder     one bounded snapshot on the disk, with its index
collect    all of it, off the event loop and within a time limit
"""

from chaos.engine.forensics.collect import Forensics
from chaos.engine.forensics.nodes import Subject
from chaos.engine.forensics.suspicion import Suspicion

__all__ = ["Forensics", "Subject", "Suspicion"]
