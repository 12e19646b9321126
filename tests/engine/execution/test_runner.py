"""The runner against transformers on a small random Llama: prompts, chunks, prefix hits and mixed steps."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.api.errors import ModelLoadError
from engine.api.request import LogprobOptions
from engine.config import EngineConfig
from engine.execution.batch import dummy_sequence
from engine.execution.runner import ModelRunner
from engine.execution.step_sizes import CPU_STEP_TOKENS, MIN_STEP_TOKENS
from engine.kernels.cpu.openmp import PARALLEL
from engine.kernels.cpu.threads import KERNEL_THREADS
from engine.loading.loader import load_model
from engine.quantization.panel_weight import PanelWeight
from engine.sequence import Chunk, Sequence, StepPlan
from tests.engine.random_model import SIZES, random_model
from tests.engine.threads import threads_of

VOCAB_SIZE = SIZES["vocab_size"]
BLOCK_SIZE = 16
TOLERANCE = 1e-4
"""Both sides are float32 and differ in the order of additions, over three layers."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A folder with a random Llama of three layers, and the transformers model that wrote it."""
    model = random_model(seed=5, hidden_size=96, intermediate_size=160, num_hidden_layers=3, num_attention_heads=6)
    folder = tmp_path_factory.mktemp("llama")
    model.save_pretrained(folder)
    return folder, model


@pytest.fixture(autouse=True)
def stopped_threads():
    yield
    KERNEL_THREADS.stop()


def make_runner(folder, **changes):
    options = {
        "weights": "float32",
        "max_num_batched_tokens": 256,
        "max_num_seqs": 4,
        "block_size": BLOCK_SIZE,
    } | changes
    config = EngineConfig(model_path=folder, model_name="tiny", **options)
    loaded = load_model(
        folder, weights=config.weights, max_model_len=config.max_model_len, batch_invariant=config.batch_invariant
    )
    return ModelRunner(loaded, config)


@pytest.fixture(scope="module", params=[False, True], ids=["default", "batch_invariant"])
def runner(request, checkpoint):
    return make_runner(checkpoint[0], batch_invariant=request.param)


def make_sequence(number, length, block_ids):
    ids = torch.randint(0, VOCAB_SIZE, (length,), generator=torch.Generator().manual_seed(number)).tolist()
    return dummy_sequence(number, ids, block_ids, max_tokens=100)


def expected_logits(model, sequence, position):
    with torch.inference_mode():
        return model(torch.tensor([sequence.token_slice(0, position + 1)])).logits[0, -1]


def run(runner, model, *chunks):
    """Run one step of (sequence, start, count); compare every chunk that reaches its end."""
    plan = StepPlan(tuple(Chunk(seq, start, count, start + count == seq.num_tokens) for seq, start, count in chunks))
    logits = runner.forward(plan)
    wanted = [
        expected_logits(model, seq, seq.num_tokens - 1)
        for seq, start, count in chunks
        if start + count == seq.num_tokens
    ]
    assert logits.dtype == torch.float32
    assert logits.shape == (len(wanted), VOCAB_SIZE)
    if wanted:
        torch.testing.assert_close(logits, torch.stack(wanted), atol=TOLERANCE, rtol=0)


def test_logits_are_those_of_transformers_over_chunks_decodes_and_prefix_hits(runner, checkpoint):
    model = checkpoint[1]
    a, b = make_sequence(1, 40, [7, 3, 9, 11]), make_sequence(2, 75, [1, 20, 5, 4, 8, 2])
    c = make_sequence(3, 41, [7, 3, 30, 31])
    c.prompt_ids[:32] = a.prompt_ids[:32]
    run(runner, model, (a, 0, 40), (b, 0, 20))
    a.output_ids.append(17)
    run(runner, model, (a, 40, 1), (b, 20, 50))
    a.output_ids.append(3)
    run(runner, model, (a, 41, 1), (b, 70, 5), (c, 32, 9))
    for token in (5, 6, 7):
        for sequence in (a, b, c):
            sequence.output_ids.append(token)
        run(runner, model, *((sequence, sequence.num_tokens - 1, 1) for sequence in (b, a, c)))


def test_a_lone_sequence_decodes_across_block_borders_like_transformers(runner, checkpoint):
    model = checkpoint[1]
    sequence = make_sequence(4, 28, [12, 2, 6, 1])
    run(runner, model, (sequence, 0, 28))
    for token in range(24):
        sequence.output_ids.append(token)
        run(runner, model, (sequence, 28 + token, 1))


