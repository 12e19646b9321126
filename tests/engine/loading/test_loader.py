"""GGUF files against transformers: small ones written with the reference package, and the real default model."""

from zlib import crc32

import gguf
import pytest
import torch

from engine.api.errors import ModelLoadError
from engine.loading.loader import load_model
from tests.engine.loading.gguf_models import write_gguf, write_model
from tests.engine.loading.gguf_writing import STRING, GgufContents, string
from tests.engine.models.test_decoder import LONGROPE, LONGROPE_CONFIG, VARIANTS, YARN, run, small_model

transformers = pytest.importorskip("transformers")

LOCAL = {"rope_type": "default", "rope_theta": 10000.0}
GGUF_MODELS = {
    "llama": ("llama", "Llama", {"num_key_value_heads": 2}),
    "llama with tied output": ("llama", "Llama", {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "qwen2": ("qwen2", "Qwen2", {"num_key_value_heads": 2}),
    "qwen2 with tied output": ("qwen2", "Qwen2", {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "qwen3": ("qwen3", "Qwen3", {"num_key_value_heads": 2, "head_dim": 32}),
    "granite": (
        "granite",
        "Granite",
        {
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "attention_multiplier": 0.2,
            "logits_scaling": 4.0,
            "num_key_value_heads": 2,
        },
    ),
    "olmo2": ("olmo2", "Olmo2", {"num_key_value_heads": 2}),
    "olmo 3": (
        "olmo2",
        "Olmo3",
        {"num_key_value_heads": 2, "sliding_window": 20}
        | {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"]}
        | {"rope_parameters": {"full_attention": YARN, "sliding_attention": LOCAL}},
    ),
    "starcoder2": ("starcoder2", "Starcoder2", {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "glm4": ("glm4", "Glm4", {"num_key_value_heads": 2, "head_dim": 16, "attention_bias": True, "pad_token_id": 0}),
    "smollm3": ("smollm3", "SmolLM3", {"num_key_value_heads": 2, "num_hidden_layers": 5, "pad_token_id": 0}),
    "exaone 4": ("exaone4", "Exaone4", {"num_key_value_heads": 2, "sliding_window": 20, "num_hidden_layers": 5}),
    "gemma 2": (
        "gemma2",
        "Gemma2",
        {"head_dim": 16, "num_key_value_heads": 2, "sliding_window": 20, "query_pre_attn_scalar": 16}
        | {"tie_word_embeddings": True},
    ),
    "gemma 3": (
        "gemma3",
        "Gemma3Text",
        {"head_dim": 16, "num_key_value_heads": 2, "sliding_window": 20, "num_hidden_layers": 7}
        | {"query_pre_attn_scalar": 16, "tie_word_embeddings": True},
    ),
    "gemma 4": ("gemma4", *VARIANTS["gemma4"]),
    "gemma 4 with heads of one size": ("gemma4", "Gemma4Text", VARIANTS["gemma4"][1] | {"head_dim": 16}),
    "gemma 4 with values that are keys": ("gemma4", *VARIANTS["gemma4 with values that are keys"]),
    "ministral 3": ("mistral3", *VARIANTS["ministral3"]),
    "exaone 3": ("exaone", "Llama", {"num_key_value_heads": 2}),
    "phi3": ("phi3", "Phi3", {"num_key_value_heads": 2, "pad_token_id": 0}),
}


@pytest.mark.parametrize("name", GGUF_MODELS)
def test_a_gguf_file_gives_the_logits_of_the_model_that_it_was_made_of(tmp_path, name):
    architecture, family, changes = GGUF_MODELS[name]
    reference = small_model(family, changes)
    model = load_model(write_gguf(tmp_path / "m.gguf", reference, architecture), weights="float32")
    prompt = torch.arange(60)
    with torch.inference_mode():
        expected = reference(prompt[None]).logits[0]
    torch.testing.assert_close(run(model, [prompt], cuts=[7])[0], expected, atol=1e-4, rtol=0)


SMALL_BLOCKS = ("Q8_0", "Q4_0", "Q5_1", "IQ4_NL")


@pytest.mark.parametrize("name", GGUF_MODELS)
def test_a_quantised_file_of_every_architecture_gives_the_logits_of_its_numbers(tmp_path, name):
    """Matrices that are cut, reordered, scaled or looked up are in blocks, of one type beside another."""
    architecture, family, changes = GGUF_MODELS[name]
    reference = small_model(family, changes)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", architecture)
    write_model(writer, reference, type_of=lambda tensor: SMALL_BLOCKS[crc32(tensor.encode()) % 4])
    prompt = torch.arange(60)
    with torch.inference_mode():
        expected = reference(prompt[None]).logits[0]
    model = load_model(tmp_path / "m.gguf", weights="float32")
    torch.testing.assert_close(run(model, [prompt], cuts=[7])[0], expected, atol=1e-4, rtol=0)


def test_a_file_with_positions_of_images_holds_rotated_pairs_as_two_halves(tmp_path):
    """Files of GLM-4.1V, whose architecture is that of GLM-4, gave wrong answers."""
    _, family, changes = GGUF_MODELS["glm4"]
    reference = small_model(family, changes)
    path = write_gguf(tmp_path / "m.gguf", reference, "glm4", sections=[1, 1, 2, 0])
    prompt = torch.arange(30)
    with torch.inference_mode():
        expected = reference(prompt[None]).logits[0]
    found = run(load_model(path, weights="float32"), [prompt], cuts=[7])[0]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_frequency_factors_of_a_file_equal_the_rope_scaling_they_encode(tmp_path):
    rope = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    reference = small_model("Llama", {"rope_parameters": rope})
    factors = {"rope_freqs.weight": torch.full((8,), 4.0)}
    model = load_model(write_gguf(tmp_path / "m.gguf", reference, "llama", factors), weights="float32")
    prompt = torch.arange(60)
    with torch.inference_mode():
        expected = reference(prompt[None]).logits[0]
    torch.testing.assert_close(run(model, [prompt], cuts=[])[0], expected, atol=1e-4, rtol=0)


def test_factors_of_longrope_in_a_file_equal_those_of_the_folder(tmp_path):
    reference = small_model("Phi3", LONGROPE_CONFIG)
    kinds = {"rope_factors_short.weight": "short_factor", "rope_factors_long.weight": "long_factor"}
    factors = {name: torch.tensor(LONGROPE[kind]) for name, kind in kinds.items()}
    path = write_gguf(tmp_path / "m.gguf", reference, "phi3", factors)
    for length, context in ((60, 64), (100, 0)):
        prompt = torch.arange(length) % 96
        with torch.inference_mode():
            expected = reference(prompt[None]).logits[0]
        (logits,) = run(load_model(path, weights="float32", max_model_len=context), [prompt], [7])
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


def test_tensors_that_the_architecture_does_not_have_are_refused_by_name(tmp_path):
    path = write_gguf(
        tmp_path / "m.gguf", small_model("Llama", {}), "llama", {"blk.0.attn_q_norm.weight": torch.ones(16)}
    )
    with pytest.raises(ModelLoadError, match=r"m\.gguf: holds 1 tensors .*'blk.0.attn_q_norm.weight'"):
        load_model(path, weights="float32")


def test_a_file_of_an_unknown_architecture_is_refused_with_the_known_ones(tmp_path):
    path = GgufContents(metadata=[("general.architecture", STRING, string("mamba"))]).write(tmp_path / "m.gguf")
    with pytest.raises(ModelLoadError, match="the architecture 'mamba' cannot be served; supported are "):
        load_model(path)


def test_a_path_that_does_not_exist_is_refused_by_name(tmp_path):
    with pytest.raises(ModelLoadError, match=r"nowhere\.gguf: there is no such file"):
        load_model(tmp_path / "nowhere.gguf")


def test_a_model_name_that_is_no_path_is_refused_as_nothing_is_fetched(tmp_path):
    """The error was that of an unreadable GGUF file."""
    with pytest.raises(ModelLoadError, match=r"llama3\.2: .*nothing is fetched by its name"):
        load_model(tmp_path / "llama3.2")
