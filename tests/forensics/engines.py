"""Programs that stand for an engine: one with a control thread, and a parent of such a one."""

from __future__ import annotations

# Threads as an engine's: one with the name that Python gives it by its function, one with a name of its own. It leaves
# when its parent does; a line on stdin ends the control thread.
ENGINE = """
import sys, threading
leave = threading.Event()
def control_thread():
    leave.wait()
def worker():
    threading.Event().wait()
threading.Thread(target=control_thread, daemon=True).start()
threading.Thread(target=worker, daemon=True, name="east").start()
print("up", flush=True)
sys.stdin.readline()
leave.set()
threading.enumerate()[1].join(10)
print("ended", flush=True)
sys.stdin.read()
"""
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {ENGINE!r}], stdin=sys.stdin, stdout=subprocess.PIPE)
child.stdout.readline(); print(child.pid, flush=True); child.wait()
"""
