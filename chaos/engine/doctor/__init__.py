"""Every precondition of a run, looked at one by one before anything is broken, each failure with what mends it."""

from chaos.engine.doctor.examination import examine
from chaos.engine.doctor.row import Row, State, verdict

__all__ = ["Row", "State", "examine", "verdict"]
