"""Threads that share programs give the results of one thread, with any number of callers and awake threads."""

from __future__ import annotations

import ctypes
import threading
import time

import pytest
import torch

from engine.kernels.cpu import operators, work_sharing
from engine.kernels.cpu.openmp import PARALLEL
from engine.kernels.cpu.threads import KERNEL_THREADS, WorkSharing
from engine.quantization.gguf_blocks import GROUP_SIZE, FourBitGroups
from engine.quantization.panel_weight import PanelWeight
from engine.quantization.torch_forms import quantize_weight

pytestmark = pytest.mark.skipif(PARALLEL is None, reason="needs GNU's OpenMP")

DEADLINE_S = 30.0


@pytest.fixture
def own_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    KERNEL_THREADS.start(3)
    yield KERNEL_THREADS
    KERNEL_THREADS.stop()
    torch.set_num_threads(before)


def normalised(x):
    return operators.add_normalize(
        x.clone(), None, torch.ones(x.shape[1]), None, torch.tensor([1e-5, 1.0, 1.0]), torch.float32
    )


def workers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("kernels-")]


def test_started_threads_replace_those_of_torch_until_stop(own_threads):
    assert own_threads.num_threads == 3
    assert torch.get_num_threads() == 1
    assert len(workers()) == 2
    own_threads.stop()
    assert own_threads.num_threads == torch.get_num_threads() == 3
    assert workers() == []


def test_starting_threads_twice_has_no_effect(own_threads):
    own_threads.start(2)
    assert own_threads.num_threads == 3


def test_single_threaded_context_starts_no_helpers(own_threads):
    with own_threads.single_threaded():
        assert own_threads.num_threads == torch.get_num_threads() == 1
    assert own_threads.num_threads == 3


def test_results_are_right_while_other_threads_call_kernels(own_threads):
    x = torch.randn(64, 1024)
    with own_threads.single_threaded():
        expected = normalised(x)
    wrong = []

    def call():
        for _ in range(200):
            if not torch.equal(normalised(x), expected):
                wrong.append(1)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


def test_workers_sleep_without_work_and_are_woken():
    sharing = WorkSharing(3)
    sleepers = ctypes.c_int64.from_address(sharing.shared + work_sharing.SLEEPERS)

    def wait_for_sleep():
        deadline = time.monotonic() + DEADLINE_S
        while sleepers.value < 2:
            assert time.monotonic() < deadline
            time.sleep(0.001)  # workers need a core to fall asleep

    x = torch.randn(64, 1024)
    expected = normalised(x)
    before, KERNEL_THREADS._own = KERNEL_THREADS._own, sharing
    try:
        for _ in range(3):
            wait_for_sleep()
            assert torch.equal(normalised(x), expected)
        wait_for_sleep()
    finally:
        KERNEL_THREADS._own = before
        sharing.shutdown()
    assert workers() == []


def test_a_program_of_many_operations_is_run_in_order(own_threads):
    """Each row's norms build on the last; a part that began before its operation's turn would show."""
    x = torch.randn(32, 2048)
    weight, eps = torch.rand(2048), torch.tensor([1e-5, 1.0, 1.0])
    hidden = x.clone()
    with operators.recording() as recording:
        delta = None
        for _ in range(300):
            delta = operators.add_normalize(hidden, delta, weight, None, eps, torch.float32)
    expected, expected_delta = x.clone(), None
    for _ in range(300):
        expected_delta = operators.add_normalize(expected, expected_delta, weight, None, eps, torch.float32)
    for _ in range(20):
        hidden.copy_(x)
        recording.run(32)
        assert torch.equal(hidden, expected)
        assert torch.equal(delta, expected_delta)


