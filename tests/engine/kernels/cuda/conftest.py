"""The Triton kernels run on a device if there is one, otherwise in Triton's interpreter on CPU tensors."""

import pytest
import torch


@pytest.fixture(scope="package")
def device():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
