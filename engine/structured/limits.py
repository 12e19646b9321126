"""The limits of constraints, under the name that this package knows them by. Checked before anything is compiled."""

from __future__ import annotations

from engine.config import StructuredLimits

DEFAULT_LIMITS = StructuredLimits()

__all__ = ["DEFAULT_LIMITS", "StructuredLimits"]
