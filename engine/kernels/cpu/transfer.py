"""Upload of small tensors to a device. Every upload of a step uses it, so that none waits for the device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch


def upload(values: Sequence | np.ndarray, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return numbers as a tensor on `device`.

    A copy to CUDA goes through pinned memory in stream order: from pageable memory torch would wait for all earlier
    work. The allocator of pinned memory keeps a buffer until its copy is over.
    """
    if isinstance(values, np.ndarray):
        # Contiguous: pinned memory keeps gaps, and an array with gaps is not copied asynchronously.
        tensor = torch.from_numpy(np.ascontiguousarray(values)).to(dtype)
    else:
        tensor = torch.tensor(values, dtype=dtype)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
