"""Lying models: whatever a file says of itself, it is refused with its name, before weights are read, or it opens.

Two small valid models, a GGUF file and a folder, are changed in one place that their tables or settings name.
"""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from safetensors.torch import load, save

from engine.api.errors import ModelLoadError
from engine.loading.checkpoint import GgufTensors
from engine.loading.loader import load_model
from engine.loading.safetensors_file import SafetensorsFolder
from engine.tokenizers.tokenizer import Tokenizer
from tests.engine.loading.gguf_writing import ARRAY, BOOL, FLOAT32, STRING, UINT32, UINT64, GgufContents, string
from tests.examples import examples

HIDDEN, INNER, VOCAB, CONTEXT = 32, 64, 48, 128
F32, F16, Q4_0, Q4_K, I32 = 0, 1, 2, 12, 26
SHAPES = {
    "token_embd.weight": (VOCAB, HIDDEN),
    "blk.0.attn_norm.weight": (HIDDEN,),
    "blk.0.attn_q.weight": (HIDDEN, HIDDEN),
    "blk.0.attn_k.weight": (HIDDEN // 2, HIDDEN),
    "blk.0.attn_v.weight": (HIDDEN // 2, HIDDEN),
    "blk.0.attn_output.weight": (HIDDEN, HIDDEN),
    "blk.0.ffn_norm.weight": (HIDDEN,),
    "blk.0.ffn_gate.weight": (INNER, HIDDEN),
    "blk.0.ffn_up.weight": (INNER, HIDDEN),
    "blk.0.ffn_down.weight": (HIDDEN, INNER),
    "output_norm.weight": (HIDDEN,),
    "output.weight": (VOCAB, HIDDEN),
}
METADATA: dict[str, tuple[int, Any]] = {
    "general.architecture": (STRING, "llama"),
    "general.alignment": (UINT32, 32),
    "llama.block_count": (UINT32, 1),
    "llama.context_length": (UINT32, CONTEXT),
    "llama.embedding_length": (UINT32, HIDDEN),
    "llama.feed_forward_length": (UINT32, INNER),
    "llama.attention.head_count": (UINT32, 2),
    "llama.attention.head_count_kv": (UINT32, 1),
    "llama.attention.key_length": (UINT32, 16),
    "llama.attention.layer_norm_rms_epsilon": (FLOAT32, 1e-5),
    "llama.rope.dimension_count": (UINT32, 16),
    "llama.rope.freq_base": (FLOAT32, 1e4),
    "llama.rope.scaling.type": (STRING, "none"),
    "llama.rope.scaling.factor": (FLOAT32, 1.0),
    "llama.attention.sliding_window": (UINT32, 0),
    "split.count": (UINT32, 1),
    "split.no": (UINT32, 0),
}
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "vocab_size": VOCAB,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e4,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "sliding_window": None,
    "attention_bias": False,
    "text_config": None,
}
NAMES_IN_FOLDER = dict(
    zip(
        SHAPES,
        (
            "model.embed_tokens.weight",
            *(
                f"model.layers.0.{name}.weight"
                for name in (
                    "input_layernorm self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj "
                    "post_attention_layernorm mlp.gate_proj mlp.up_proj mlp.down_proj"
                ).split()
            ),
            "model.norm.weight",
            "lm_head.weight",
        ),
        strict=True,
    )
)
HUGE = [1 << 12, 1 << 24, (1 << 31) - 1, (1 << 32) - 1]
INTEGERS = [0, 1, 3, 7, 16, 33, *HUGE]


def encoded(kind: int, value: Any) -> bytes:
    if kind == STRING:
        return string(value)
    return struct.pack({UINT32: "<I", UINT64: "<Q", FLOAT32: "<f", BOOL: "<?"}[kind], value)


def gguf_contents() -> GgufContents:
    """Return a model of one layer; every tensor ends at a multiple of the alignment."""
    tensors, data = [], b""
    for name, shape in SHAPES.items():
        tensors.append((name, list(shape)[::-1], F32, len(data)))
        data += torch.full(shape, 0.1).numpy().tobytes()
    metadata = [(key, kind, encoded(kind, value)) for key, (kind, value) in METADATA.items()]
    return GgufContents(metadata=metadata, tensors=tensors, data=data)


GOOD = gguf_contents()
TENSORS = save({NAMES_IN_FOLDER[name]: torch.full(shape, 0.1) for name, shape in SHAPES.items()})
HEADER_BYTES = int.from_bytes(TENSORS[:8], "little")
HEADER = json.loads(TENSORS[8 : 8 + HEADER_BYTES])
WEIGHTS_READ: list[str] = []


@pytest.fixture(autouse=True)
def weights_read(monkeypatch):
    """Note the tensors that are read."""
    WEIGHTS_READ.clear()
    for reader in (GgufTensors, SafetensorsFolder):
        monkeypatch.setattr(reader, "matrix", noting(reader.matrix))


def noting(read):
    def matrix(self, name):
        WEIGHTS_READ.append(name)
        return read(self, name)

    return matrix


def opens(path: Path) -> bool:
    """Return True if a model loads, False if it is refused by its name before anything of it is read."""
    WEIGHTS_READ.clear()
    try:
        model = load_model(path, weights="float32")
    except ModelLoadError as refusal:
        message = refusal.message
    else:
        shape = model.config.layers[0].attention
        assert (shape.num_heads * shape.head_size, model.config.hidden_size) == (HIDDEN, HIDDEN)
        return True
    assert str(path) in message
    assert len(message) < 1000
    assert not WEIGHTS_READ, message
    return False


def write_folder(path: Path, config: dict[str, Any], tensors: bytes) -> Path:
    (path / "config.json").write_text(json.dumps(config))
    (path / "model.safetensors").write_bytes(tensors)
    return path


def with_header(header: dict[str, Any] | bytes, claimed_bytes: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    claimed = len(raw) if claimed_bytes is None else claimed_bytes
    return claimed.to_bytes(8, "little") + raw + TENSORS[8 + HEADER_BYTES :]


def test_the_unchanged_models_open(tmp_path):
    assert opens(GOOD.write(tmp_path / "m.gguf"))
    assert opens(write_folder(tmp_path, CONFIG, TENSORS))


values = st.one_of(
    st.tuples(st.just(UINT32), st.sampled_from(INTEGERS)),
    st.tuples(st.just(UINT64), st.sampled_from([1 << 60, (1 << 64) - 1])),
    st.tuples(st.just(FLOAT32), st.sampled_from([0.0, -1.0, 1e-30, 3e38, float("inf"), float("nan")])),
    st.tuples(st.just(STRING), st.sampled_from(["", "yarn", "llama4", "x" * 5000])),
    st.tuples(st.just(BOOL), st.booleans()),
    st.tuples(st.just(ARRAY), st.sampled_from([b"", bytes(1 << 10), struct.pack("<IQI", UINT32, 1, 16)])),
)


@examples(120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, len(METADATA) - 1), changed=values)
def test_a_gguf_file_with_a_lie_in_its_metadata_is_refused_or_opens(tmp_path, place, changed):
    kind, value = changed
    raw = value if kind == ARRAY else encoded(kind, value)
    metadata = [*GOOD.metadata]
    metadata[place] = (metadata[place][0], kind, raw if kind != ARRAY or raw else struct.pack("<IQ", STRING, 0))
    opens(replace(GOOD, metadata=metadata).write(tmp_path / "m.gguf"))


@pytest.mark.parametrize("place", range(len(SHAPES)))
def test_a_gguf_file_with_a_lie_about_a_tensor_is_refused(tmp_path, place):
    """The place of the next tensor shows it, or the end of the file."""
    name, shape, kind, offset = GOOD.tensors[place]
    lies = [
        (f"{name}.weight", shape, kind, offset),
        (name, [*shape, 1], kind, offset),
        (name, [shape[0] - 16, *shape[1:]], kind, offset),
        (name, [shape[0] * 2, *shape[1:]], kind, offset),
        (name, shape[:-1] + [1 << 40], kind, offset),
        (name, shape, Q4_0, offset),
        (name, shape, Q4_K, offset),
        (name, shape, I32, offset),
        (name, shape, F16, offset),
        (name, shape, kind, offset + 32),
        (name, shape, kind, 1 << 62),
        (name, shape, kind, 0 if place else 64),
    ]
    for lie in lies:
        changed = [*GOOD.tensors[:place], lie, *GOOD.tensors[place + 1 :]]
        assert not opens(replace(GOOD, tensors=changed).write(tmp_path / "m.gguf")), lie


VOCABULARY: dict[str, Any] = {
    "pre": "gpt-2",
    "tokens": ["a", "b", "ab", "<|x|>", "\u0120"],
    "merges": ["a b"],
    "scores": [0.0, 0.0, 1.0, 0.0, 0.0],
    "token_type": [1, 1, 1, 3, 1],
    "bos_token_id": 3,
    "unknown_token_id": 3,
    "add_space_prefix": True,
    "precompiled_charsmap": [],
}


@examples(200)
@given(
    model=st.sampled_from(["gpt2", "llama", "t5", "bert", "", "rwkv"]),
    name=st.sampled_from(sorted(VOCABULARY)),
    value=st.sampled_from(
        [None, 0, 1, -1, 1 << 63, 2.5, float("nan"), True, "", "x" * 5000, [], [1] * 5, [1 << 40] * 5, [[1]], [""]]
        + [["a"] * 5, ["x" * 5000] * 5, [float("nan")] * 5, ["a b", "c d"], [" "]]
    ),
)
def test_a_tokenizer_with_a_lie_is_refused_or_encodes(model, name, value):
    metadata = {f"tokenizer.ggml.{key}": known for key, known in (VOCABULARY | {name: value}).items()}
    try:
        tokenizer = Tokenizer.from_metadata(metadata | {"tokenizer.ggml.model": model})
    except ModelLoadError as refusal:
        message = refusal.message
    else:
        message = ""
        assert all(token_id < tokenizer.num_tokens for token_id in tokenizer.encode("ab a<|x|>"))
    assert len(message) < 2000


@examples(120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(sorted(CONFIG)),
    value=st.sampled_from(
        [None, *INTEGERS, -1, 1 << 70, 1.5, 0.0, 1e308, "", "x" * 5000, True, [], [1], {}, {"rope_type": "yarn"}]
        + [{"rope_type": "yarn", "factor": -1}, {"rope_type": "llama3", "factor": 1e300}, {"hidden_size": 1}]
    ),
)
def test_a_folder_with_a_lie_in_its_config_is_refused_or_opens(tmp_path, name, value):
    if name != "architectures":  # others than ours go to transformers
        opens(write_folder(tmp_path, CONFIG | {name: value}, TENSORS))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("hidden_size", 1 << 24, r"\(48, 16777216\), got \(48, 32\); its description says hidden_size 16777216"),
        ("vocab_size", 1 << 24, r"\(16777216, 32\), got \(48, 32\); its description says vocab_size 16777216"),
        ("num_attention_heads", 8, r"got \(32, 32\); its description says .*num_attention_heads 8 x head_dim 16"),
        ("num_hidden_layers", 4096, "has 12 tensors in all, fewer than layers; its description says num_hidden_layers"),
    ],
)
def test_a_size_that_the_tensors_do_not_have_is_named(tmp_path, name, value, said):
    with pytest.raises(ModelLoadError, match=said):
        load_model(write_folder(tmp_path, CONFIG | {name: value}, TENSORS))