def test_a_step_that_samples_nothing_gives_no_rows(runner, checkpoint):
    run(runner, checkpoint[1], (make_sequence(5, 60, [0, 1, 2, 3]), 0, 30))


def test_batch_invariant_logits_are_equal_bit_for_bit_alone_and_in_a_crowd(checkpoint):
    """The weights compute each row on its own; float32 products of MKL depend on the number of rows."""
    runner = make_runner(checkpoint[0], batch_invariant=True, weights="auto")

    def last_logits(steps):
        for chunks in steps:
            logits = runner.forward(
                StepPlan(tuple(Chunk(s, start, n, start + n == s.num_tokens) for s, start, n in chunks))
            )
        return logits[-1]

    a, b = make_sequence(1, 50, [7, 3, 9, 11]), make_sequence(2, 75, [1, 20, 5, 4, 8, 2])
    alone = last_logits([[(a, 0, 50)]])
    crowd = last_logits([[(a, 0, 13), (b, 0, 70)], [(b, 70, 5), (a, 13, 37)]])
    assert torch.equal(alone, crowd)


@pytest.mark.parametrize("tokens", [0, 64])
@pytest.mark.parametrize("weights", ["float32", "auto"])
@pytest.mark.parametrize(("factor", "gain"), [(1e-300, 1.0), (1.0, 1e38)])
def test_a_model_whose_steps_give_no_finite_logits_is_refused(tmp_path, tokens, weights, factor, gain):
    """Weights and description are finite numbers; every request failed."""
    random_model(hidden_size=128, num_attention_heads=2, vocab_size=224, head_dim=64).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.norm.weight"] *= gain
    tensors["lm_head.weight"] *= gain
    save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"rope_parameters": {"rope_type": "linear", "factor": factor}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelLoadError, match="computes logits that are NaN or infinite"):
        make_runner(tmp_path, weights=weights, max_num_batched_tokens=tokens)


def test_the_step_budget_is_measured_within_its_bounds(checkpoint):
    runner = make_runner(checkpoint[0], max_num_batched_tokens=0)
    assert MIN_STEP_TOKENS <= runner.max_num_batched_tokens <= CPU_STEP_TOKENS
    assert make_runner(checkpoint[0], max_num_batched_tokens=100).max_num_batched_tokens == 100


@pytest.mark.parametrize(("seconds", "expected"), [(0.001, CPU_STEP_TOKENS), (0.01, 400), (0.1, MIN_STEP_TOKENS)])
def test_the_slow_first_step_of_a_process_does_not_make_the_budget_small(checkpoint, monkeypatch, seconds, expected):
    steps = []
    monkeypatch.setattr(
        ModelRunner, "_run_prompt", lambda self, n: steps.append(n) or (0.2 if len(steps) == 1 else seconds * n / 40)
    )
    runner = make_runner(checkpoint[0], max_num_batched_tokens=0)
    assert runner.max_num_batched_tokens == expected
    assert runner.prefill_only_token_budget == min(2 * expected, CPU_STEP_TOKENS), "larger steps are not recorded"


@pytest.mark.skipif(not PanelWeight.fits((32, 32)), reason="needs a processor with AVX2")
def test_recorded_programs_serve_the_first_request(tmp_path, monkeypatch):
    monkeypatch.setattr("engine.execution.step_programs.LOADING_S", float("inf"))  # on a machine of any load
    monkeypatch.setattr("engine.quantization.scheme.possible_forms", lambda shape, four_bit: {"panels"})
    random_model(hidden_size=128, num_attention_heads=2, vocab_size=224).save_pretrained(tmp_path)
    runner = make_runner(tmp_path, weights="auto", max_num_batched_tokens=64)
    forward = runner._programs.forward
    computed = []
    monkeypatch.setattr(
        runner._programs, "forward", lambda batch, **options: computed.append(forward(batch, **options)) or computed[-1]
    )
    monkeypatch.setattr(runner._decoder, "run_layers", None)  # for normal steps, recording and verification
    sequence = make_sequence(1, 150, list(range(10)))
    for start, num_tokens in ((0, 110), (110, 36), (146, 1), (147, 3)):
        runner.forward(StepPlan((Chunk(sequence, start, num_tokens, True),)))
    assert [len(hidden) for hidden in computed] == [110, 36, 1, 3]


