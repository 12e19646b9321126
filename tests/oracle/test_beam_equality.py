"""Beam search over the default model equals that of transformers on the same float32 weights, texts and order."""

import pytest
import torch

from engine.api import BeamOptions, PromptOptions, StopRules
from engine.tokenizers.tokenizer import Tokenizer
from tests.engine.real_engine import RealEngine, tokens_of
from tests.oracle.default_model import SMOLLM2
from tests.oracle.test_greedy_equality import QUESTIONS

WIDTH, NUM_TOKENS = 3, 12


@pytest.fixture(scope="module")
def engine():
    engine = RealEngine(SMOLLM2, max_num_batched_tokens=128, kv_cache_bytes=128 << 20, max_model_len=512)
    yield engine
    engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("length_penalty", [1.0, 0.0])
def test_beams_of_the_default_model_equal_those_of_transformers(engine, default_reference, length_penalty):
    tokenizer = Tokenizer.from_path(SMOLLM2)
    for question in QUESTIONS[:2]:
        payloads = engine.answer(
            text=question,
            num_choices=WIDTH,
            beam=BeamOptions(length_penalty),
            stop=StopRules(max_tokens=NUM_TOKENS),
            prompt=PromptOptions(returns_ids=True),
        )
        prompt_ids = payloads[0].prompt_ids
        with torch.inference_mode():
            found = default_reference.generate(
                torch.tensor([prompt_ids]),
                attention_mask=torch.ones(1, len(prompt_ids), dtype=torch.long),
                max_new_tokens=NUM_TOKENS,
                num_beams=WIDTH,
                num_return_sequences=WIDTH,
                length_penalty=length_penalty,
                early_stopping=False,
                do_sample=False,
                eos_token_id=tokenizer.eos_ids[0],
                pad_token_id=tokenizer.eos_ids[0],
            )
        expected = [until(row, tokenizer.eos_ids[0]) for row in found[:, len(prompt_ids) :].tolist()]
        assert [tokens_of(payloads, choice) for choice in range(WIDTH)] == expected, question


def until(token_ids, eos_id):
    return token_ids[: token_ids.index(eos_id) + 1] if eos_id in token_ids else token_ids
