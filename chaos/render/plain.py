"""The run as lines, for CI logs and pipes: one line per thing worth knowing, and a heartbeat in between."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from chaos.model import events as ev
from chaos.render import words
from chaos.render.metrics import short_name
from chaos.render.story import Story
from chaos.render.watch import Watch

if TYPE_CHECKING:
    from chaos.model.events import AnyEvent

HEARTBEAT_S = 10.0
LINE = 220  # characters; CI logs do not wrap well


class PlainLines:
    """Listens to a run and writes lines. Stops writing, without a word, when nobody reads any more."""

    def __init__(self, out: IO[str], *, heartbeat_s: float = HEARTBEAT_S) -> None:
        self._out = out
        self._heartbeat_ns = int(heartbeat_s * 1e9)
        self._watch = Watch()
        self._story = Story()
        self._spoke_ns: int | None = None
        self.missed = 0  # events that could not be taken in
        self._deaf = False

    def on_event(self, event: AnyEvent) -> None:
        """Take in one event and write what is worth a line; never raises."""
        try:
            self._take(event)
        except (OSError, ValueError):  # a pipe or file that was closed under us
            self._deaf = True
        except Exception:  # noqa: BLE001 - whatever is wrong with an event or with us, the run goes on
            self.missed += 1

    def _take(self, event: AnyEvent) -> None:
        self._watch.feed(event)
        for moment in self._story.feed(event):
            self._say(event.t_ns, moment.what, moment.text)
        if self._spoke_ns is None:
            self._spoke_ns = event.t_ns
        if event.t_ns - self._spoke_ns >= self._heartbeat_ns and not isinstance(event, ev.RunEnded):
            self._spoke_ns = event.t_ns
            self._say(event.t_ns, "..", heartbeat(self._watch))

    def _say(self, at_ns: int, what: str, text: str) -> None:
        if self._deaf:
            return
        since = (at_ns - (self._watch.start_ns or at_ns)) / 1e9
        line = f"{what:<9} {words.one_line(text, LINE)}"
        encoding = (getattr(self._out, "encoding", None) or "utf-8").lower()
        if not encoding.startswith("utf"):
            line = words.ascii_only(line)
        self._out.write(f"{since:8.1f}s  {line}\n")
        self._out.flush()


def heartbeat(watch: Watch) -> str:
    """One line of where the run is: phase, sessions, canaries, queues."""
    parts = [watch.phase]
    phases = {phase: n for phase, n in watch.phases().items() if phase not in ("none", "done")}
    if any(phases.values()):
        parts.append(f"sessions {words.census(phases, ' ')}")
    red = [name for name, path in sorted(watch.paths.items()) if path.colour == "red"]
    seen = [path for path in watch.paths.values() if path.colour != "none"]
    if seen:
        overdue = sum(len(path.overdue) for path in watch.paths.values())
        late = f" ({overdue} overdue)" if overdue else ""
        parts.append(f"canaries RED on {', '.join(red)}{late}" if red else f"canaries green on {len(seen)} paths")
    fresh = watch.fresh_queues()
    queues = [f"{node} {short_name(name, node)} {words.number(v)}" for (node, name), v in fresh.items() if v]
    queues += [f"{node} unknown" for node in watch.unread_queues()]
    parts.append("queues unknown" if not fresh else f"queues {', '.join(queues)}" if queues else "queues empty")
    return "; ".join(parts)
