"""The engine: everything with a side effect, behind small protocols."""
