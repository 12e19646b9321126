# Lightcone. `make serve` and `make test` do everything on a fresh machine (Python 3.11 to 3.13, nothing configured).
PYTHON ?= python3
BIN := .venv/bin

.PHONY: serve test check lint format clean
