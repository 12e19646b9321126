"""Embedding models through `submit()`: their vectors are those of transformers and of the modules in their folders."""

import json

import pytest
import torch
from torch.nn.functional import normalize

from engine.api import (
    Admitted,
    Completed,
    Embedded,
    EmbedOptions,
    ErrorCode,
    ModelLoadError,
    Outcome,
    PromptOptions,
    RawPrompt,
    Rejected,
    StopRules,
    Task,
    Usage,
)
from engine.core.model_description import describe
from engine.loading.inspection import describe_model
from tests.engine.encoder_folders import FAMILIES, SIZES, states_of, write_dense, write_encoder, write_modules
from tests.engine.random_model import random_model
from tests.engine.tiny_tokenizer import VOCAB_SIZE, tiny_tokenizer, write_tokenizer

TEXTS = ["the sea is deep", "wind", "The shore, the stone! " * 9, "a b c d", "is the sea deep?"]
TOLERANCE = 1e-5
"""Float32, added up in another order."""
WITH_SPECIAL = PromptOptions(add_special_tokens=True)
OLD_MEAN = {"word_embedding_dimension": 32, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
OLD_CLS = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}


def embed(engine, texts, prompt=WITH_SPECIAL, **options):
    """Return the vectors of texts that are submitted together."""
    for number, text in enumerate(texts):
        raw, run_id = RawPrompt(text, param="input"), str(number)
        engine.submit(run_id, task=Task.EMBED, raw=raw, prompt=prompt, embed=EmbedOptions(**options))
    events = engine.events_to_end(*map(str, range(len(texts))))
    return [torch.tensor(_vector(events[str(number)])) for number in range(len(texts))]


def _vector(events):
    admitted, embedded, completed = (event.payload for event in events)
    assert isinstance(admitted, Admitted)
    assert isinstance(embedded, Embedded)
    assert isinstance(completed, Completed)
    assert (completed.outcome, completed.usage) == (Outcome.FINISHED, Usage(admitted.num_prompt_tokens))
    return embedded.vector


@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_are_the_means_of_transformers_together_and_alone(tmp_path, make_real_engine, family):
    model = write_encoder(tmp_path, family)
    expected = [normalize(states_of(model, tmp_path, text).mean(0), dim=0) for text in TEXTS]
    engine = make_real_engine(tmp_path)
    together = embed(engine, TEXTS)
    alone = [embed(engine, [text])[0] for text in TEXTS]
    for vectors in (together, alone):
        torch.testing.assert_close(torch.stack(vectors), torch.stack(expected), atol=TOLERANCE, rtol=0)
    assert describe(tmp_path).kind == "embedding"
    assert "(embedding), 3 layers" in describe_model(tmp_path)


def test_the_keys_of_published_nomic_models_describe_the_same_model(tmp_path, make_real_engine):
    model = write_encoder(tmp_path, "NomicBert")
    old = {"n_embd": 32, "n_inner": 48, "n_layer": 3, "n_head": 4, "n_positions": 130, "layer_norm_epsilon": 1e-12}
    switches = {"activation_function": "swiglu", "rotary_emb_base": 1000, "prenorm": False, "qkv_proj_bias": False}
    others = {"vocab_size": SIZES["vocab_size"], "type_vocab_size": 2, "rotary_emb_fraction": 1.0}
    named = {"architectures": ["NomicBertModel"], **old, **switches, **others}
    stretched = {"rotary_scaling_factor": 2.0, "max_trained_positions": 90}
    (tmp_path / "config.json").write_text(json.dumps(named | stretched))
    assert describe(tmp_path).context == 90, "longer texts would rotate in another way"
    (tmp_path / "config.json").write_text(json.dumps(named))
    expected = [normalize(states_of(model, tmp_path, text).mean(0), dim=0) for text in TEXTS]
    torch.testing.assert_close(
        torch.stack(embed(make_real_engine(tmp_path), TEXTS)), torch.stack(expected), atol=TOLERANCE, rtol=0
    )


