"""Greedy output equals transformers' on the same float32 weights, in any batch and any chunking.

Every answer of every arrangement is compared with the reference itself, so that a fault common to all arrangements is
found.
"""

import random

import pytest
import torch

from engine.api import GenerationRequest
from engine.config import EngineConfig
from engine.inputs.processor import PromptProcessor
from engine.inputs.rendering import LocalRenderer
from engine.loading.loader import load_model
from engine.tokenizers.tokenizer import Tokenizer
from tests.engine.loading.quantized_folders import FORMATS, write_quantized
from tests.engine.random_model import random_model
from tests.oracle.default_model import SMOLLM2
from tests.oracle.greedy import CoreUnderTest, disagreements

SMALL = {"vocab_size": 512, "intermediate_size": 128, "num_hidden_layers": 3}
FAMILIES = {"llama": ("Llama", {"tie_word_embeddings": True}), "qwen2": ("Qwen2", {"tie_word_embeddings": False})}
WINDOW = {"num_key_value_heads": 2, "sliding_window": 24, "num_hidden_layers": 7}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
OTHER_FAMILIES = {
    "cohere2, by transformers": ("Cohere2", WINDOW),
    "exaone4": ("Exaone4", WINDOW),
    "gemma2": ("Gemma2", WINDOW | {"head_dim": 16, "query_pre_attn_scalar": 24}),
    "gemma3": ("Gemma3Text", WINDOW | {"head_dim": 64}),
    "gemma4": (
        "Gemma4Text",
        WINDOW
        | {"head_dim": 64, "global_head_dim": 128, "num_kv_shared_layers": 1, "use_double_wide_mlp": True}
        | {"hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": 512, "num_hidden_layers": 7},
    ),
    "gemma4 with experts, by transformers": (
        "Gemma4Text",
        WINDOW
        | {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32}
        | {"head_dim": 64, "global_head_dim": 128, "hidden_size_per_layer_input": 0},
    ),
    "glm4": ("Glm4", {"num_key_value_heads": 2, "head_dim": 16, "attention_bias": True, "pad_token_id": 0}),
    "gpt oss, by transformers": ("GptOss", WINDOW | {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16}),
    "granite": ("Granite", {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2}),
    "granite with sinks": ("GraniteSWA", WINDOW | {"layer_rope_theta": [0, 1e4, 1e4, 1e4] + [5e5] * 3}),
    "ministral3": (
        "Ministral3",
        {"sliding_window": None, "head_dim": 64, "rope_parameters": YARN | {"llama_4_scaling_beta": 0.1}},
    ),
    "mistral": ("Mistral", WINDOW),
    "olmo2": ("Olmo2", {}),
    "olmo3": ("Olmo3", WINDOW),
    "phi3": ("Phi3", {"pad_token_id": 0, "sliding_window": 24}),
    "qwen3": ("Qwen3", {"head_dim": 64}),
    "smollm3": ("SmolLM3", {"num_hidden_layers": 5, "pad_token_id": 0}),
    "starcoder2": ("Starcoder2", {}),
}
QUESTIONS = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "def fibonacci(n):",
    "Translate 'good morning' into German, French and Spanish.",
    "Explain gravity to a child in one sentence.",
    "1, 1, 2, 3, 5, 8,",
    "List three uses of a paper clip.",
    "Why is the sky blue?",
    "Who wrote Romeo and Juliet?",
    "Give me a recipe for pancakes.",
    "Summarise: the quick brown fox jumps over the lazy dog, "
    "and then it rests under the old oak tree until the evening comes.",
    "What is 17 times 23?",
    "\u65e5\u672c\u306e\u9996\u90fd\u306f\u3069\u3053\u3067\u3059\u304b\u3002",
    "Tell me a joke about cats.",
    "How do I reverse a list in Python?",
    "Name the planets of the solar system.",
    "Is water wet?",
    "Write a SQL query that counts users per country.",
    "\U0001f600 what does this emoji mean?",
    "Continue: once upon a time",
]


