"""GGUF files against transformers: small ones written with the reference package, and the real default model."""

from pathlib import Path

import pytest
import torch

from engine.api.errors import ModelLoadError
from engine.loading.loader import load_model
from engine.loading.names import gguf_name, hf_name
from tests.engine.loading.gguf_writing import STRING, GgufContents, string
from tests.engine.models.test_decoder import run, small_model

gguf = pytest.importorskip("gguf")
transformers = pytest.importorskip("transformers")
LAYER_NAMES = ("attention_norm", "q", "k", "v", "o", "mlp_norm", "gate", "up", "down")


def llama_row_order(values: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Reorder rows as llama.cpp's converter does for q and k of Llama models (convert_hf_to_gguf.py, MIT)."""
    return (
        values.reshape(num_heads, 2, values.shape[0] // num_heads // 2, *values.shape[1:])
        .swapaxes(1, 2)
        .reshape(values.shape)
    )


def write_gguf(
    path: Path, model: torch.nn.Module, architecture: str, extra: dict[str, torch.Tensor] | None = None
) -> Path:
    config, weights = model.config, model.state_dict()
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    biases = ("q_bias", "k_bias", "v_bias") if architecture == "qwen2" else ()
    names = [
        "embedding",
        "final_norm",
        *(f"layers.{i}.{n}" for i in range(config.num_hidden_layers) for n in (*LAYER_NAMES, *biases)),
    ]
    for name in names if config.tie_word_embeddings else [*names, "output"]:
        values = weights[hf_name(name)]
        if architecture == "llama" and name.endswith((".q", ".k")):
            values = llama_row_order(
                values, config.num_attention_heads if name.endswith("q") else config.num_key_value_heads
            )
        writer.add_tensor(gguf_name(name), values.numpy())
    for name, values in (extra or {}).items():
        writer.add_tensor(name, values.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(("family", "architecture"), [("Llama", "llama"), ("Qwen2", "qwen2")])
@pytest.mark.parametrize("tied", [True, False])
def test_a_gguf_file_gives_the_logits_of_the_model_that_it_was_made_of(tmp_path, family, architecture, tied):
    reference = small_model(family, {"num_key_value_heads": 2, "tie_word_embeddings": tied})
    model = load_model(write_gguf(tmp_path / "m.gguf", reference, architecture), weights="float32")
    prompt = torch.arange(60)
    with torch.inference_mode():
        expected = reference(prompt[None]).logits[0]
    torch.testing.assert_close(run(model, [prompt], cuts=[7])[0], expected, atol=1e-4, rtol=0)


def test_frequency_factors_of_a_file_equal_the_rope_scaling_they_encode(tmp_path):
    rope = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    reference = small_model("Llama", {"rope_parameters": rope})
    factors = {"rope_freqs.weight": torch.full((8,), 4.0)}
    model = load_model(write_gguf(tmp_path / "m.gguf", reference, "llama", factors), weights="float32")
    prompt = torch.arange(60)
    with torch.inference_mode():
        expected = reference(prompt[None]).logits[0]
    torch.testing.assert_close(run(model, [prompt], cuts=[])[0], expected, atol=1e-4, rtol=0)


def test_tensors_that_the_architecture_does_not_have_are_refused_by_name(tmp_path):
    path = write_gguf(
        tmp_path / "m.gguf", small_model("Llama", {}), "llama", {"blk.0.attn_q_norm.weight": torch.ones(16)}
    )
    with pytest.raises(ModelLoadError, match=r"m\.gguf: holds 1 tensors .*'blk.0.attn_q_norm.weight'"):
        load_model(path, weights="float32")


def test_a_file_of_an_unknown_architecture_is_refused_with_the_known_ones(tmp_path):
    path = GgufContents(metadata=[("general.architecture", STRING, string("mamba"))]).write(tmp_path / "m.gguf")
    with pytest.raises(ModelLoadError, match="the architecture 'mamba' cannot be served; supported are llama, qwen2"):
        load_model(path)


def test_a_path_that_does_not_exist_is_refused_by_name(tmp_path):
    with pytest.raises(ModelLoadError, match=r"nowhere\.gguf: there is no such file"):
        load_model(tmp_path / "nowhere.gguf")


def test_a_model_name_that_is_no_path_is_refused_as_nothing_is_fetched(tmp_path):
    """The error was that of an unreadable GGUF file."""
    with pytest.raises(ModelLoadError, match=r"llama3\.2: .*nothing is fetched by its name"):
        load_model(tmp_path / "llama3.2")
