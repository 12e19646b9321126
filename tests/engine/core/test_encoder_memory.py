"""What an encoder needs in memory: its weights as they are computed, a step, and no cache."""

import pytest

from engine.config import EngineConfig
from engine.core.memory_need import memory_need
from tests.engine.encoder_folders import write_encoder


@pytest.mark.parametrize(("weights", "num_bytes"), [("auto", 4), ("float32", 4), ("bf16", 2)])
def test_an_encoder_needs_its_weights_and_a_step_but_no_cache(tmp_path, weights, num_bytes):
    model = write_encoder(tmp_path, "Bert")
    computed = [value for name, value in model.named_parameters() if not name.startswith("pooler.")]
    need = memory_need(EngineConfig(tmp_path, "tiny", weights=weights), 1 << 30)
    assert need.weights_bytes == num_bytes * sum(value.numel() for value in computed)
    assert (need.cache_bytes, need.cache_bytes_per_token) == (0, 0)
    assert (need.context, need.max_context) == (130, 130)
    assert need.scratch_bytes > num_bytes * 130 * 32
    assert memory_need(EngineConfig(tmp_path, "tiny", max_model_len=50), 1 << 30).context == 50


def test_an_encoder_that_does_not_fit_is_refused_without_a_word_of_a_cache(tmp_path):
    write_encoder(tmp_path, "Bert")
    need = memory_need(EngineConfig(tmp_path, "tiny"), 1 << 30)
    assert need.refusal(need.total_bytes) == ""
    refusal = need.refusal(1 << 20)
    assert "are needed and 1 MiB are there: weights" in refusal
    assert refusal.endswith("Choose a smaller model, or set LIGHTCONE_WEIGHTS to bf16.")
    assert "cache" not in refusal
