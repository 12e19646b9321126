"""Small tensors on their way to a device. Every upload of a step goes through here, so that none of them waits for the device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch


def upload(values: Sequence | np.ndarray, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Numbers as a tensor on `device`.

    To CUDA they go through pinned memory in the order of the stream: from pageable memory torch would wait until the device has done all
    that it was given before. The allocator of pinned memory keeps a buffer until its copy is over.
    """
    if isinstance(values, np.ndarray):
        tensor = torch.from_numpy(np.ascontiguousarray(values)).to(
            dtype
        )  # pinned memory keeps gaps, and they are not copied at once
    else:
        tensor = torch.tensor(values, dtype=dtype)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
