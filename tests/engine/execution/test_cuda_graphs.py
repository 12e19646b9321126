"""Decode steps over fixed buffers, on CPU tensors: padding, changing block tables, and the CUDA path of the layers."""

import numpy as np
import pytest
import torch

from engine.api import EmbedOptions
from engine.attention.xformers_paged import XformersAttention
from engine.config import EngineConfig
from engine.execution.cuda_graphs import DecodeGraphs, DeviceBlockTables, row_counts
from engine.execution.overlap import DeviceTokens
from engine.execution.prompts import pool_states
from engine.execution.runner import ModelRunner
from engine.layers.adapters import AdapterWeights, CpuAdapters, LowRank, TorchAdapters
from engine.loading.loader import load_model
from engine.quantization import byte_weight
from engine.quantization.byte_weight import ByteWeight
from engine.quantization.scheme import BUILDERS
from engine.quantization.torch_forms import DenseWeight, quantize_rows
from engine.sequence import Chunk, StepPlan
from tests.engine.cuda_on_cpu import RepeatedCompute, take_the_cuda_path
from tests.engine.execution.test_runner import BLOCK_SIZE, make_sequence
from tests.engine.random_model import random_model

pytestmark = pytest.mark.interpreted
CPU = torch.device("cpu")
NUM_BLOCKS = 40
TOLERANCE = 1e-4
CACHE_DIVERGENCE = 0.02
"""Limit of the mean KL divergence; attention of random weights is sharper than that of real models."""


GROWING = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
CHANGES = {
    "Llama": {},
    "Ministral3": {"rope_parameters": GROWING | {"llama_4_scaling_beta": 0.1}, "head_dim": 8},
    "GraniteSWA": {"sliding_window": 512, "layer_rope_theta": [0, 10000.0]},
}
BIASED = "Qwen2"
FAMILIES = (*CHANGES, BIASED)


