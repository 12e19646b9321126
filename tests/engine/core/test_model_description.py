"""What a model's files say: of a GGUF file, of a folder, of what is no model."""

from __future__ import annotations

import json
from pathlib import Path

from chat.catalog.model_choice import model_choice
from engine.api import ModelDescription
from engine.core.model_description import describe, main
from tests.engine.random_model import random_model
from tests.engine.tiny_tokenizer import VOCAB_SIZE, write_tokenizer


def test_the_default_model_is_described_with_its_makers_values():
    described = describe(model_choice(path="", name="").path)
    defaults = {"temperature": 0.2, "top_p": 0.9}
    assert described == ModelDescription("llama", 30, 8192, "Q4_1", True, "hermes", "none", "apache-2.0", defaults)


def test_a_folder_says_its_dtype_and_the_licence_of_its_card(tmp_path, capsys):
    random_model(vocab_size=VOCAB_SIZE, max_position_embeddings=512).bfloat16().save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.6, "top_k": 20}')
    (tmp_path / "README.md").write_text("---\nlanguage: en\nlicense: mit\n---\n# A model\nlicense: none\n")
    assert main(str(tmp_path)) == 0
    described = json.loads(capsys.readouterr().out)
    assert (described["architecture"], described["format"], described["context"]) == (
        "LlamaForCausalLM",
        "bfloat16",
        512,
    )
    assert (described["licence"], described["defaults"]) == ("mit", {"temperature": 0.6, "top_k": 20})
    (tmp_path / "README.md").write_text("# A model\nlicense: gpl\n")
    assert describe(tmp_path).licence == ""


def test_what_is_no_model_is_refused_on_one_line(tmp_path: Path, capsys):
    (tmp_path / "model.gguf").write_bytes(b"GGUX")
    assert main(str(tmp_path / "model.gguf")) == 1
    assert capsys.readouterr().out.count("\n") == 1
