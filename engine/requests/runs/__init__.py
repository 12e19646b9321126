"""Admitted requests inside the worker: what each has the core compute, and the events that come of it."""
