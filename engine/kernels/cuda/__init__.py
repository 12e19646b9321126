"""Operators of the step on CUDA, as Triton kernels. Their tests hold the plain torch that they must agree with.

Imported only where a CUDA device computes. Kernels use plain pointers: Triton 3.9 removed block pointers, which
xformers' kernels use. No kernel is specialised on a size that changes from step to step, so each is compiled once per
model and can be captured in graphs. Without a device, tests run them in Triton's interpreter.
"""

import os

import torch

# Triton 3.9 does so by default, with a warning; 3.10 will not, and its results would differ.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")


def processor_count(device: torch.device) -> int:
    """Return the number of the device's processors; two for a CPU, where tests interpret kernels."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2