@pytest.mark.parametrize("name", [NAMES_IN_FOLDER["token_embd.weight"], NAMES_IN_FOLDER["output.weight"]])
def test_a_folder_with_a_lie_about_a_tensor_is_refused(tmp_path, name):
    first, last = HEADER[name]["data_offsets"]
    lies = [
        {"dtype": "F16"},
        {"dtype": "I32"},
        {"dtype": "F8_E8M0"},
        {"dtype": "X"},
        {"dtype": None},
        {"shape": [VOCAB, HIDDEN, 1]},
        {"shape": [HIDDEN, VOCAB]},
        {"shape": [VOCAB + 1, HIDDEN]},
        {"shape": [1 << 40, 1 << 40]},
        {"shape": [-1]},
        {"shape": [1.5]},
        {"data_offsets": [first, last + 4]},
        {"data_offsets": [last, first]},
        {"data_offsets": [first, 1 << 62]},
        {"data_offsets": [first + 4, last]},
        {"data_offsets": [first]},
    ]
    for lie in lies:
        header = HEADER | {name: HEADER[name] | lie}
        assert not opens(write_folder(tmp_path, CONFIG, with_header(header))), lie
    others = {other: entry for other, entry in HEADER.items() if other != name}
    twin = HEADER | {name: HEADER[NAMES_IN_FOLDER["blk.0.attn_q.weight"]]}
    for header in (others, others | {"unknown": HEADER[name]}, HEADER | {"unknown": HEADER[name]}, twin, {}):
        assert not opens(write_folder(tmp_path, CONFIG, with_header(header)))


