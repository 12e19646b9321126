"""A model's own sampling values are used where they are such as a request could send, and nothing in the file does harm."""

import json

import pytest

from chat.dialects.request.schema import sampling_defaults_read
from chat.services.generation_defaults import generation_defaults


def written(folder, text):
    (folder / "generation_config.json").write_text(text)
    return generation_defaults(str(folder))


def test_the_makers_values_are_read_and_all_else_is_left(tmp_path):
    config = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05, "do_sample": True, "eos_token_id": [1, 2]}
    defaults = written(tmp_path, json.dumps(config | {"max_new_tokens": 2048, "max_length": 99}))
    makers = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05}
    assert defaults == makers | {"max_completion_tokens": 2048}
    assert sampling_defaults_read(defaults) == defaults


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
def test_what_no_request_could_send_is_not_used(tmp_path, text):
    assert written(tmp_path, text) == {}


def test_a_file_or_a_missing_folder_has_none(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert generation_defaults(str(tmp_path / "model.gguf")) == {}
    assert generation_defaults(str(tmp_path / "missing")) == {}


def test_bytes_that_are_no_text_are_no_values(tmp_path):
    (tmp_path / "generation_config.json").write_bytes(b"\xff\xfe\xff")
    assert generation_defaults(str(tmp_path)) == {}