@pytest.mark.parametrize(
    ("config", "place"),
    [
        (OLD_CLS, 0),
        ({"pooling_mode": "cls"}, 0),
        ({"pooling_mode_lasttoken": True}, -1),
        ({"pooling_mode": ["mean"]}, None),
    ],
    ids=str,
)
def test_the_pooling_of_the_folder_is_used_and_a_request_may_choose_another(tmp_path, make_real_engine, config, place):
    model = write_encoder(tmp_path, "Bert")
    write_modules(tmp_path, "Pooling", "Normalize", Pooling=config)
    states = [states_of(model, tmp_path, text) for text in TEXTS]
    engine = make_real_engine(tmp_path)
    found = torch.stack(embed(engine, TEXTS))
    expected = torch.stack([normalize(one.mean(0) if place is None else one[place], dim=0) for one in states])
    torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=0)
    last = torch.stack(embed(engine, TEXTS, pooling="last"))
    expected = torch.stack([normalize(one[-1], dim=0) for one in states])
    torch.testing.assert_close(last, expected, atol=TOLERANCE, rtol=0)


def test_dense_layers_follow_the_pooling_and_lengths_stay_where_no_module_normalises(tmp_path, make_real_engine):
    model = write_encoder(tmp_path, "Bert")
    dense = {"in_features": 32, "out_features": 12, "activation_function": "torch.nn.modules.activation.Tanh"}
    write_modules(tmp_path, "Pooling", "Dense", Pooling=OLD_MEAN, Dense=dense)
    layer = write_dense(tmp_path / "2_Dense", 32, 12)
    with torch.inference_mode():
        expected = [torch.tanh(layer(states_of(model, tmp_path, text).mean(0))) for text in TEXTS]
    engine = make_real_engine(tmp_path)
    torch.testing.assert_close(torch.stack(embed(engine, TEXTS)), torch.stack(expected), atol=TOLERANCE, rtol=0)
    normal = [normalize(one[:5], dim=0) for one in expected]
    found = embed(engine, TEXTS, dimensions=5, normalizes=True)
    torch.testing.assert_close(torch.stack(found), torch.stack(normal), atol=TOLERANCE, rtol=0)
    engine.submit("wide", task=Task.EMBED, raw=RawPrompt("sea"), embed=EmbedOptions(dimensions=13))
    (refused,) = (event.payload for event in engine.events_to_end("wide")["wide"])
    assert (refused.param, "from 1 to 12" in refused.message) == ("dimensions", True)


@pytest.mark.parametrize(("length", "context"), [(100, 100), (4096, 130), (10**30, 130)])
def test_without_max_seq_length_the_tokenizers_own_length_counts(tmp_path, length, context):
    write_encoder(tmp_path, "Bert")
    (tmp_path / "sentence_bert_config.json").write_text('{"transformer_task": "feature-extraction"}')
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": length}))
    assert describe(tmp_path).context == context


def test_max_seq_length_bounds_a_text_and_a_cut_one_keeps_its_special_tokens(tmp_path, make_real_engine):
    model = write_encoder(tmp_path, "Bert")
    write_modules(tmp_path, "Pooling", "Normalize", Pooling=OLD_MEAN)
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 12, "do_lower_case": false}')
    assert describe(tmp_path).context == 12
    engine = make_real_engine(tmp_path)
    long = "sea deep wind " * 20
    engine.submit("run", task=Task.EMBED, raw=RawPrompt(long, param="input.3"), prompt=WITH_SPECIAL)
    (refused,) = (event.payload for event in engine.events_to_end("run")["run"])
    assert isinstance(refused, Rejected)
    assert (refused.code, refused.param, refused.limit) == (ErrorCode.CONTEXT_LENGTH_EXCEEDED, "input.3", 12)
    cut = {"truncate_to": 12, "add_special_tokens": True}
    (beginning,) = embed(engine, [long], PromptOptions(**cut, truncation_side="right"))
    (end,) = embed(engine, [long], PromptOptions(**cut, truncation_side="left"))
    for found, kept in ((beginning, "sea deep wind " * 3 + "sea"), (end, "wind " + "sea deep wind " * 3)):
        expected = normalize(states_of(model, tmp_path, kept).mean(0), dim=0)
        torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=0)


def test_in_batch_invariant_mode_a_vector_is_the_same_to_the_bit_in_any_crowd(tmp_path, make_real_engine):
    write_encoder(tmp_path, "Bert")
    engine = make_real_engine(tmp_path, batch_invariant=True)
    together = embed(engine, TEXTS)
    assert all(torch.equal(one, embed(engine, [text])[0]) for one, text in zip(together, TEXTS, strict=True))


def test_bfloat16_weights_give_nearly_the_same_vectors(tmp_path, make_real_engine):
    model = write_encoder(tmp_path, "Bert")
    found = embed(make_real_engine(tmp_path, weights="bf16"), TEXTS)
    for vector, text in zip(found, TEXTS, strict=True):
        expected = normalize(states_of(model, tmp_path, text).mean(0), dim=0)
        assert float(vector @ expected) > 0.999


