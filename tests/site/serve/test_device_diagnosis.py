"""The doctor's check of the device. Another process opens it, as this one must not load torch."""

import subprocess

import pytest

from lightcone_site.serve.diagnosis import check_device


@pytest.fixture
def tried(monkeypatch):
    """Replace the process that opens the device: its exit code and output are set, `command` is recorded."""

    class Tried:
        returncode, stdout, stderr, command = 0, "", "", ()

        def run(self, command, timeout, **options):
            self.command = command
            if self.returncode is None:
                raise subprocess.TimeoutExpired(command, timeout)
            return subprocess.CompletedProcess(command, self.returncode, self.stdout, self.stderr)

    tried = Tried()
    monkeypatch.setattr(subprocess, "run", tried.run)
    return tried


def test_a_working_device_is_reported(tried, settings):
    settings.LIGHTCONE_DEVICE = "cuda"
    (finding,) = check_device()
    assert (finding.text, finding.is_problem) == ("cuda computes", False)
    assert '"device": "cuda"' in tried.command[-1]


@pytest.mark.parametrize(
    ("code", "said", "text"),
    [
        (1, {"stdout": "device 'cuda' cannot be used: no driver\n"}, "device 'cuda' cannot be used: no driver"),
        (1, {"stderr": "Traceback\n  torch\nImportError: libcudart.so.13\n"}, "ImportError: libcudart.so.13"),
        (-11, {}, "opening cuda ended the process that tried (code -11)"),
        (None, {}, "cuda did not answer within 600 s"),
    ],
)
def test_an_unusable_device_is_a_problem_with_a_remedy(tried, settings, code, said, text):
    """The doctor passed LIGHTCONE_DEVICE=cuda without CUDA, and the model never loaded."""
    settings.LIGHTCONE_DEVICE = "cuda"
    vars(tried).update(returncode=code, **said)
    (finding,) = check_device()
    assert finding.text == text
    assert "LIGHTCONE_DEVICE" in finding.remedy


@pytest.mark.slow
def test_the_device_check_runs_the_engine(settings):
    settings.LIGHTCONE_DEVICE, settings.LIGHTCONE_KV_CACHE = "cpu", "fp8"
    (finding,) = check_device()
    assert finding.text == "kv_cache 'fp8' needs a CUDA device, got 'cpu': use kv_cache 'auto'"
