"""Compiled operators of the step: cpu/ with numba, cuda/ with Triton. README.md tells how they work."""
