"""Admitted requests inside the worker: each asks the core for sequences and turns their outputs into events."""
