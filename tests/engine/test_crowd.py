"""A request has the same tokens and log-probabilities alone and in a hostile crowd, in batch-invariant mode."""

from __future__ import annotations

import dataclasses
import itertools
import random
import threading

import pytest
import torch

from engine.api import (
    BeamOptions,
    Completed,
    Constraint,
    ConstraintKind,
    Delta,
    Embedded,
    EmbedOptions,
    Failed,
    GenerationRequest,
    LogprobOptions,
    Outcome,
    ProcessorCall,
    PromptScored,
    RepetitionRule,
    SamplingParams,
    StopRules,
    Task,
)
from engine.config import EngineConfig
from engine.engine import Engine
from engine.inputs.rendering import LocalRenderer
from tests.engine.in_process import connect_in_process
from tests.engine.random_model import random_model
from tests.engine.tiny_tokenizer import IM_END, write_tokenizer

pytestmark = pytest.mark.slow

WIDTH = 288
"""Of the logits: wider than the tokenizer, as padded vocabularies are."""
WAIT_S = 120
JSON_OBJECT = Constraint(ConstraintKind.JSON_OBJECT)

KINDS: dict[str, dict[str, object]] = {
    "plain": {},
    "greedy": {"sampling": SamplingParams(temperature=0.0)},
    "filters": {"sampling": SamplingParams(top_k=20, top_p=0.8, min_p=0.01, temperature=1.4)},
    "penalties": {"sampling": SamplingParams(repetition_penalty=1.4, frequency_penalty=0.5, presence_penalty=-0.5)},
    "extreme penalties": {
        "sampling": SamplingParams(repetition_penalty=1e-300, frequency_penalty=2.0, temperature=0.0)
    },
    "bias": {"sampling": SamplingParams(logit_bias=((65, 6.0), (WIDTH - 1, 4.0), (97, -100.0)))},
    "bias on all": {"sampling": SamplingParams(logit_bias=tuple((token_id, -100.0) for token_id in range(WIDTH)))},
    "allowed": {"sampling": SamplingParams(allowed_token_ids=(65, 66, 67, 68, WIDTH - 1))},
    "one allowed": {"sampling": SamplingParams(allowed_token_ids=(70,))},
    "bad words": {
        "sampling": SamplingParams(bad_words=("a", "he", "<|im_end|>", "zz"), allowed_token_ids=tuple(range(97, 123)))
    },
    "floor": {"stop": StopRules(min_tokens=12, stop_token_ids=(65, 66, 67), max_tokens=14)},
    "stops": {"stop": StopRules(stop=("a", "b", "\x00"), max_tokens=14)},
    "guard": {"sampling": SamplingParams(processors=(ProcessorCall("no_repeat_ngram", (1,)),), temperature=0.0)},
    "trie": {"sampling": SamplingParams(processors=(ProcessorCall("token_trie", ([[65, 66, 67], [65, 70]],)),))},
    "logprobs": {"logprobs": LogprobOptions(True, 5)},
    "all logprobs": {"logprobs": LogprobOptions(True, -1), "sampling": SamplingParams(repetition_penalty=1.2)},
    "named logprobs": {"logprobs": LogprobOptions(True, 0, (5, WIDTH - 1, 9))},
    "scored prompt": {"logprobs": LogprobOptions(prompt=3)},
    "choices": {"num_choices": 3, "sampling": SamplingParams(top_p=0.9), "logprobs": LogprobOptions(prompt=0)},
    "best of": {"num_choices": 1, "best_of": 3},
    "beams": {
        "num_choices": 2,
        "beam": BeamOptions(),
        "sampling": SamplingParams(allowed_token_ids=(65, 66, 67, IM_END)),
    },
    "prediction": {
        "prediction": "hello world",
        "sampling": SamplingParams(repetition_penalty=1.3, logit_bias=((104, 9.0), (101, 9.0))),
    },
    "grammar": {"constraint": JSON_OBJECT, "stop": StopRules(max_tokens=14)},
    "no way out": {"sampling": SamplingParams(allowed_token_ids=(70,), bad_words=("F",))},
    "clash": {"constraint": JSON_OBJECT, "sampling": SamplingParams(allowed_token_ids=(70,))},
    "late clash": {
        "constraint": Constraint(ConstraintKind.REGEX, "F{3}x"),
        "sampling": SamplingParams(allowed_token_ids=(70,)),
    },
    "mean vector": {"task": Task.EMBED},
    "last vector": {"task": Task.EMBED, "embed": EmbedOptions("last", 40)},
    "repetition": {
        "stop": StopRules(max_tokens=14, repetition=RepetitionRule(3)),
        "sampling": SamplingParams(allowed_token_ids=(65, 66)),
    },
}
FAILING = {"no way out": "allowed_token_ids", "clash": "structured_outputs", "late clash": "structured_outputs"}


