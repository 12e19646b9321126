"""Sampling values of a model's files are used if a request could send them; its files can do no harm."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from chat.api.request.schema import sampling_defaults_read
from chat.catalog.model_choice import model_choice
from engine.loading.maker_defaults import maker_defaults
from tests.engine.loading.gguf_writing import FLOAT32, STRING, GgufContents, string

INT32 = 5


def written(folder: Path, text: str) -> dict[str, float]:
    (folder / "generation_config.json").write_text(text)
    return maker_defaults(folder)


def gguf(folder: Path, **sampling: Any) -> dict[str, float]:
    """Return the values of a GGUF file with these entries of `general.sampling.*`."""
    kinds = {int: (INT32, "<i"), float: (FLOAT32, "<f")}
    metadata = [("general.architecture", STRING, string("llama"))]
    for name, value in sampling.items():
        kind, form = kinds.get(type(value), (STRING, ""))
        metadata.append((f"general.sampling.{name}", kind, struct.pack(form, value) if form else string(value)))
    return maker_defaults(GgufContents(metadata=metadata).write(folder / "model.gguf"))


def test_sampling_values_of_a_folder_are_read_and_other_keys_ignored(tmp_path: Path) -> None:
    config = {
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
        "repetition_penalty": 1.05,
        "do_sample": True,
        "eos_token_id": [1, 2],
    }
    defaults = written(tmp_path, json.dumps(config | {"max_new_tokens": 2048, "max_length": 99}))
    makers = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05}
    assert defaults == makers | {"max_completion_tokens": 2048}
    assert sampling_defaults_read(defaults) == defaults


def test_sampling_values_of_a_gguf_file_are_read_by_llama_cpps_names(tmp_path: Path) -> None:
    defaults = gguf(
        tmp_path, temp=0.7, top_k=20, top_p=0.8, min_p=0.05, penalty_repeat=1.05, penalty_last_n=64, mirostat=2
    )
    assert defaults == {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.05, "repetition_penalty": 1.05}
    assert sampling_defaults_read(defaults) == defaults


def test_the_default_model_uses_the_sampling_values_of_its_model_card() -> None:
    """Its file has none: at temperature 1, three of six first answers were gibberish without an end."""
    assert maker_defaults(model_choice(path="", name="").path) == {"temperature": 0.2, "top_p": 0.9}


def test_the_file_takes_precedence_over_the_model_card(tmp_path: Path) -> None:
    named = [("general.organization", STRING, string("HuggingFaceTB")), ("general.basename", STRING, string("smollm2"))]
    file = GgufContents(metadata=[*named, ("general.sampling.temp", FLOAT32, struct.pack("<f", 0.5))])
    assert maker_defaults(file.write(tmp_path / "model.gguf")) == {"temperature": 0.5, "top_p": 0.9}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"temperature": NaN}',
        '{"temperature": Infinity, "top_p": 0, "top_k": 1.5, "min_p": "0.1", "repetition_penalty": 0}',
        '{"temperature": true, "top_k": -2, "top_p": null, "min_p": -0.1, "repetition_penalty": 1e999}',
        '{"max_new_tokens": 0, "max_completion_tokens": 7}',
        '{"max_new_tokens": 20.0}',
        "[" * 100_000,
        "\0" * 10,
    ],
)
def test_values_that_no_request_may_send_are_ignored(tmp_path: Path, text: str) -> None:
    assert written(tmp_path, text) == {}


def test_gguf_values_that_no_request_may_send_are_ignored(tmp_path: Path) -> None:
    assert gguf(tmp_path, temp=float("nan"), top_p=0.0, top_k=-2, min_p="0.1", penalty_repeat=float("inf")) == {}
    assert gguf(tmp_path, temp=9.0, top_k=1.0) == {}


def test_unreadable_files_give_no_values(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert maker_defaults(tmp_path / "model.gguf") == {}
    assert maker_defaults(tmp_path / "missing") == {}
    (tmp_path / "generation_config.json").write_bytes(b"\xff\xfe\xff")
    assert maker_defaults(tmp_path) == {}
