"""The parts of `manage.py serve`: it prepares an installation, starts its processes, restarts what dies and stops them all.

Knows commands, signals and exit codes; knows nothing of what the processes do. Used by the command `serve` only.
"""
