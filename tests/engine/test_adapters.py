"""Adapters through submit(), against models of transformers and our own engine with W + scale * B A merged."""

import threading
from pathlib import Path

import pytest

from engine.api import (
    BeamOptions,
    Embedded,
    EmbedOptions,
    ErrorCode,
    LogprobOptions,
    ModelLoadError,
    PromptScored,
    RawPrompt,
    Rejected,
    RequestError,
    SamplingParams,
    StopRules,
    Task,
)
from engine.quantization.panel_weight import PanelWeight
from tests.engine.encoder_folders import write_encoder
from tests.engine.lora import adapter_of, greedy_tokens, merged, write_adapter
from tests.engine.random_model import random_model
from tests.engine.real_engine import RealEngine, tokens_of, write_model
from tests.engine.tiny_tokenizer import VOCAB_SIZE, write_tokenizer

FAMILIES = {
    "Llama": {},
    "Qwen2, biases": {},
    "Phi3, stacked": {"pad_token_id": 0, "modules": ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")},
    "Gemma2, norms behind": {"head_dim": 8, "sliding_window": 20},
    "Glm4, adjacent pairs": {"head_dim": 8, "pad_token_id": 0, "modules": ("q_proj", "k_proj", "gate_up_proj")},
    "GPTNeoX, by transformers": {"modules": ("query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h")},
    "GPT2, by transformers": {"modules": ("c_attn", "c_proj", "c_fc"), "spread": 0.8},
}
ADAPTERS = {
    "plain": {},
    "queries": {"modules": ("q_proj", "v_proj"), "rank": 8},
    "patterns": {
        "rank": 3,
        "use_rslora": True,
        "rank_pattern": {"k_proj": 5, "layers.1.mlp.*": 20},
        "alpha_pattern": {"down_proj": 1, "^model.layers.0.self_attn.q_proj": 30},
    },
    "larger": {"rank": 40, "spread": 0.1},
}
PROMPTS = [list(range(5, 45)), [7, 9], list(range(100, 60, -1)), [200] * 17]
GREEDY = {"sampling": SamplingParams(temperature=0.0), "stop": StopRules(max_tokens=10, ignore_eos=True)}


def ask(prompt_ids, adapter=None, **changes):
    """Return the fields of a request."""
    return GREEDY | {"raw": RawPrompt(token_ids=tuple(prompt_ids)), "messages": (), "adapter": adapter} | changes


class Served:
    """An engine, its model by transformers, and that model with each of its adapters merged."""

    def __init__(self, folder: Path, model, adapters, **config):
        self.folder = folder
        self.models = {None: model}
        self.real = RealEngine(folder / "model", **config)
        self.infos = {}
        for seed, (name, options) in enumerate(adapters.items()):
            self.infos[name] = self.add(name, seed, **options)

    def add(self, name, seed, **options):
        made = adapter_of(self.models[None], seed=seed, **options)
        self.models[name] = merged(self.models[None], *made)
        return self.real.engine.add_adapter(name, write_adapter(self.folder / f"{name}-{seed}", *made))

    def expected(self, prompt_ids, adapter, count=10):
        return greedy_tokens(self.models[adapter], prompt_ids, count)


def make_llama(folder):
    (folder / "model").mkdir()
    return write_model(folder / "model")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    served = Served(folder, make_llama(folder), ADAPTERS)
    yield served
    served.real.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_equal_those_of_the_merged_model(tmp_path, family):
    options = dict(FAMILIES[family])
    changes = {name: options.pop(name) for name in ("modules", "spread") if name in options}
    sizes = {"vocab_size": VOCAB_SIZE, "hidden_size": 32, "intermediate_size": 64} | options
    model = random_model(family.partition(",")[0], seed=3, spread=0.3, **sizes)
    model.save_pretrained(tmp_path / "model")
    write_tokenizer(tmp_path / "model")
    served = Served(tmp_path, model, {"own": changes})
    for adapter in ("own", None):
        assert tokens_of(served.real.answer(**ask(PROMPTS[0], adapter))) == served.expected(PROMPTS[0], adapter)
    assert served.expected(PROMPTS[0], "own") != served.expected(PROMPTS[0], None)
    served.real.close()


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_ranks_scales_and_modules_are_those_of_the_adapter(served, adapter):
    assert tokens_of(served.real.answer(**ask(PROMPTS[0], adapter))) == served.expected(PROMPTS[0], adapter)


def test_adapters_are_listed_with_what_they_change(served):
    infos = served.real.engine.adapters()
    assert [info.name for info in infos] == list(ADAPTERS)
    assert {info.name: info for info in infos} == served.infos
    assert served.infos["queries"].modules == ("q_proj", "v_proj")
    assert [served.infos[name].rank for name in ADAPTERS] == [4, 8, 20, 40]
    assert served.infos["larger"].num_bytes > served.infos["plain"].num_bytes > 0


@pytest.mark.parametrize("config", [{}, {"batch_invariant": True}, {"max_num_batched_tokens": 16}])
def test_rows_of_all_adapters_and_none_share_steps_with_unchanged_answers(tmp_path, config):
    served = Served(tmp_path, make_llama(tmp_path), ADAPTERS, **config)
    asked = {
        f"{adapter} {number}": (prompt, adapter)
        for adapter in (None, *ADAPTERS)
        for number, prompt in enumerate(PROMPTS)
    }
    for run_id, (prompt, adapter) in asked.items():
        served.real.submit(run_id, **ask(prompt, adapter))
    events = served.real.events_to_end(*asked)
    for run_id, (prompt, adapter) in asked.items():
        assert tokens_of([event.payload for event in events[run_id]]) == served.expected(prompt, adapter), run_id
    served.real.close()


@pytest.mark.skipif(not PanelWeight.fits((32, 32)), reason="needs a processor with AVX2")
def test_beside_quantised_weights_answers_are_the_same_alone_and_in_a_crowd(tmp_path):
    """Steps are recorded programs, and those of long prompts are left between layers."""
    sizes = {"vocab_size": VOCAB_SIZE, "intermediate_size": 96, "num_attention_heads": 2, "head_dim": 64}
    model = random_model(seed=3, spread=0.2, **sizes)
    model.save_pretrained(tmp_path / "model")
    write_tokenizer(tmp_path / "model")
    served = Served(tmp_path, model, {"one": {}, "two": {"rank": 20}}, weights="auto", batch_invariant=True)
    assert "steps recorded up to" in served.real.engine.stats().computed_by
    prompts = [[7 + number] * 3 + list(range(10, 100 + 50 * number)) for number in range(3)]
    asked = {
        f"{adapter} {n}": (prompt, adapter) for n, prompt in enumerate(prompts) for adapter in (None, "one", "two")
    }
    for run_id, (prompt, adapter) in asked.items():
        served.real.submit(run_id, **ask(prompt, adapter))
    events = served.real.events_to_end(*asked)
    answers = {run_id: tokens_of([event.payload for event in found]) for run_id, found in events.items()}
    for run_id, (prompt, adapter) in asked.items():
        assert answers[run_id] == tokens_of(served.real.answer(**ask(prompt, adapter, cache_salt="alone"))), run_id
    assert len({tuple(answers[f"{adapter} 0"]) for adapter in (None, "one", "two")}) == 3
    served.real.close()


def test_a_preempted_sequence_keeps_its_adapter(tmp_path):
    """The cache holds fewer positions than the sequences need together."""
    served = Served(tmp_path, make_llama(tmp_path), {"plain": {}, "larger": ADAPTERS["larger"]}, kv_cache_bytes=100_000)
    asked = {f"{number}": (PROMPTS[number % 4], ("plain", "larger", None)[number % 3]) for number in range(8)}
    stop = StopRules(max_tokens=90, ignore_eos=True)
    for run_id, (prompt, adapter) in asked.items():
        served.real.submit(run_id, **ask(prompt, adapter, stop=stop))
    events = served.real.events_to_end(*asked)
    assert served.real.core_stats().num_preemptions > 0
    for run_id, (prompt, adapter) in asked.items():
        crowded = tokens_of([event.payload for event in events[run_id]])
        assert crowded == tokens_of(served.real.answer(**ask(prompt, adapter, stop=stop))), run_id
    served.real.close()


def test_all_kinds_of_requests_are_those_of_the_merged_model(tmp_path, served):
    """Draws, drafts, beams, answers, log-probabilities and vectors, beside our engine on a merged checkpoint."""
    served.models["patterns"].save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    alone = RealEngine(tmp_path)
    kinds = [
        {"sampling": SamplingParams(seed=4)},
        {"sampling": SamplingParams(seed=4, top_p=0.8), "num_choices": 3},
        {"prediction": "".join(map(chr, range(60, 80)))},
        {"beam": BeamOptions(), "num_choices": 2, "stop": StopRules(max_tokens=5)},
        {"logprobs": LogprobOptions(prompt=0)},
        {"task": Task.EMBED, "embed": EmbedOptions("mean")},
    ]
    for kind in kinds:
        found = served.real.answer(**ask(PROMPTS[0], "patterns", **kind))
        expected = alone.answer(**ask(PROMPTS[0], **kind))
        for choice in range(kind.get("num_choices", 1)):
            assert tokens_of(found, choice) == tokens_of(expected, choice), kind
        for one, other in zip(found, expected, strict=True):
            if isinstance(one, PromptScored):
                scores = [[entry[0].logprob for entry in scored.entries[1:]] for scored in (one, other)]
                assert scores[0] == pytest.approx(scores[1], abs=1e-3)
            if isinstance(one, Embedded):
                assert one.vector == pytest.approx(other.vector, abs=1e-4)
    alone.close()


def cached(payloads):
    return payloads[-1].usage.cached_tokens


def test_no_prefix_is_shared_between_adapters_or_with_the_model(tmp_path):
    served = Served(tmp_path, make_llama(tmp_path), {"one": {}, "two": {"rank": 8}})
    for adapter in (None, "one", "two"):
        first, again = (served.real.answer(**ask(PROMPTS[0], adapter)) for _ in range(2))
        assert (cached(first), cached(again)) == (0, 32)
        assert tokens_of(first) == tokens_of(again) == served.expected(PROMPTS[0], adapter)
    served.real.engine.remove_adapter("one")
    served.add("one", 9, spread=0.3)
    anew = served.real.answer(**ask(PROMPTS[0], "one"))
    assert cached(anew) == 0
    assert tokens_of(anew) == served.expected(PROMPTS[0], "one")
    served.real.close()


def test_a_request_ends_with_its_adapter_though_that_is_removed(tmp_path):
    """Adapters that are added meanwhile, one by its name, do not take its place."""
    served = Served(tmp_path, make_llama(tmp_path), {"one": {}})
    expected = served.expected(PROMPTS[0], "one", 60)
    served.real.submit("long", **ask(PROMPTS[0], "one", stop=StopRules(max_tokens=60, ignore_eos=True)))
    served.real.engine.remove_adapter("one")
    served.real.submit("late", **ask(PROMPTS[1], "one"))
    for seed, name in enumerate(("other", "one"), 5):
        served.add(name, seed)
        served.real.submit(name, **ask(PROMPTS[1], name))
    events = served.real.events_to_end("long", "late", "other", "one")
    payloads = {run_id: [event.payload for event in found] for run_id, found in events.items()}
    assert tokens_of(payloads["long"]) == expected
    (refused,) = payloads["late"]
    assert isinstance(refused, Rejected)
    assert (refused.code, refused.param) == (ErrorCode.INVALID_VALUE, "adapter")
    for name in ("one", "other"):
        assert tokens_of(payloads[name]) == served.expected(PROMPTS[1], name)
    served.real.close()


def test_a_core_that_replaces_a_dead_one_has_all_adapters(tmp_path):
    """Also one that is removed and still has a request."""
    served = Served(tmp_path, make_llama(tmp_path), {"kept": {}, "removed": {"rank": 8}})
    engine = served.real.engine
    restarted = threading.Event()
    engine._on_restarted = restarted.set
    expected = {name: served.expected(PROMPTS[0], name, 60) for name in ("kept", "removed")}
    for name in expected:
        served.real.submit(name, **ask(PROMPTS[0], name, stop=StopRules(max_tokens=60, ignore_eos=True)))
    engine.remove_adapter("removed")
    engine._link.close(30.0)
    assert restarted.wait(60)
    events = served.real.events_to_end(*expected)
    for name, tokens in expected.items():
        assert tokens_of([event.payload for event in events[name]]) == tokens
    assert [info.name for info in engine.adapters()] == ["kept"]
    assert tokens_of(served.real.answer(**ask(PROMPTS[1], "kept"))) == served.expected(PROMPTS[1], "kept")
    served.real.close()


@pytest.mark.parametrize("name", ["", "-x", "a b", "a:b", "x" * 129, "ü"])
def test_a_name_that_is_none_is_refused(served, name):
    with pytest.raises(RequestError, match="adapter must have a name of 1 to 128") as caught:
        served.real.engine.add_adapter(name, served.folder)
    assert caught.value.param == "adapter"


def test_a_name_that_is_taken_or_unknown_is_refused(served):
    engine = served.real.engine
    with pytest.raises(RequestError, match="adapter 'plain' exists already; remove it first"):
        engine.add_adapter("plain", served.folder)
    with pytest.raises(RequestError, match="adapter 'nobody' is not loaded"):
        engine.remove_adapter("nobody")


def test_an_adapter_that_cannot_be_loaded_leaves_its_name_free(served):
    engine = served.real.engine
    for _ in range(2):
        with pytest.raises(ModelLoadError, match=r"holds no adapter_config\.json"):
            engine.add_adapter("absent", served.folder)
    assert "absent" not in [info.name for info in engine.adapters()]


def test_an_encoder_takes_no_adapters(tmp_path):
    write_encoder(tmp_path, "Bert")
    real = RealEngine(tmp_path)
    with pytest.raises(ModelLoadError, match="adapters are served beside decoders of text alone"):
        real.engine.add_adapter("one", tmp_path)
    real.close()


def test_a_prompt_that_is_only_read_needs_its_adapter_too(served):
    assert served.real.answer(**ask([1], "plain", task=Task.READ))[0].num_prompt_tokens == 1
    assert isinstance(served.real.answer(**ask([1], "nobody", task=Task.READ))[0], Rejected)