def test_a_decoder_with_modules_takes_its_last_token_and_may_lack_an_output(tmp_path, make_real_engine):
    write_tokenizer(tmp_path)
    model = random_model("Qwen3", seed=4, spread=0.3, vocab_size=VOCAB_SIZE, head_dim=16).model
    model.save_pretrained(tmp_path)
    write_modules(tmp_path, "Pooling", "Normalize", Pooling={"pooling_mode_lasttoken": True})
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["Qwen3Model"]
    texts = ["hello world", "end", "a longer text that takes more than one block of the cache"]
    engine = make_real_engine(tmp_path, max_num_batched_tokens=16)
    found = embed(engine, texts, PromptOptions())
    for vector, text in zip(found, texts, strict=True):
        with torch.inference_mode():
            states = model(torch.tensor([tiny_tokenizer().encode(text)])).last_hidden_state[0]
        torch.testing.assert_close(vector, normalize(states[-1], dim=0), atol=5e-5, rtol=0)
    assert describe(tmp_path).kind == "embedding"
    (refused,) = engine.answer(text="hi")
    assert refused.param == "model"


@pytest.mark.parametrize("switch", [{"is_causal": False}, {"use_bidirectional_attention": True}], ids=str)
def test_a_decoder_that_sees_in_both_directions_is_refused(tmp_path, switch):
    write_tokenizer(tmp_path)
    random_model("Qwen3", vocab_size=VOCAB_SIZE).model.save_pretrained(tmp_path)
    write_modules(tmp_path, "Pooling", Pooling={"pooling_mode_lasttoken": True})
    _change(tmp_path, **switch)
    with pytest.raises(ModelLoadError) as refused:
        describe(tmp_path)
    assert "Qwen3Model that sees texts in both directions is not served" in refused.value.message


def test_what_generates_is_refused_by_what_the_model_is_for(tmp_path, make_real_engine):
    write_encoder(tmp_path, "Bert")
    engine = make_real_engine(tmp_path)
    for changes in ({}, {"task": Task.SCORE, "raw": RawPrompt("sea", document="deep")}):
        (refused,) = engine.answer(stop=StopRules(max_tokens=2), **changes)
        assert isinstance(refused, Rejected)
        assert (refused.code, refused.param) == (ErrorCode.INVALID_VALUE, "model")
        assert refused.message.endswith("'tiny' is an embedding model, which answers /v1/embeddings")


def _change(folder, **changes):
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 64}, "must have the shape"),
        ({"num_hidden_layers": 4}, "'encoder.layer.3.attention.self.query.weight' is missing"),
        ({"num_hidden_layers": 2}, "tensors that its architecture does not have"),
        ({"num_attention_heads": 5}, "a multiple of num_attention_heads 5"),
        ({"hidden_act": "mish"}, "hidden_act must be one of"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type must be 'absolute'"),
        ({"architectures": ["BertForTokenClassification"]}, "the encoder 'BertForTokenClassification' cannot be"),
        ({"architectures": ["BertForSequenceClassification"]}, "with 2 labels is a classifier"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantised encoders are not served"),
    ],
    ids=str,
)
def test_a_folder_that_is_no_such_encoder_is_refused_by_name(tmp_path, changes, message):
    write_encoder(tmp_path, "Bert")
    _change(tmp_path, **changes)
    with pytest.raises(ModelLoadError) as refused:
        describe_model(tmp_path)
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("kinds", "configs", "message"),
    [
        (("Pooling", "WeightedLayerPooling"), {"Pooling": OLD_MEAN}, "'WeightedLayerPooling' at place 2"),
        (("Pooling",), {"Pooling": {"pooling_mode": "max"}}, "the pooling must be one of cls, mean, lasttoken"),
        (("Pooling",), {"Pooling": {**OLD_MEAN, "pooling_mode_cls_token": True}}, "the pooling must be one of"),
        (("Pooling", "Dense"), {"Pooling": OLD_MEAN, "Dense": {"in_features": 32}}, "must be positive integers"),
    ],
    ids=str,
)
def test_modules_that_are_not_served_are_refused_by_name(tmp_path, kinds, configs, message):
    write_encoder(tmp_path, "Bert")
    write_modules(tmp_path, *kinds, **configs)
    with pytest.raises(ModelLoadError) as refused:
        describe_model(tmp_path)
    assert message in refused.value.message
