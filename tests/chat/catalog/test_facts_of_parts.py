"""Facts of a folder of Ultravox are those of the text model that it names."""

from __future__ import annotations

import json

from chat.catalog.model_facts import model_facts


def test_a_folder_of_ultravox_has_the_context_of_the_text_model_that_it_names(tmp_path, settings):
    settings.LIGHTCONE_MODEL_STORE = tmp_path / "store"
    text = {"model_type": "llama", "max_position_embeddings": 4096, "num_hidden_layers": 3, "hidden_size": 64}
    whole = {"model_type": "ultravox", "text_model_id": "a/text", "audio_config": {"d_model": 64}, "hidden_size": 512}
    for name, config in (("text", text), ("whole", whole)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    facts = model_facts(str(tmp_path / "whole"))
    assert (facts.context, facts.num_layers, facts.width) == (4096, 3, 64)


def test_a_folder_of_ultravox_without_the_text_model_that_it_names_has_its_own_facts(tmp_path, settings):
    settings.LIGHTCONE_MODEL_STORE = tmp_path / "store"
    values = {"model_type": "ultravox", "text_model_id": "a/text", "audio_config": {"d_model": 64}, "dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(values))
    facts = model_facts(str(tmp_path))
    assert (facts.architecture, facts.quantization, facts.context) == ("ultravox", "bfloat16", 0)
