"""Embeddings of the default model equal transformers' hidden states in float32, in a crowd and in chunks."""

import pytest
import torch

from engine.api import Completed, Embedded, EmbedOptions, Outcome, RawPrompt, StopRules, Task
from engine.tokenizers.tokenizer import Tokenizer
from tests.engine.real_engine import RealEngine
from tests.oracle.test_greedy_equality import QUESTIONS, SMOLLM2

TEXTS = [*QUESTIONS[:6], " ".join(QUESTIONS) * 2]
OPTIONS = [EmbedOptions("mean"), EmbedOptions("last"), EmbedOptions("mean", 128)]
MIN_COSINE, TOLERANCE = 0.999999, 2e-4
"""Thirty layers in float32, added up in another order."""


@pytest.fixture(scope="module")
def engine():
    engine = RealEngine(SMOLLM2, max_num_batched_tokens=48, kv_cache_bytes=128 << 20, max_model_len=1024)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def expected(default_reference):
    """Return the states of transformers behind the final norm, (T, E) for each text."""
    tokenizer = Tokenizer.from_path(SMOLLM2)
    with torch.inference_mode():
        return [default_reference.model(torch.tensor([tokenizer.encode(text)])).last_hidden_state[0] for text in TEXTS]


@pytest.mark.slow
def test_vectors_of_the_default_model_equal_those_of_transformers(engine, expected):
    runs = {f"{index} {options}": (index, options) for index in range(len(TEXTS)) for options in OPTIONS}
    answers = [f"answer {index}" for index in range(4)]
    for run_id in answers:
        engine.submit(run_id, text=run_id, stop=StopRules(max_tokens=8, ignore_eos=True))
    for run_id, (index, options) in runs.items():
        engine.submit(run_id, task=Task.EMBED, raw=RawPrompt(TEXTS[index]), embed=options)
    events = engine.events_to_end(*answers, *runs)
    for run_id, (index, options) in runs.items():
        _, embedded, completed = (event.payload for event in events[run_id])
        assert isinstance(embedded, Embedded)
        assert isinstance(completed, Completed)
        assert (completed.outcome, completed.usage.prompt_tokens) == (Outcome.FINISHED, len(expected[index]))
        pooled = expected[index].mean(0) if options.pooling == "mean" else expected[index][-1]
        wanted = torch.nn.functional.normalize(pooled[: options.dimensions], dim=0)
        found = torch.tensor(embedded.vector)
        assert found.norm().item() == pytest.approx(1.0, abs=1e-5)
        assert float(found @ wanted) > MIN_COSINE
        torch.testing.assert_close(found, wanted, atol=TOLERANCE, rtol=0)
