"""The device benchmark on a tiny shape on the CPU: it finishes and its arithmetic is right."""

import pytest

from benchmarks.device_targets import SHAPES, busy_seconds, decode_bytes, layer_weights, prefill_operations, run
from engine.models.registry import describe_folder


def config_of(name):
    (architecture,) = SHAPES[name]["architectures"]
    return describe_folder(name, SHAPES[name] | {"architectures": [architecture]})[1]


@pytest.mark.parametrize(("name", "billions"), [("llama-3.1-8b", 6.98), ("qwen2.5-1.5b", 1.31)])
def test_shapes_have_the_weights_of_their_models(name, billions):
    assert layer_weights(config_of(name)) / 1e9 == pytest.approx(billions, rel=0.01)


def test_a_decode_step_reads_its_weights_once_and_every_context():
    config = config_of("llama-3.1-8b")
    alone, crowd = (decode_bytes(config, rows, 1000, 2, 2) for rows in (1, 64))
    assert crowd - alone == 63 * 1000 * 32 * 2 * 8 * 128 * 2
    assert decode_bytes(config, 64, 1000, 1, 1) * 2 == crowd


def test_a_prefill_computes_two_operations_per_weight_and_token_and_more():
    config = config_of("llama-3.1-8b")
    assert 1.0 < prefill_operations(config, 8, 2048) / (2 * layer_weights(config) * 8 * 2048) < 1.1


def test_time_with_two_kernels_at_once_counts_once():
    assert busy_seconds([(0, 10), (5, 12), (20, 30), (21, 22)]) == pytest.approx(22e-6)


@pytest.mark.slow
def test_the_table_can_be_printed_on_a_cpu(capsys):
    run("tiny", "cpu")
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("GB/s", "decode, 1 rows", "decode, 4 rows", "prefill, 2 x 48"))
