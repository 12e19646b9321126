"""Sampled tokens on their way from the device to the host."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.sampling.logprobs import LogprobSnapshot
from engine.sampling.masks import GrammarBitmask
from engine.sequence import Sequence


class HostCopy:
    """One asynchronous copy of the results of a step.

    It has the tokens, which rows are sound, and whether rows must be drawn again.
    """

    def __init__(self, token_ids: torch.Tensor, best: torch.Tensor, is_unfinished: torch.Tensor | None) -> None:
        """Start the copy.

        token_ids: (R,)   best: (R,) the largest logit of each row, finite in sound rows   is_unfinished: of any rows
        """
        self._event: torch.cuda.Event | None = None
        if token_ids.device.type != "cuda":
            self._token_ids, self._best, self._is_unfinished = token_ids, best, is_unfinished
            return
        again = torch.zeros_like(token_ids[:1]) if is_unfinished is None else is_unfinished.any()[None].long()
        packed = torch.cat((token_ids, best.isfinite().long(), again))
        self._packed = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True).copy_(packed, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record()

    def wait(self) -> tuple[list[int], list[bool]]:
        """Wait for the copy; return the tokens, and which rows are sound."""
        if self._event is None:
            return self._token_ids.tolist(), self._best.isfinite().tolist()
        self._event.synchronize()
        numbers = self._packed.tolist()
        half = len(numbers) // 2
        return numbers[:half], [bool(number) for number in numbers[half:-1]]

    def is_final(self) -> bool:
        """Return True if no row must be drawn again. Waits for the copy."""
        if self._event is None:
            return self._is_unfinished is None or not bool(self._is_unfinished.any())
        self._event.synchronize()
        return not self._packed[-1].item()


@dataclass(frozen=True, slots=True)
class PendingTokens:
    """The state of a sampling step between `Sampler.start` and `Sampler.finish`."""

    sequences: list[Sequence]
    bitmask: GrammarBitmask | None
    snapshots: list[LogprobSnapshot]
    token_ids: torch.Tensor
    """(R,) on the device, where they may already feed the next step."""
    best: torch.Tensor
    host: HostCopy
    redraw: tuple[torch.Tensor | None, tuple] | None
    """Rows (None: all) and arguments of a draw that may have ranked too few tokens."""
