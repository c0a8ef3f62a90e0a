"""Workers that are killed at a named point of their work, and the evidence they leave: for ``benchmarks/kill.py``."""