@pytest.mark.skipif(not PanelWeight.fits((32, 32)), reason="needs a processor with AVX2")
def test_a_prompts_first_chunks_need_of_the_last_layer_only_keys_and_values(tmp_path, monkeypatch):
    """The logits of the last chunk are those of the whole prompt to the bit, and so are log-probabilities of it."""
    monkeypatch.setattr("engine.quantization.scheme.possible_forms", lambda shape, four_bit: {"panels"})
    random_model(hidden_size=128, num_attention_heads=2, vocab_size=224).save_pretrained(tmp_path)
    runner = make_runner(tmp_path, weights="auto", max_num_batched_tokens=64)
    sequence = make_sequence(1, 110, list(range(7)))
    scored = Sequence(replace(sequence.request, logprobs=LogprobOptions(prompt=0)), block_ids=sequence.block_ids)
    rows = []
    forward = runner._programs.forward
    monkeypatch.setattr(
        runner._programs, "forward", lambda *given, **options: rows.append(forward(*given, **options)) or rows[-1]
    )
    results = []
    for one in (sequence, scored):
        for cuts in ((0, 110), (0, 40, 77, 110)):
            one.num_scored, entries = 1, []
            for start, end in pairwise(cuts):
                plan = StepPlan((Chunk(one, start, end - start, end == 110),))
                logits = runner.forward(plan)
                entries += runner.prompt_results(plan).scores.get(1, [])
                one.num_scored = 1 + len(entries)
            results.append((logits, entries))
    assert [len(hidden) for hidden in rows] == [110, 0, 0, 33, 110, 40, 37, 33]
    assert all(torch.equal(logits, results[0][0]) for logits, _ in results)
    assert [len(entries) for _, entries in results] == [0, 0, 109, 109]
    assert results[2][1] == results[3][1]


@pytest.mark.skipif(PARALLEL is None, reason="needs GNU's OpenMP")
@pytest.mark.parametrize(
    ("is_ours", "head_size", "in_process"), [(True, 64, False), (False, 64, False), (True, 16, False), (True, 64, True)]
)
def test_kernel_threads_start_only_if_all_products_are_own_kernels(tmp_path, is_ours, head_size, in_process):
    random_model(hidden_size=2 * head_size, num_attention_heads=2).save_pretrained(tmp_path)
    loaded = replace(load_model(tmp_path, weights="float32", max_model_len=64), uses_own_kernels=is_ours)
    config = EngineConfig(
        tmp_path,
        "tiny",
        weights="float32",
        max_num_seqs=2,
        max_num_batched_tokens=64,
        block_size=BLOCK_SIZE,
        core_in_process=in_process,
    )
    with threads_of(2):
        ModelRunner(loaded, config)
        assert KERNEL_THREADS.num_threads == 2
        assert torch.get_num_threads() == (1 if (is_ours, head_size, in_process) == (True, 64, False) else 2)


def test_the_runner_reports_its_cache_size_and_context(checkpoint):
    block_bytes = 2 * 3 * 2 * 16 * BLOCK_SIZE * 4
    runner = make_runner(checkpoint[0], kv_cache_bytes=block_bytes * 20)
    assert (runner.num_blocks, runner.max_model_len) == (20, 320)
    assert make_runner(checkpoint[0], max_model_len=300).max_model_len == 300


def test_a_cache_too_small_for_the_wanted_context_is_refused(checkpoint):
    with pytest.raises(ModelLoadError, match="lower max_model_len"):
        make_runner(checkpoint[0], kv_cache_bytes=10_000, max_model_len=400)


@pytest.mark.parametrize(
    ("max_model_len", "expected"), [(64, [(0, 64), (0, 64), (0, 64), (0, 64), (24, 40)]), (512, [(216, 296)])]
)
def test_the_rehearsal_step_has_the_most_tokens_at_the_longest_contexts(checkpoint, max_model_len, expected):
    """A shorter rehearsal let memory run out in service, which failed all sequences of a step."""
    runner = make_runner(checkpoint[0], max_num_batched_tokens=148, max_model_len=max_model_len)
    chunks = runner._longest_step().chunks
    assert [(chunk.start, chunk.num_positions) for chunk in chunks] == expected
    assert max(block for chunk in chunks for block in chunk.sequence.block_ids) < runner.num_blocks
