"""The check of a model says how each part is computed, and how fast; a model that cannot be served is refused."""

import json

import pytest

from engine.config import EngineConfig
from engine.core.link import pack_config
from engine.core.model_check import main
from tests.engine.encoder_folders import write_encoder
from tests.engine.models.test_decoder import VARIANTS, small_model
from tests.engine.models.test_transformers_backend import FOREIGN
from tests.engine.tiny_tokenizer import write_tokenizer


@pytest.mark.parametrize(
    ("variant", "backend", "num_matrices"),
    [("llama", "native", 13), ("gemma2", "native", 13), ("cohere", "transformers", 22)],
)
def test_every_fact_of_a_model_is_printed(tmp_path, capsys, variant, backend, num_matrices):
    small_model(*(VARIANTS | FOREIGN)[variant]).save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    config = EngineConfig(tmp_path, "small", num_threads=1, max_num_seqs=4, core_in_process=True)
    assert main(pack_config(config).decode()) == 0
    facts = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert list(facts) == [
        *("model", "ready after", "context", "backend", "weights", "attention", "steps"),
        *("1 at once", "4 at once", "prompt"),
    ]
    assert facts["context"] == "256 of 256 tokens"
    assert sum(int(part.split()[0]) for part in facts["weights"].split(", ")) == num_matrices, "forms are measured"
    assert facts["backend"] == backend
    assert (facts["steps"] == "layer by layer") == (backend == "transformers")
    assert "our kernel" in facts["attention"]
    assert facts["1 at once"].split()[1] == "tokens/s,"


def test_an_encoder_is_timed_in_texts(tmp_path, capsys):
    write_encoder(tmp_path, "Bert")
    config = EngineConfig(tmp_path, "small", num_threads=1, max_num_seqs=4, core_in_process=True)
    assert main(pack_config(config).decode()) == 0
    facts = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert list(facts) == ["model", "ready after", "context", "backend", "weights", "attention", "texts"]
    assert facts["model"].startswith("BertModel (embedding), 3 layers, context 130")
    assert (facts["weights"], facts["texts"].endswith(" a second, of 128 tokens")) == ("float32", True)


@pytest.mark.parametrize(
    ("limits", "at_once"),
    [
        ({"max_model_len": 64}, ["1 at once", "8 at once"]),
        ({"max_model_len": 32, "kv_cache_bytes": 50_000}, ["1 at once", "2 at once"]),
        ({"max_model_len": 32, "kv_cache_bytes": 30_000}, ["1 at once"]),
    ],
)
def test_short_contexts_and_small_caches_are_timed_as_they_are(tmp_path, capsys, limits, at_once):
    """A context below 128 tokens ended in a traceback; sequences that had no room were counted in the speed."""
    small_model(*VARIANTS["llama"]).save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    config = EngineConfig(tmp_path, "small", num_threads=1, core_in_process=True, **limits)
    assert main(pack_config(config).decode()) == 0
    names = [line.split(": ")[0] for line in capsys.readouterr().out.splitlines()]
    assert [name for name in names if name.endswith("at once")] == at_once


def test_a_model_that_cannot_be_served_is_named_with_the_reason(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Mystery"]}))
    assert main(pack_config(EngineConfig(tmp_path, "small")).decode()) == 1
    assert "Mystery" in capsys.readouterr().out
