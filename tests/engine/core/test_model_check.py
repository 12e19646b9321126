"""The check of a model says how each part is computed, and how fast; a model that cannot be served is refused."""

import json

import pytest

from engine.config import EngineConfig
from engine.core.link import pack_config
from engine.core.model_check import main
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


def test_a_model_that_cannot_be_served_is_named_with_the_reason(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Mystery"]}))
    assert main(pack_config(EngineConfig(tmp_path, "small")).decode()) == 1
    assert "Mystery" in capsys.readouterr().out
