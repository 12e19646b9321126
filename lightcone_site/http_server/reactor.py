"""Twisted's reactor on asyncio's loop. Importing Daphne's server installs it, so that import precedes any other of a reactor."""

from __future__ import annotations

from typing import Any

from daphne.server import twisted_loop
from twisted.internet import reactor as twisted_reactor

__all__ = ["reactor", "twisted_loop"]

reactor: Any = twisted_reactor
