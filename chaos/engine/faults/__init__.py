"""Faults: everything that breaks something, each planned, applied and verified by measurement."""