@pytest.mark.parametrize("weights", ["auto", "bf16", "float32"])
@pytest.mark.parametrize("name", SHAPES)
def test_numbers_that_are_not_finite_are_refused_by_the_name_of_their_tensor(tmp_path, name, weights):
    """They made answers fail, or on some processors answers of no sense."""
    place = [tensor[0] for tensor in GOOD.tensors].index(name)
    last = GOOD.tensors[place][3] + torch.Size(SHAPES[name]).numel() * 4
    for broken in (torch.nan, torch.inf):
        data = GOOD.data[: last - 4] + struct.pack("<f", broken) + GOOD.data[last:]
        with pytest.raises(ModelLoadError, match=f"m.gguf: tensor '{name}' holds numbers that are not finite"):
            load_model(replace(GOOD, data=data).write(tmp_path / "m.gguf"), weights=weights)
        tensors = load(TENSORS)
        tensors[NAMES_IN_FOLDER[name]].view(-1)[-1] = broken
        with pytest.raises(ModelLoadError, match=f"tensor '{NAMES_IN_FOLDER[name]}' holds numbers that are not finite"):
            load_model(write_folder(tmp_path, CONFIG, save(tensors)), weights=weights)


@pytest.mark.parametrize("name", ["vision_tower.norm.weight", "model.visual.norm.weight", "audio_tower.x"])
def test_tensors_of_another_part_are_left_out_only_if_the_config_describes_it(tmp_path, caplog, name):
    """They were left out of any model."""
    tensors = save(load(TENSORS) | {name: torch.ones(3)})
    assert not opens(write_folder(tmp_path, CONFIG, tensors))
    part = "audio_config" if name.startswith("audio") else "vision_config"
    with caplog.at_level("INFO"):
        assert opens(write_folder(tmp_path, CONFIG | {part: {"hidden_size": 3}}, tensors))
    assert "1 tensors are of parts beside the text model" in caplog.text


@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (2, 3, 4)])
def test_a_folder_with_another_bias_that_is_no_vector_is_refused(tmp_path, shape):
    """Those of a file for another architecture are taken if they are zero: such ones stopped the loading half-way."""
    tensors = load(TENSORS) | {"x.bias": torch.zeros(shape)}
    assert not opens(write_folder(tmp_path, CONFIG, save(tensors)))


TABLES = {
    "endless": with_header(HEADER, claimed_bytes=(1 << 64) - 1),
    "as long as the file": with_header(HEADER, claimed_bytes=len(TENSORS)),
    "short": with_header(HEADER, claimed_bytes=1),
    "deep lists": with_header(b"[" * 100_000),
    "deep objects": with_header(b'{"a":' * 20_000),
    "no object": with_header(b"[]"),
    "no text": with_header(b"\xff" * 64),
    "half a file": TENSORS[: len(TENSORS) // 2],
    "a byte missing": TENSORS[:-1],
    "more than a file": TENSORS + bytes(4),
}


@pytest.mark.parametrize("tensors", TABLES.values(), ids=TABLES)
def test_a_folder_with_a_lie_about_the_table_is_refused(tmp_path, tensors):
    assert not opens(write_folder(tmp_path, CONFIG, tensors))
