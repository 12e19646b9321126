"""Read a Whisper model of CTranslate2 (https://opennmt.net/CTranslate2) and write it as transformers has it.

A file is a version, the name and revision of its form, then for each variable its name, shape, type and numbers.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import torch
import transformers

TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
PARTS = {
    "self_attention/layer_norm": "self_attn_layer_norm",
    "attention/layer_norm": "encoder_attn_layer_norm",
    "ffn/layer_norm": "final_layer_norm",
    "ffn/linear_0": "fc1",
    "ffn/linear_1": "fc2",
}
LEAVES = {"gamma": "weight", "beta": "bias"}


def read_variables(data: bytes) -> dict[str, np.ndarray]:
    """Return the variables by name."""
    place = 0

    def take(form: str):
        nonlocal place
        values = struct.unpack_from(f"<{form}", data, place)
        place += struct.calcsize(f"<{form}")
        return values[0] if len(values) == 1 else values

    def text() -> str:
        nonlocal place
        length = take("H")
        place += length
        return data[place - length : place].rstrip(b"\0").decode()

    take("I"), text(), take("I")
    variables = {}
    for _ in range(take("I")):
        name = text()
        shape = [take("I") for _ in range(take("B"))]
        kind, num_bytes = take("B"), take("I")
        variables[name] = np.frombuffer(data, TYPES[kind], num_bytes // np.dtype(TYPES[kind]).itemsize, place).reshape(
            shape
        )
        place += num_bytes
    for _ in range(take("I")):
        alias, name = text(), text()
        variables[alias] = variables[name]
    return variables


def _numbers(variables: dict[str, np.ndarray], name: str) -> torch.Tensor:
    return torch.from_numpy(variables[name].astype(np.float32))


def _layer(variables: dict[str, np.ndarray], side: str, number: int) -> dict[str, torch.Tensor]:
    made = {}
    source, target = f"{side}/layer_{number}/", f"model.{side}.layers.{number}."
    for name in variables:
        if not name.startswith(source):
            continue
        part, _, leaf = name.removeprefix(source).rpartition("/")
        numbers, leaf = _numbers(variables, name), LEAVES.get(leaf, leaf)
        if part in PARTS:
            made[f"{target}{PARTS[part]}.{leaf}"] = numbers
            continue
        kind, _, linear = part.partition("/")
        own = "self_attn" if kind == "self_attention" else "encoder_attn"
        projections = {
            ("self_attn", "linear_0"): ("q_proj", "k_proj", "v_proj"),
            ("encoder_attn", "linear_0"): ("q_proj",),
            ("encoder_attn", "linear_1"): ("k_proj", "v_proj"),
        }.get((own, linear), ("out_proj",))
        for projection, rows in zip(projections, numbers.chunk(len(projections)), strict=True):
            if not (projection == "k_proj" and leaf == "bias"):
                made[f"{target}{own}.{projection}.{leaf}"] = rows.clone()
    return made


def write_whisper_base(parts: bytes, config: dict, tokenizer: bytes, folder: Path) -> None:
    """Write the model as a folder. `parts`: the file; `config`: of its languages, suppressed tokens and heads."""
    variables = read_variables(parts)
    sides = {
        side: len({name.split("/")[1] for name in variables if name.startswith(f"{side}/layer_")} - {"layer_norm"})
        for side in ("encoder", "decoder")
    }
    width = variables["decoder/layer_norm/gamma"].shape[0]
    bands = variables["encoder/conv1/weight"].shape[1]
    vocabulary = variables["decoder/embeddings/weight"].shape[0]
    description = transformers.WhisperConfig(
        vocab_size=vocabulary,
        num_mel_bins=bands,
        d_model=width,
        encoder_layers=sides["encoder"],
        decoder_layers=sides["decoder"],
        encoder_attention_heads=width // 64,
        decoder_attention_heads=width // 64,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        median_filter_width=7,
        architectures=["WhisperForConditionalGeneration"],
    )
    state = {}
    for side, count in sides.items():
        for number in range(count):
            state |= _layer(variables, side, number)
        for leaf in ("gamma", "beta"):
            state[f"model.{side}.layer_norm.{LEAVES[leaf]}"] = _numbers(variables, f"{side}/layer_norm/{leaf}")
        state[f"model.{side}.embed_positions.weight"] = _numbers(variables, f"{side}/position_encodings/encodings")
    for name in ("conv1", "conv2"):
        for leaf in ("weight", "bias"):
            state[f"model.encoder.{name}.{leaf}"] = _numbers(variables, f"encoder/{name}/{leaf}")
    state["model.decoder.embed_tokens.weight"] = _numbers(variables, "decoder/embeddings/weight")
    model = transformers.WhisperForConditionalGeneration(description)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert set(missing) <= {"proj_out.weight"}
    assert not unexpected
    model.tie_weights()
    model.generation_config = generation_config(tokenizer, config)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes(tokenizer)
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>"}')
    transformers.WhisperFeatureExtractor(feature_size=bands).save_pretrained(folder)


def generation_config(tokenizer: bytes, config: dict) -> transformers.GenerationConfig:
    """Return what transformers has in generation_config.json."""
    ids = {token["content"]: token["id"] for token in json.loads(tokenizer)["added_tokens"]}
    languages = {token: place for token, place in ids.items() if place in set(config["lang_ids"])}
    return transformers.GenerationConfig(
        decoder_start_token_id=ids["<|startoftranscript|>"],
        bos_token_id=ids["<|endoftext|>"],
        eos_token_id=ids["<|endoftext|>"],
        pad_token_id=ids["<|endoftext|>"],
        no_timestamps_token_id=ids["<|notimestamps|>"],
        prev_sot_token_id=ids["<|startofprev|>"],
        lang_to_id=languages,
        task_to_id={name: ids[f"<|{name}|>"] for name in ("transcribe", "translate")},
        is_multilingual=True,
        max_initial_timestamp_index=50,
        max_length=448,
        return_timestamps=False,
        suppress_tokens=config["suppress_ids"],
        begin_suppress_tokens=config["suppress_ids_begin"],
        alignment_heads=config["alignment_heads"],
    )
