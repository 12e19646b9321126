"""When each token is said: the cross-attention of a decoder, aligned by dynamic time warping.

The method is Whisper's (https://github.com/openai/whisper, timing.py), as transformers has it: weights of chosen heads,
normalised over the tokens, smoothed by a median, and the cheapest way through their mean.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

DIAGONAL, TOKEN, TIME = 0, 1, 2
"""The step to a place of the way: with both, with the next token, with the next time."""


def token_starts(weights: torch.Tensor, median_width: int, seconds: float) -> list[float]:
    """Return when each token begins, in seconds. `weights`: (heads, tokens, times); `seconds`: of a time."""
    spread, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
    smooth = _median(((weights - mean) / spread).nan_to_num(), median_width)
    tokens, times = cheapest_way(-smooth.mean(dim=0).double().cpu().numpy())
    is_first = np.diff(tokens, prepend=-1).astype(bool)
    return [float(place) * seconds for place in times[is_first]]


def cheapest_way(costs: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows and columns of the cheapest monotonic way from the first cell to the last.

    Cells of one diagonal depend on the two before it alone, so that each is computed at once.
    """
    num_rows, num_columns = costs.shape
    total = np.full((num_rows + 1, num_columns + 1), np.inf, dtype=np.float32)
    steps = np.full((num_rows + 1, num_columns + 1), TIME, dtype=np.int8)
    total[0, 0] = 0
    for diagonal in range(2, num_rows + num_columns + 1):
        rows = np.arange(max(1, diagonal - num_columns), min(num_rows, diagonal - 1) + 1)
        columns = diagonal - rows
        both, down, right = total[rows - 1, columns - 1], total[rows - 1, columns], total[rows, columns - 1]
        chosen = np.where(
            (both < down) & (both < right), DIAGONAL, np.where((down < both) & (down < right), TOKEN, TIME)
        )
        best = np.choose(chosen, (both, down, right))
        total[rows, columns] = costs[rows - 1, columns - 1] + best
        steps[rows, columns] = chosen
    steps[0, :], steps[:, 0] = TIME, TOKEN
    row, column, way = num_rows, num_columns, list[tuple[int, int]]()
    while row > 0 or column > 0:
        way.append((row - 1, column - 1))
        step = steps[row, column]
        row -= step != TIME
        column -= step != TOKEN
    rows, columns = np.array(way[::-1]).T
    return rows, columns


def _median(values: torch.Tensor, width: int) -> torch.Tensor:
    half = width // 2
    if values.shape[-1] <= half:
        return values
    padded = functional.pad(values, (half, half), mode="reflect")
    return padded.unfold(-1, width, 1).sort()[0][..., half]
