"""Every precondition of a run, looked at one by one before anything is broken, each failure with what mends it."""

from chaos.engine.doctor.examination import examine
from chaos.engine.doctor.row import BAD, Row, State, verdict

__all__ = ["BAD", "Row", "State", "examine", "verdict"]