def check(reference, prompts, answers, num_tokens):
    for prompt_ids, output_ids in zip(prompts, answers, strict=True):
        assert len(output_ids) == num_tokens
        assert disagreements(reference, prompt_ids, output_ids) == []


@pytest.fixture
def one_thread():
    """Use one thread, as more cost time on such small matrices, most of all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=FAMILIES)
def small(request, tmp_path_factory):
    """A random checkpoint in which every parameter matters, as transformers' model and as ours."""
    folder = tmp_path_factory.mktemp(request.param)
    family, changes = FAMILIES[request.param]
    model = random_model(family, spread=0.15, **SMALL | changes)
    model.save_pretrained(folder)
    return model, load_model(folder, weights="float32"), folder


@pytest.fixture(scope="module")
def small_prompts():
    draw = random.Random(1)
    shared = [draw.randrange(512) for _ in range(40)]
    lengths = [1, 2, 15, 16, 17, 31, 33, 50, 64, 90]
    return [[draw.randrange(512) for _ in range(length)] for length in lengths] + [
        shared + [draw.randrange(512) for _ in range(length)] for length in lengths
    ]


ARRANGEMENTS = {
    "alone": ({"max_num_seqs": 1, "max_num_batched_tokens": 256}, 0),
    "in a crowd": ({"max_num_seqs": 20, "max_num_batched_tokens": 2048}, 0),
    "joining one by one": ({"max_num_seqs": 8, "max_num_batched_tokens": 256}, 3),
    "cut into chunks": ({"max_num_seqs": 8, "max_num_batched_tokens": 24}, 1),
    "without a prefix cache": ({"max_num_seqs": 8, "max_num_batched_tokens": 64, "prefix_caching": False}, 1),
    "with small blocks": ({"max_num_seqs": 6, "max_num_batched_tokens": 64, "block_size": 4}, 1),
}


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_a_small_model_gives_the_answers_of_transformers(small, small_prompts, arrangement):
    reference, loaded, folder = small
    changes, stagger = ARRANGEMENTS[arrangement]
    core = CoreUnderTest(loaded, EngineConfig(folder, "small", max_model_len=512, weights="float32", **changes))
    check(reference, small_prompts, core.answers(small_prompts, 16, stagger), 16)
    again = core.answers(small_prompts, 16, stagger)
    check(reference, small_prompts, again, 16)
    stats = core.stats()
    assert stats.integrity == ""
    assert (stats.num_cached_tokens > 0) == changes.get("prefix_caching", True)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", OTHER_FAMILIES)
def test_a_small_model_of_every_family_gives_the_answers_of_transformers(tmp_path, small_prompts, name):
    """In a crowd cut into chunks, then again with prefix hits, then alone."""
    family, changes = OTHER_FAMILIES[name]
    reference = random_model(family, spread=0.15, **SMALL | changes)
    reference.save_pretrained(tmp_path)
    loaded = load_model(tmp_path, weights="float32")
    config = EngineConfig(
        tmp_path, "small", max_model_len=512, weights="float32", max_num_seqs=8, max_num_batched_tokens=40
    )
    core = CoreUnderTest(loaded, config)
    for _ in range(2):
        check(reference, small_prompts, core.answers(small_prompts, 16, 1), 16)
    check(reference, small_prompts[-1:], core.answers(small_prompts[-1:], 16), 16)
    stats = core.stats()
    assert stats.integrity == ""
    assert stats.num_cached_tokens > 0


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", FORMATS)
def test_a_quantised_folder_gives_the_answers_of_transformers_on_its_numbers(tmp_path, small_prompts, name):
    """In a crowd cut into chunks, then alone after prefix hits."""
    reference = random_model("Llama", spread=0.15, **SMALL)
    config, writer, _ = FORMATS[name]
    write_quantized(tmp_path, reference, config, writer)
    core = CoreUnderTest(
        load_model(tmp_path, weights="float32"),
        EngineConfig(
            tmp_path, "small", max_model_len=512, weights="float32", max_num_seqs=8, max_num_batched_tokens=40
        ),
    )
    prompts = small_prompts[3::4]
    check(reference, prompts, core.answers(prompts, 12, 1), 12)
    check(reference, prompts[-1:], core.answers(prompts[-1:], 12), 12)
    assert core.stats().num_cached_tokens > 0