class Listener:
    """A publisher that collects the events of each run."""

    def __init__(self):
        self._published = threading.Condition()
        self._events = {}

    def publish(self, runs):
        with self._published:
            for run in runs:
                self._events.setdefault(run.run_id, []).extend(run.events)
            self._published.notify_all()

    def wait_for(self, run_id, is_enough):
        with self._published:
            assert self._published.wait_for(lambda: is_enough(self._events.get(run_id, [])), WAIT_S)
            return list(self._events[run_id])

    def events(self, run_id):
        return self.wait_for(run_id, lambda events: events and events[-1].is_terminal)

    def first_token(self, run_id):
        """Wait until the run has a token, or has ended."""
        self.wait_for(
            run_id, lambda events: any(event.is_terminal or isinstance(event.payload, Delta) for event in events)
        )


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    """Yield an engine on a small random Llama with a prefix cache, short steps, few running places and few blocks."""
    folder = tmp_path_factory.mktemp("crowd")
    model = random_model(
        seed=7, vocab_size=WIDTH, max_position_embeddings=256, bos_token_id=IM_END, eos_token_id=IM_END
    )
    model.model.embed_tokens.weight.data *= 8
    model.save_pretrained(folder)
    write_tokenizer(folder)
    listener = Listener()
    settings = EngineConfig(
        folder,
        "tiny",
        max_num_seqs=6,
        max_num_batched_tokens=48,
        kv_cache_bytes=20 << 12,
        batch_invariant=True,
        num_threads=1,
    )
    engine = Engine(settings, listener.publish, connect=connect_in_process, renderer=LocalRenderer())
    threads = torch.get_num_threads()
    engine.start()
    yield engine, listener
    engine.close()
    torch.set_num_threads(threads)


NUMBERS = itertools.count()


def submit(engine, name, priority=0):
    """Submit a request of a kind; return its run id."""
    kind = KINDS[name]
    place = list(KINDS).index(name)
    sampling = dataclasses.replace(kind.get("sampling", SamplingParams()), seed=place)
    request = GenerationRequest(
        f"{name}-{next(NUMBERS)}",
        "tiny",
        ({"role": "user", "content": "hello world " * (1 + place % 5) + name},),
        0.0,
        stop=StopRules(max_tokens=14),
        priority=priority,
        tenant="ab"[place % 2],
    )
    engine.submit(dataclasses.replace(request, **{**kind, "sampling": sampling}))
    return request.run_id


def outcome(events):
    """Return all that a client can compare: tokens, texts and log-probabilities per choice, scores or vector, and the
    end.
    """
    choices = {}
    scores = end = None
    for event in events:
        payload = event.payload
        if isinstance(payload, Delta):
            choices.setdefault(payload.choice, []).extend(
                zip(payload.token_ids, payload.logprobs or payload.token_ids, strict=False)
            )
        elif isinstance(payload, PromptScored):
            scores = payload.entries
        elif isinstance(payload, Embedded):
            choices["vector"] = payload.vector
        elif isinstance(payload, Completed | Failed):
            end = (payload.outcome, getattr(payload, "param", None), payload.usage.completion_tokens)
    return choices, scores, end


@pytest.fixture(scope="module")
def alone(serving):
    """Return the outcome of each kind of request without any other running."""
    engine, listener = serving
    return {name: outcome(listener.events(submit(engine, name))) for name in KINDS}


def test_each_kind_of_request_behaves_as_expected_alone(alone):
    """Otherwise the comparison below would compare nothing."""
    for name, (choices, scores, end) in alone.items():
        assert end[0] == (Outcome.FAILED if name in FAILING else Outcome.FINISHED), name
        assert (scores is not None) == (KINDS[name].get("logprobs", LogprobOptions()).prompt is not None), name
        assert end[1] == FAILING.get(name), name
        assert len(choices) == (0 if name in ("no way out", "clash") else KINDS[name].get("num_choices", 1)), name
    tokens = {name: [token_id for token_id, _ in choices.get(0, [])] for name, (choices, _, _) in alone.items()}
    assert set(tokens["one allowed"]) == {70}
    assert set(tokens["allowed"]) <= {65, 66, 67, 68, WIDTH - 1}
    assert tokens["trie"] in ([65, 66, 67, IM_END], [65, 70, IM_END])
    assert len(tokens["guard"]) == len(set(tokens["guard"]))
    assert len(tokens["floor"]) >= 12
    assert not {65, 66, 67, IM_END} & set(tokens["floor"][:12])
    assert 97 not in tokens["bad words"]
    assert tokens["late clash"] == [70] * 3
    assert bytes(tokens["grammar"]).startswith(b"{")


@pytest.mark.parametrize("seed", range(8))
def test_each_kind_of_request_gives_the_same_answer_alone_and_in_a_crowd(serving, alone, seed):
    """All kinds run several times in random order and priority; half of the runs are aborted early."""
    engine, listener = serving
    draw = random.Random(seed)
    names = [name for name in KINDS for _ in range(3)]
    draw.shuffle(names)
    kept, doomed = [], []
    for number, name in enumerate(names):
        run_id = submit(engine, name, priority=draw.choice([0, 0, 0, 5]))
        if draw.random() < 0.5:
            kept.append((name, run_id))
            if draw.random() < 0.1:
                listener.first_token(run_id)
        else:
            doomed.append(run_id)
            if number % 5 == 0:
                listener.first_token(run_id)
            engine.abort(run_id, Outcome.STOPPED)
    for name, run_id in kept:
        assert outcome(listener.events(run_id)) == alone[name], name
    for run_id in doomed:
        listener.events(run_id)
    stats = engine.stats(check_integrity=True)
    assert stats.core.integrity == ""
    assert stats.core.num_preemptions > 0
    assert (stats.num_runs, stats.core.num_free_blocks) == (0, stats.core.num_blocks)
