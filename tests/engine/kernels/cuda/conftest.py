"""The Triton kernels on a device where there is one, else in Triton's interpreter on CPU tensors: the same code, the
same tests.
"""

import pytest
import torch


@pytest.fixture(scope="package")
def device():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