@pytest.mark.usefixtures("one_thread")
def test_a_small_model_gives_the_answers_of_transformers_when_preempted(small, small_prompts):
    reference, loaded, folder = small
    core = CoreUnderTest(
        loaded,
        EngineConfig(
            folder, "small", max_model_len=512, max_num_seqs=16, max_num_batched_tokens=128, weights="float32"
        ),
        num_blocks=24,
    )
    check(reference, small_prompts, core.answers(small_prompts, 24), 24)
    stats = core.stats()
    assert stats.num_preemptions > 0
    assert stats.integrity == ""


@pytest.mark.usefixtures("one_thread")
def test_a_small_model_with_windows_holds_few_blocks_and_gives_the_answers_of_transformers(tmp_path):
    """Contexts of up to 12 windows, in a crowd, then with prefix hits, then alone.

    With one table for its 7 layers the longest sequence alone would hold 91 blocks.
    """
    reference = random_model("Gemma3Text", spread=0.15, **SMALL | WINDOW | {"head_dim": 64, "sliding_window": 16})
    reference.save_pretrained(tmp_path)
    draw = random.Random(2)
    shared = [draw.randrange(512) for _ in range(100)]
    prompts = [shared + [draw.randrange(512) for _ in range(length)] for length in (5, 40, 90)] + [shared[::-1]]
    config = EngineConfig(
        tmp_path, "small", max_model_len=512, weights="float32", max_num_seqs=4, max_num_batched_tokens=24
    )
    core = CoreUnderTest(load_model(tmp_path, weights="float32"), config, num_blocks=44)
    for _ in range(2):
        check(reference, prompts, core.answers(prompts, 12, 1), 12)
    check(reference, prompts[2:3], core.answers(prompts[2:3], 12), 12)
    stats = core.stats()
    assert stats.integrity == ""
    assert stats.num_cached_tokens > 100


@pytest.fixture(scope="module")
def smollm2(default_reference):
    processor = PromptProcessor(Tokenizer.from_path(SMOLLM2), LocalRenderer())
    requests = [
        GenerationRequest("run", "smollm2", ({"role": "user", "content": question},), 0.0) for question in QUESTIONS
    ]
    return (
        default_reference,
        load_model(SMOLLM2, weights="float32"),
        [processor.prompt(request, 2048).token_ids for request in requests],
    )


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    "arrangement", ["in a crowd, cut into chunks", "joining, without a prefix cache", "alone, after prefix hits"]
)
def test_the_default_model_gives_the_answers_of_transformers(smollm2, arrangement):
    """20 prompts of 64 tokens with a common system prompt, so that the second round finds cached blocks."""
    reference, loaded, prompts = smollm2
    changes = {"max_num_batched_tokens": 48, "max_num_seqs": 20}
    if arrangement.startswith("joining"):
        changes = {"max_num_batched_tokens": 256, "max_num_seqs": 20, "prefix_caching": False}
    core = CoreUnderTest(loaded, EngineConfig(SMOLLM2, "smollm2", max_model_len=512, weights="float32", **changes))
    if arrangement.startswith("alone"):
        core.answers(prompts[:1], 1)
        prompts = prompts[:2]
        check(reference, prompts, [core.answers([prompt_ids], 64)[0] for prompt_ids in prompts], 64)
    else:
        check(reference, prompts, core.answers(prompts, 64, stagger=2 if arrangement.startswith("joining") else 0), 64)
    stats = core.stats()
    assert stats.integrity == ""
    assert (stats.num_cached_tokens > 0) == changes.get("prefix_caching", True)