def test_a_program_can_run_with_fewer_rows(own_threads):
    x, weight, eps = torch.randn(48, 2048), torch.rand(2048), torch.tensor([1e-5, 1.0, 1.0])
    with operators.recording() as recording:
        out = operators.add_normalize(x, None, weight, None, eps, torch.float32)
    expected = operators.add_normalize(x, None, weight, None, eps, torch.float32)
    for num_rows in (48, 1, 20, 47, 48):
        out.fill_(7.0)
        recording.run(num_rows)
        assert torch.equal(out[:num_rows], expected[:num_rows])
        assert (out[num_rows:] == 7.0).all()


@pytest.mark.skipif(not PanelWeight.fits((32, 32)), reason="needs a processor with AVX2")
@pytest.mark.parametrize("bits", [4, 8])
def test_a_product_shared_by_threads_can_run_with_fewer_rows(own_threads, bits):
    """The size makes threads quantise rows together; 3, 7, 35 and 39 rows need a copied row that is not stored."""
    num_inputs, num_outputs, generator = 512, 2048, torch.Generator().manual_seed(1)
    if bits == 4:
        q = torch.randint(0, 16, (num_outputs, num_inputs), generator=generator, dtype=torch.uint8)
        scale = torch.rand(num_outputs, num_inputs // GROUP_SIZE, generator=generator)
        weight = PanelWeight.four_bit(FourBitGroups(q, scale, scale - 1))
    else:
        levels, scale = quantize_weight(torch.randn(num_outputs, num_inputs, generator=generator))
        weight = PanelWeight.eight_bit(levels, scale[:, None])
    x = torch.randn(80, num_inputs, generator=generator)
    with operators.recording() as recording:
        out = weight(x)
    expected = weight(x)
    for num_rows in (80, 33, 35, 39, 7, 3, 1, 80):
        out.fill_(7.0)
        recording.run(num_rows)
        assert torch.equal(out[:num_rows], expected[:num_rows])
        assert (out[num_rows:] == 7.0).all()


def test_a_recording_reuses_a_buffer_after_three_results_of_other_sizes(own_threads):
    rows = {size: torch.randn(2, size) for size in (64, 128, 192)}
    with operators.recording():
        addresses = [
            operators.add_normalize(
                rows[size], None, torch.rand(size), None, torch.tensor([1e-5, 1.0, 1.0]), torch.float32
            ).data_ptr()
            for size in (64, 128, 192, 64, 128, 192)
        ]
    assert addresses[3:] == addresses[:3]


def test_a_recording_reuses_a_buffer_after_two_further_results(own_threads):
    x, weight, eps = torch.randn(2, 64), torch.rand(64), torch.tensor([1e-5, 1.0, 1.0])
    with operators.recording():
        addresses = [operators.add_normalize(x, None, weight, None, eps, torch.float32).data_ptr() for _ in range(9)]
    assert len(set(addresses[:3])) == 3
    assert addresses == addresses[:3] * 3


@pytest.mark.parametrize("has_own", [True, False])
def test_a_limit_of_threads_changes_no_results(has_own):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    threads = KERNEL_THREADS
    if has_own:
        threads.start(3)
    try:
        x = torch.randn(64, 2048)
        weight, eps = torch.rand(2048), torch.tensor([1e-5, 1.0, 1.0])
        with operators.recording() as recording:
            out = operators.add_normalize(x, None, weight, None, eps, torch.float32)
        recording.run(64)
        expected = out.clone()
        for limit in (1, 2, 3, 2, 1, 3):
            threads.limit(limit)
            assert threads.num_threads == 3
            for num_rows in (64, 5, 64):
                out.zero_()
                recording.run(num_rows)
                assert torch.equal(out[:num_rows], expected[:num_rows])
            assert torch.equal(operators.add_normalize(x, None, weight, None, eps, torch.float32), expected)
            assert torch.get_num_threads() == (1 if has_own else limit)
        assert len(workers()) == (3 if has_own else 0)
    finally:
        threads.limit(0)
        threads.stop()
        torch.set_num_threads(before)
    assert workers() == []
