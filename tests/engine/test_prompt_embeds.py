"""Prompts of vectors answer as the tokens do whose rows of the embedding they are; others change the answer."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import torch
from safetensors.torch import save

from engine.api import Completed, RawPrompt, Rejected, SamplingParams, StopRules
from tests.engine.random_model import random_model
from tests.engine.real_engine import tokens_of, write_model
from tests.engine.tiny_tokenizer import VOCAB_SIZE, write_tokenizer

GREEDY = {
    "messages": (),
    "sampling": SamplingParams(temperature=0.0),
    "stop": StopRules(max_tokens=8, ignore_eos=True),
}
TOKEN_IDS = tuple(range(5, 45))
NO_END = 10**6


def npy(array) -> str:
    file = io.BytesIO()
    np.save(file, array)
    return base64.b64encode(file.getvalue()).decode()


def safetensors(tensor) -> str:
    return base64.b64encode(save({"embeds": tensor})).decode()


def given(embeds: str) -> RawPrompt:
    return RawPrompt(embeds=embeds, param="prompt_embeds")


@pytest.fixture(params=["ours", "transformers"])
def engine_and_rows(request, tmp_path, make_real_engine, monkeypatch):
    """An engine, by our layers and by those of transformers, and its embedding."""
    model = write_model(tmp_path)
    if request.param == "transformers":
        monkeypatch.setattr("engine.loading.loader.has_family", lambda values: False)
    return make_real_engine(tmp_path, max_num_batched_tokens=24), model.get_input_embeddings().weight.detach()


def test_vectors_answer_as_their_tokens_do(engine_and_rows):
    engine, rows = engine_and_rows
    by_ids = engine.answer(raw=RawPrompt(token_ids=TOKEN_IDS), **GREEDY)
    vectors = rows[list(TOKEN_IDS)].contiguous()
    for embeds in (npy(vectors.numpy()), npy(vectors[None].numpy()), npy(np.asfortranarray(vectors.numpy()))):
        by_vectors = engine.answer(raw=given(embeds), **GREEDY)
        assert by_vectors[0].num_prompt_tokens == len(TOKEN_IDS)
        assert tokens_of(by_vectors) == tokens_of(by_ids)
    assert tokens_of(engine.answer(raw=given(safetensors(vectors)), **GREEDY)) == tokens_of(by_ids)


def test_a_crowd_of_vectors_shares_prefixes_with_its_like_alone(engine_and_rows):
    engine, rows = engine_and_rows
    prompts = [given(npy(rows[list(ids)].numpy())) for ids in (TOKEN_IDS, TOKEN_IDS[::-1], TOKEN_IDS[:33])]
    alone = [tokens_of(engine.answer(raw=raw, **GREEDY)) for raw in prompts]
    assert alone[0] != alone[1]
    for number, raw in enumerate(prompts * 2):
        engine.submit(f"run-{number}", raw=raw, **GREEDY)
    found = engine.events_to_end(*(f"run-{number}" for number in range(6)))
    assert [tokens_of([event.payload for event in found[f"run-{number}"]]) for number in range(6)] == alone * 2


@pytest.mark.parametrize("family", ["Granite", "Gemma2"])
def test_vectors_are_scaled_where_the_family_scales_them(tmp_path, make_real_engine, family):
    """Granite scales whatever enters its layers, Gemma the rows of its embedding."""
    write_tokenizer(tmp_path)
    scale = {"embedding_multiplier": 12.0} if family == "Granite" else {}
    sizes = {"vocab_size": VOCAB_SIZE, "hidden_size": 32, "intermediate_size": 64}
    model = random_model(family, seed=3, spread=0.4, **sizes, **scale)
    model.save_pretrained(tmp_path)
    with torch.inference_mode():
        rows = model.get_input_embeddings()(torch.tensor(TOKEN_IDS))
        inputs = {"inputs_embeds": rows[None], "attention_mask": torch.ones(1, len(TOKEN_IDS), dtype=torch.long)}
        expected = model.generate(**inputs, max_new_tokens=8, do_sample=False, eos_token_id=NO_END)[0].tolist()
    engine = make_real_engine(tmp_path)
    assert tokens_of(engine.answer(raw=given(npy(rows.numpy())), **GREEDY)) == expected
    assert tokens_of(engine.answer(raw=RawPrompt(token_ids=TOKEN_IDS), **GREEDY)) == expected


def test_half_precision_is_taken(engine_and_rows):
    engine, rows = engine_and_rows
    for embeds in (npy(rows[:9].half().numpy()), safetensors(rows[:9].bfloat16()), safetensors(rows[:9].half())):
        assert isinstance(engine.answer(raw=given(embeds), **GREEDY)[-1], Completed)


def test_a_wrong_width_names_the_right_one(engine_and_rows):
    engine, _ = engine_and_rows
    (rejected,) = engine.answer(raw=given(npy(np.zeros((3, 31), np.float32))), **GREEDY)
    assert isinstance(rejected, Rejected)
    assert rejected.message == "prompt_embeds must have rows of 32 numbers, the width of this model; got 31"


def test_more_vectors_than_the_context_are_refused(engine_and_rows):
    engine, _ = engine_and_rows
    (rejected,) = engine.answer(raw=given(npy(np.zeros((5000, 32), np.float16))), **GREEDY)
    assert "5000" in rejected.message


def test_vectors_of_another_tenant_are_not_shared(engine_and_rows):
    engine, rows = engine_and_rows
    raw = given(npy(rows[:40].numpy()))
    answers = [engine.answer(raw=raw, tenant=tenant, **GREEDY) for tenant in ("a", "b", "a")]
    assert [payloads[-1].usage.cached_tokens > 0 for payloads in answers] == [False, False, True]
    assert len({tuple(tokens_of(payloads)) for payloads in answers}) == 1
