"""Answers about images equal those of transformers on the same float32 weights: alone, in a crowd, in any chunks."""

from __future__ import annotations

import pytest
import torch

from engine.api import Completed, Delta, Outcome, SamplingParams, StopRules
from tests.engine.seeing_folders import FAMILIES, encoded, image_of, write_seeing

NUM_TOKENS = 12
GREEDY = {
    "sampling": SamplingParams(temperature=0.0),
    "stop": StopRules(max_tokens=NUM_TOKENS, ignore_eos=True),
}
CONVERSATIONS = [
    [["hello", image_of(40, 30, 1), " what is it?"]],
    [[image_of(90, 40, 2), image_of(40, 30, 1), "compare"]],
    [["a word"]],
    [[image_of(40, 30, 1), "first"], ["second ", image_of(64, 64, 3)]],
]
"""The parts of each message of the user."""


def engine_messages(conversation):
    return tuple(
        {
            "role": "user",
            "content": [
                {"type": "text", "text": part} if isinstance(part, str) else {"type": "image", "data": encoded(part)}
                for part in parts
            ],
        }
        for parts in conversation
    )


@torch.inference_mode()
def expected(model, processor, conversation):
    """Return the prompt and the greedy answer of transformers."""
    messages = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"} for part in parts
            ],
        }
        for parts in conversation
    ]
    images = [part for parts in conversation for part in parts if not isinstance(part, str)]
    text = processor.apply_chat_template(messages, add_generation_prompt=True)
    inputs = processor(text=[text], images=images or None, return_tensors="pt", add_special_tokens=False)
    output = model.generate(
        **inputs, max_new_tokens=NUM_TOKENS, min_new_tokens=NUM_TOKENS, do_sample=False, use_cache=True
    )
    prompt = inputs["input_ids"][0].tolist()
    return prompt, output[0].tolist()[len(prompt) :]


def token_ids(events):
    payloads = [event.payload for event in events]
    assert isinstance(payloads[-1], Completed), payloads[-1]
    assert payloads[-1].outcome is Outcome.FINISHED
    return [token_id for payload in payloads if isinstance(payload, Delta) for token_id in payload.token_ids]


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_about_images_are_those_of_transformers(tmp_path, make_real_engine, family):
    model, processor = write_seeing(tmp_path, family)
    found = [expected(model, processor, conversation) for conversation in CONVERSATIONS]
    engine = make_real_engine(tmp_path, max_num_batched_tokens=24)
    for conversation, (prompt, answer) in zip(CONVERSATIONS, found, strict=True):
        engine.submit("alone", messages=engine_messages(conversation), **GREEDY)
        events = engine.events_to_end("alone")["alone"]
        assert events[0].payload.num_prompt_tokens == len(prompt)
        assert token_ids(events) == answer
    for number, conversation in enumerate(CONVERSATIONS * 2):
        engine.submit(str(number), messages=engine_messages(conversation), **GREEDY)
    crowd = engine.events_to_end(*(str(number) for number in range(2 * len(CONVERSATIONS))))
    assert [token_ids(crowd[run_id]) for run_id in crowd] == [answer for _, answer in found * 2]
