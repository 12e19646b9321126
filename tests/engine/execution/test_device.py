"""Device checks, errors that lose the device, and out-of-memory messages at load. Needs no device."""

import json
import subprocess
import sys

import pytest
import torch

from engine.api.errors import ModelLoadError
from engine.execution import device as device_module
from engine.execution.device import check_device, has_lost_device, refused_if_too_large

ASTRAY = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported"


@pytest.fixture
def cuda_build(monkeypatch):
    """Make this torch look like a build with CUDA."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")


def test_a_cpu_is_always_available():
    assert check_device("cpu", batch_invariant=True).type == "cpu"


def test_a_torch_without_cuda_is_reported_with_the_remedy(monkeypatch):
    """The worker reported this as "the engine's core failed; its log has the details"."""
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(
        ModelLoadError, match=r"this torch, .*, is built without CUDA; .* --force-reinstall torch==[\d.]+`"
    ):
        check_device("cuda")


def test_the_error_of_a_device_is_quoted(cuda_build, monkeypatch):
    def refuse(*size, device):
        raise RuntimeError("Found no NVIDIA driver on your system.\nPlease check that you have an NVIDIA GPU")

    monkeypatch.setattr(torch, "ones", refuse)
    with pytest.raises(
        ModelLoadError,
        match=r"Found no NVIDIA driver on your system\. Please .* driver for CUDA 13\.0: see what nvidia",
    ):
        check_device("cuda")


def test_an_older_gpu_is_refused_by_its_capability(cuda_build, monkeypatch):
    monkeypatch.setattr(torch, "ones", lambda *size, device: torch.zeros(1))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    with pytest.raises(ModelLoadError, match=r"compute capability 8\.0 or more, this GPU has 7\.5"):
        check_device("cuda")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"device": "cuda", "batch_invariant": True}, "batch_invariant is not offered on 'cuda'"),
        ({"device": "cpu", "kv_cache": "fp8"}, "kv_cache 'fp8' needs a CUDA device"),
        ({"device": "cpu", "weights": "int8"}, "weights 'int8' need a CUDA device"),
        ({"device": "cpu", "weights": "int3"}, "weights must be one of auto, bf16"),
    ],
)
def test_options_that_a_device_cannot_serve_are_refused_before_it_is_opened(options, words):
    with pytest.raises(ModelLoadError, match=words):
        check_device(**options)


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError(ASTRAY),
        torch.AcceleratorError("CUDA error: unspecified launch failure"),
        torch.AcceleratorError("CUDA error: device-side assert triggered"),
        torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered"),
    ],
)
def test_illegal_access_errors_lose_the_device(error):
    assert has_lost_device(error)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"),
        ValueError("an illegal memory access was encountered, says a logits processor"),
        RuntimeError("'an illegal memory access was encountered' is no word of this grammar"),
    ],
)
def test_other_errors_do_not_lose_the_device(error):
    assert not has_lost_device(error)


@pytest.mark.parametrize(
    "text", ["CUBLAS_STATUS_EXECUTION_FAILED", "Triton Error [CUDA]: an illegal memory access was encountered"]
)
@pytest.mark.parametrize("answers", [True, False])
def test_an_unknown_cuda_error_is_settled_by_synchronising(answers, text, monkeypatch):
    def synchronize():
        if not answers:
            raise torch.AcceleratorError("CUDA error: something new")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    assert has_lost_device(RuntimeError(text)) is not answers


def test_a_model_too_large_for_the_device_is_refused_with_sizes_and_remedies():
    with (
        pytest.raises(ModelLoadError, match=r"does not suffice .* Tried to allocate 20\.00 MiB.* weights 'int8'"),
        refused_if_too_large(),
    ):
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 11.00 GiB"
        )


@pytest.mark.slow
def test_the_device_check_runs_in_its_own_process():
    command = [sys.executable, "-m", device_module.__name__, json.dumps({"device": "cuda", "batch_invariant": True})]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (answer.returncode, answer.stdout[:16]) == (1, "batch_invariant ")
