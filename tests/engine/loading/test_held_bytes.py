"""The bytes of weights that headers promise are those that loading takes."""

from __future__ import annotations

import gguf
import pytest
import torch

from engine.loading.loader import open_checkpoint
from engine.models.decoder import DecoderBuilder
from engine.quantization.scheme import WeightScheme
from tests.engine.loading.gguf_models import write_model
from tests.engine.loading.quantized_folders import FORMATS, write_quantized
from tests.engine.models.test_decoder import small_model
from tests.engine.models.test_transformers_backend import FOREIGN, saved
from tests.engine.random_model import random_model

CPU = torch.device("cpu")
MIXED = {"attn_q": "Q4_K", "attn_v": "Q6_K", "ffn_gate": "Q5_K", "ffn_down": "Q6_K", "token_embd": "Q8_0"}
"""As in a file of Q4_K_M: queries and keys have one type, values another."""


class CountingScheme(WeightScheme):
    """A scheme that counts the bytes of what it builds."""

    num_built_bytes = 0

    def build(self, matrix):
        forms = super().build(matrix)
        assert self.held_bytes(matrix) == forms.num_bytes
        self.num_built_bytes += forms.num_bytes
        return forms


def built_and_promised(path, weights):
    """Return the bytes of the linear layers that loading builds, and those of all weights by the headers."""
    scheme = CountingScheme(weights, CPU, False)
    promised = open_checkpoint(path)[0].held_bytes(WeightScheme(weights, CPU, False))
    checkpoint, config, _ = open_checkpoint(path)
    DecoderBuilder(config, checkpoint, scheme, CPU).build(lambda fraction: None)
    return scheme.num_built_bytes, promised


def vector_bytes(reference):
    return sum(4 * values.numel() for values in reference.parameters() if values.dim() == 1)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("weights", ["auto", "bf16", "float32"])
def test_a_folder_in_every_mode(tmp_path, weights, tied):
    reference = random_model(tie_word_embeddings=tied)
    reference.save_pretrained(tmp_path)
    built, promised = built_and_promised(tmp_path, weights)
    table = reference.model.embed_tokens.weight.numel() * (4 if weights == "float32" else 2)
    assert promised == built + table + vector_bytes(reference)


@pytest.mark.parametrize("weights", ["auto", "bf16"])
def test_a_file_of_several_types(tmp_path, weights):
    sizes = {"hidden_size": 256, "intermediate_size": 512, "vocab_size": 96, "num_attention_heads": 4}
    reference = random_model(**sizes | {"num_key_value_heads": 2, "head_dim": 64})
    path = tmp_path / "model.gguf"

    def type_of(name):
        return next((kind for part, kind in MIXED.items() if part in name), "Q4_K")

    write_model(gguf.GGUFWriter(path, "llama"), reference, type_of=type_of)
    built, promised = built_and_promised(path, weights)
    table = 96 * 256 // 32 * 34 if weights == "auto" else 96 * 256 * 2
    assert promised == built + table + vector_bytes(reference)


@pytest.mark.parametrize("name", FORMATS)
def test_a_quantised_folder(tmp_path, name):
    config, writer, _ = FORMATS[name]
    reference = random_model(hidden_size=128, intermediate_size=256, head_dim=32)
    write_quantized(tmp_path, reference, config, writer)
    built, promised = built_and_promised(tmp_path, "auto")
    table = reference.model.embed_tokens.weight.numel() * 2
    assert promised == built + table + vector_bytes(reference)


@pytest.mark.parametrize("name", FOREIGN)
def test_a_model_of_transformers_layers_takes_its_parameters(tmp_path, name):
    reference = saved(tmp_path, name)
    promised = open_checkpoint(tmp_path)[0].held_bytes(WeightScheme("float32", CPU, False))
    unique = {values.data_ptr(): values.numel() for values in reference.state_dict().values()}
    assert promised == 4 * sum(unique.values())


def test_layers_with_inputs_of_their_own(tmp_path):
    reference = small_model("Gemma4Text", FOREIGN["gemma 4, experts"][1] | {"enable_moe_block": False})
    reference.save_pretrained(tmp_path)
    _, promised = built_and_promised(tmp_path, "float32")
    assert promised >= sum(4 * values.numel() for values in reference.parameters())
