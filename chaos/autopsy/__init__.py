"""From a folder of evidence that people have collected to a journal, which the same judge judges.

clock        moments as people and logs write them, on the journal's clock
stamps       the stamps of log lines
logs         a log file: known lines, numbers, health checks, and how much of it nobody can read
scrapes      Prometheus texts
deployment   what was running, and what was intended
notes        what people noted, as events
queues       the backlog at the moment of a wave
importer     all of it put together, in order
"""

from __future__ import annotations

from chaos.autopsy.importer import FILE, Imported, import_folder
from chaos.autopsy.logs import LogRead

__all__ = ["FILE", "Imported", "LogRead", "import_folder"]
