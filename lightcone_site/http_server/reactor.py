"""Twisted's reactor on asyncio's loop. Daphne's server installs it, so import that before any other reactor."""

from __future__ import annotations

from typing import Any

from daphne.server import twisted_loop
from twisted.internet import reactor as twisted_reactor

__all__ = ["reactor", "twisted_loop"]

reactor: Any = twisted_reactor
