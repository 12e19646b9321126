"""Applies the logits processors of one sequence, in the order of its request."""

from __future__ import annotations

import logging

import torch

from engine.sampling.processors.processor import LogitsProcessor

logger = logging.getLogger(__name__)


class ProcessorChain:
    """The processors of one sequence. Tokens that are already forbidden stay forbidden, whatever a processor writes."""

    def __init__(self, processors: list[LogitsProcessor], prompt_ids: list[int]) -> None:
        self._processors = processors
        self._prompt_ids = prompt_ids

    def apply(self, output_ids: list[int], logits: torch.Tensor) -> None:
        """Change logits (V,) in place. If a processor raises, the row becomes NaN, which ends only its sequence."""
        is_forbidden = logits.isneginf()
        for processor in self._processors:
            try:
                processor.apply(self._prompt_ids, output_ids, logits)
            except Exception:
                logger.exception("the logits processor %s failed", processor.spec.name)
                logits.fill_(float("nan"))
                return
        logits.masked_fill_(is_forbidden, float("-inf"))