def save_model(folder, family):
    sizes = {"hidden_size": 48, "intermediate_size": 80, "num_attention_heads": 6}
    model = random_model(family, seed=5, spread=0.2, **sizes, **CHANGES.get(family, {}))
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model whose products have biases."""
    return save_model(tmp_path_factory.mktemp("model"), BIASED)


class Twins:
    """The CPU's runner, and the same decoder on the CUDA path with its own cache."""

    def __init__(self, folder, monkeypatch, max_rows=3, cache=torch.float32, form=None):
        self.config = EngineConfig(
            folder, "tiny", weights="float32", max_num_batched_tokens=256, max_num_seqs=max_rows, block_size=BLOCK_SIZE
        )
        self.loaded = self.other = load_model(folder, weights="float32")
        if form is not None:
            self.loaded, self.other = (self._load(folder, monkeypatch, build) for build in form)
        self.cpu = ModelRunner(self.loaded, self.config)
        shapes = [layer.attention for layer in self.loaded.config.layers]
        self.attention = XformersAttention(
            shapes, device=CPU, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, dtype=cache
        )
        self._patch = monkeypatch
        with self._patch.context() as patch:
            take_the_cuda_path(patch)
            self.graphs = DecodeGraphs(
                self.other.decoder, self.attention, max_rows, 512 // BLOCK_SIZE, RepeatedCompute()
            )

    def prefill(self, sequence, adapters=None):
        """Fill both caches with the keys of a prompt; the CUDA path takes it in two chunks."""
        length = sequence.num_tokens
        expected = self.cpu.forward(StepPlan((Chunk(sequence, 0, length, True),)))
        for start, stop in ((0, length // 2), (length // 2, length)):
            logits = self.layer_by_layer(StepPlan((Chunk(sequence, start, stop - start, True),)), adapters)[-1:]
        self.compare(logits, expected)

    def layer_by_layer(self, plan, adapters=None):
        """Return the logits of all rows on the CUDA path, without graphs. `adapters`: those of the model, if any."""
        batch = self.cpu._batches.build(plan)
        with self._patch.context() as patch:
            take_the_cuda_path(patch)
            step = adapters and adapters.begin_step(batch.adapters, len(batch.token_ids))
            attention = self.attention.begin_step(batch.layout)
            return self.other.decoder.logits(
                self.other.decoder.forward(batch.token_ids, batch.positions, attention, step)
            )

    def decode(self, sequences, fed=None):
        plan = StepPlan(tuple(Chunk(sequence, sequence.num_tokens - 1, 1, True) for sequence in sequences))
        assert self.graphs.takes(plan)
        expected = self.cpu.forward(plan).clone()
        with self._patch.context() as patch:
            take_the_cuda_path(patch)
            logits = self.other.decoder.logits(self.graphs.forward(plan, fed))
        self.compare(logits, expected)

    def compare(self, logits, expected):
        torch.testing.assert_close(logits, expected, atol=TOLERANCE, rtol=0)

    @staticmethod
    def _load(folder, monkeypatch, build):
        with monkeypatch.context() as patch:
            patch.setitem(BUILDERS, "float32", lambda matrix, device: build(*quantize_rows(matrix)))
            return load_model(folder, weights="float32")


@pytest.mark.slow
@pytest.mark.parametrize("family", CHANGES)
def test_decode_steps_give_the_logits_of_the_cpu_while_sequences_come_and_go(family, tmp_path, monkeypatch):
    twins = Twins(save_model(tmp_path, family), monkeypatch)
    a, b, c = make_sequence(1, 30, [7, 3]), make_sequence(2, 21, [1, 20]), make_sequence(3, 9, [5])
    for sequence in (a, b, c):
        twins.prefill(sequence)
    for crowd in ([a, b], [a, b, c], [c, a], [b]):
        for sequence in crowd:
            sequence.output_ids.append(sequence.num_tokens % 200)
            if sequence.num_tokens > len(sequence.block_ids) * BLOCK_SIZE:
                sequence.block_ids.append(30 + sequence.seq_id)
        twins.decode(crowd)


@pytest.mark.slow
def test_rows_with_adapters_are_computed_without_graphs_and_give_the_logits_of_the_cpu(folder, monkeypatch):
    twins = Twins(folder, monkeypatch)
    sizes = [target.size for target in twins.loaded.adapter_targets]
    torch.manual_seed(0)
    changes = {
        place: tuple(LowRank(torch.randn(4, size.num_inputs), torch.randn(n, 4) * 0.1) for n in size.num_outputs)
        for place, size in enumerate(sizes)
    }
    on_cpu, by_torch = CpuAdapters(sizes, torch.float32), TorchAdapters(sizes, CPU, torch.float32)
    for adapters in (on_cpu, by_torch):
        adapters.bind(1, adapters.pack(AdapterWeights(changes, 4, ())))
    twins.cpu.serve_adapters(on_cpu)
    a, b = make_sequence(1, 30, [7, 3]), make_sequence(2, 21, [1, 20])
    a.adapter_index = 1
    for sequence in (a, b):
        twins.prefill(sequence, by_torch)
        sequence.output_ids.append(sequence.num_tokens % 200)
    plan = StepPlan(tuple(Chunk(sequence, sequence.num_tokens - 1, 1, True) for sequence in (a, b)))
    assert not twins.graphs.takes(plan)
    twins.compare(twins.layer_by_layer(plan, by_torch), twins.cpu.forward(plan))


@pytest.mark.slow
def test_eight_bit_weights_give_the_logits_of_their_dequantised_matrices(folder, monkeypatch):
    """With a long prompt, which uses dequantised matrices."""
    monkeypatch.setattr(byte_weight, "FEW_ROWS", 16)
    forms = (
        lambda values, scale: DenseWeight(values * scale[:, None]),
        lambda values, scale: ByteWeight(values, scale, torch.float32),
    )
    twins = Twins(folder, monkeypatch, form=forms)
    a, b = make_sequence(1, 40, [7, 3, 9]), make_sequence(2, 9, [1])
    for sequence in (a, b):
        twins.prefill(sequence)
        sequence.output_ids.append(sequence.num_tokens % 200)
    twins.decode([a, b])


@pytest.mark.slow
def test_an_eight_bit_cache_stays_near_the_exact_one(folder, monkeypatch):
    """A second decode reads keys and values written by chunks and by the first decode."""
    twins = Twins(folder, monkeypatch, cache=torch.float8_e4m3fn)
    divergences = []

    def compare(logits, expected):
        exact = expected.log_softmax(-1)
        divergences.append((exact.exp() * (exact - logits.log_softmax(-1))).sum(-1).mean().item())

    twins.compare = compare
    a, b = make_sequence(1, 30, [7, 3]), make_sequence(2, 9, [1])
    for sequence in (a, b):
        twins.prefill(sequence)
    for _ in range(2):
        for sequence in (a, b):
            sequence.output_ids.append(sequence.num_tokens % 200)
        twins.decode([a, b])
    assert 0 < max(divergences) < CACHE_DIVERGENCE, divergences


@pytest.mark.slow
def test_a_step_can_use_tokens_that_exist_only_on_the_device(folder, monkeypatch):
    twins = Twins(folder, monkeypatch, max_rows=2)
    a, b = make_sequence(1, 10, [7]), make_sequence(2, 5, [1])
    for sequence, token_id in ((a, 77), (b, 12)):
        twins.prefill(sequence)
        sequence.output_ids.append(token_id)
    twins.decode([a, b], fed=DeviceTokens(torch.tensor([3, 12, 77]), [2, 1]))


@pytest.mark.slow
@pytest.mark.parametrize("options", [EmbedOptions("mean"), EmbedOptions("last", 20)])
def test_vectors_of_prompts_are_those_of_the_cpu(folder, monkeypatch, options):
    twins = Twins(folder, monkeypatch)
    expected, found = make_sequence(1, 30, [7, 3]), make_sequence(1, 30, [7, 3])
    expected.embed = found.embed = options
    for start, count in ((0, 17), (17, 12), (29, 1)):
        twins.cpu.forward(StepPlan((Chunk(expected, start, count, False),)))
        wanted = twins.cpu.prompt_results(StepPlan((Chunk(expected, start, count, False),))).vectors
        plan = StepPlan((Chunk(found, start, count, False),))
        batch = twins.cpu._batches.build(plan)
        with monkeypatch.context() as patch:
            take_the_cuda_path(patch)
            hidden = twins.other.decoder.forward(
                batch.token_ids, batch.positions, twins.attention.begin_step(batch.layout)
            )
            vectors = pool_states(plan, hidden, twins.other.decoder.normed, twins.other.decoder.logits)
    twins.compare(torch.tensor(vectors[1]), torch.tensor(wanted[1]))


def test_graphs_are_used_only_for_decode_steps_that_sample_every_row(folder, monkeypatch):
    graphs = Twins(folder, monkeypatch, max_rows=2).graphs
    a = make_sequence(1, 30, [7, 3])
    assert graphs.takes(StepPlan((Chunk(a, 29, 1, True),)))
    for chunks in (
        [Chunk(a, 0, 30, True)],
        [Chunk(a, 28, 1, False)],
        [Chunk(a, 29, 1, True, (4,))],
        [Chunk(a, 29, 1, True)] * 3,
    ):
        assert not graphs.takes(StepPlan(tuple(chunks)))


def test_block_tables_follow_growing_and_changing_blocks():
    tables = DeviceBlockTables(capacity=3, width=6, num_groups=1, padding_block=99, device=CPU)
    generator = np.random.default_rng(3)
    held = [[], [], []]
    for _ in range(200):
        row = int(generator.integers(3))
        match int(generator.integers(4)):
            case 0:
                held[row] = generator.integers(50, size=generator.integers(1, 7)).tolist()
            case 1 if len(held[row]) < 6:
                held[row] = [*held[row], int(generator.integers(50))]
            case 2:
                held[row], held[0] = held[0], held[row]
            case 3 if held[row]:
                held[row][-1] = int(generator.integers(50))
        num_rows = int(generator.integers(1, 4))
        tables.fill(held[:num_rows])
        for found, blocks in zip(tables.rows(num_rows)[0].tolist(), held, strict=False):
            assert found[: len(blocks)] == blocks


@pytest.mark.parametrize(
    ("most", "counts"),
    [
        (1, [1]),
        (3, [1, 2, 3]),
        (8, [1, 2, 4, 8]),
        (20, [1, 2, 4, 8, 16, 20]),
        (97, [1, 2, 4, *range(8, 65, 8), 96, 97]),
    ],
)
def test_few_row_counts_are_captured_up_to_max_num_seqs(most, counts):
    assert row_counts(most) == counts
