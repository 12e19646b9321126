"""Quantised folders against transformers' float32 model on the numbers that they stand for."""

import pytest
import torch

from engine.loading.loader import load_model
from tests.engine.loading.quantized_folders import FORMATS, write_quantized
from tests.engine.models.test_decoder import run, small_model

pytest.importorskip("transformers")
PROMPTS = [torch.arange(length) * 7 % 96 for length in (40, 1, 17)]


def check_logits(folder, reference):
    model = load_model(folder, weights="float32")
    for prompt, logits in zip(PROMPTS, run(model, PROMPTS, cuts=[1, 30]), strict=True):
        with torch.inference_mode():
            expected = reference(prompt[None]).logits[0]
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", FORMATS)
def test_a_quantised_folder_gives_the_logits_of_the_numbers_that_it_stands_for(tmp_path, name):
    reference = small_model("Llama", {"num_key_value_heads": 2})
    config, writer, _ = FORMATS[name]
    write_quantized(tmp_path, reference, config, writer)
    check_logits(tmp_path, reference)


@pytest.mark.parametrize("name", FORMATS)
def test_matrices_that_a_file_stacks_are_cut_apart(tmp_path, name):
    """Phi-3 has queries, keys and values in one matrix, gate and up in another."""
    reference = small_model("Phi3", {"num_key_value_heads": 2, "pad_token_id": 0})
    config, writer, _ = FORMATS[name]
    write_quantized(tmp_path, reference, config, writer)
    check_logits(tmp_path, reference)
