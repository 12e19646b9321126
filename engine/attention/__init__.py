"""Paged attention behind one interface: one file per backend, chosen once at start."""
