"""Batches at work, in the maintenance worker: runner.py finds and claims them, work.py takes one from its first line to its files."""
