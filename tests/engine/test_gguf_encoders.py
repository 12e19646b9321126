"""GGUF files of encoders, and of decoders that embed, give the vectors and scores of transformers."""

import gguf
import pytest
import torch
from torch.nn.functional import normalize

from engine.api import ModelLoadError
from engine.core.model_description import describe
from tests.engine.encoder_folders import encoded, states_of, write_encoder
from tests.engine.gguf_encoders import write_gguf_encoder
from tests.engine.loading.gguf_models import write_model
from tests.engine.random_model import random_model
from tests.engine.test_embedding_models import TEXTS, embed
from tests.engine.test_rerankers import DOCUMENTS, QUERY, scores
from tests.engine.tiny_tokenizer import IM_END, MERGES, VOCAB_SIZE, tiny_metadata, tiny_tokenizer

TOLERANCE = 2e-5
POOLINGS = {gguf.PoolingType.MEAN: None, gguf.PoolingType.CLS: 0, gguf.PoolingType.LAST: -1}

ENCODERS = [
    ("Bert", gguf.PoolingType.CLS),
    ("Bert", gguf.PoolingType.MEAN),
    ("XLMRoberta", gguf.PoolingType.CLS),
    ("NomicBert", gguf.PoolingType.MEAN),
]


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize(("family", "pooling"), ENCODERS)
def test_vectors_are_those_of_transformers(tmp_path, make_real_engine, family, pooling, halves):
    model = write_encoder(tmp_path, family, **({} if family == "NomicBert" else {"hidden_act": "gelu"}))
    path = write_gguf_encoder(tmp_path / "model.gguf", model, pooling, halves)
    place = POOLINGS[pooling]
    states = [states_of(model, tmp_path, text) for text in TEXTS]
    expected = [normalize(one.mean(0) if place is None else one[place], dim=0) for one in states]
    found = embed(make_real_engine(path), TEXTS)
    torch.testing.assert_close(torch.stack(found), torch.stack(expected), atol=TOLERANCE, rtol=0)
    described = describe(path)
    context = 128 if family == "XLMRoberta" else 130
    assert (described.kind, described.num_layers, described.context) == ("embedding", 3, context)


def test_a_cross_encoder_scores_pairs_as_transformers(tmp_path, make_real_engine):
    model = write_encoder(tmp_path, "Bert", "ForSequenceClassification", num_labels=1)
    path = write_gguf_encoder(tmp_path / "model.gguf", model, gguf.PoolingType.RANK)
    with torch.inference_mode():
        logits = [model(**encoded(tmp_path, QUERY, document)).logits.item() for document in DOCUMENTS]
    assert scores(make_real_engine(path), DOCUMENTS) == pytest.approx(
        torch.tensor(logits).sigmoid().tolist(), abs=TOLERANCE
    )
    assert describe(path).kind == "reranker"


def test_a_decoder_that_names_a_pooling_is_an_embedding_model(tmp_path, make_real_engine):
    """As converters write Qwen3-Embedding: the state of the end token, which every text gets."""
    model = random_model("Qwen3", seed=6, spread=0.3, vocab_size=VOCAB_SIZE, head_dim=16)
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "qwen3")
    writer.add_pooling_type(gguf.PoolingType.LAST)
    metadata = tiny_metadata()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(metadata["tokenizer.ggml.tokens"])
    writer.add_token_types(metadata["tokenizer.ggml.token_type"])
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(IM_END)
    writer.add_add_eos_token(True)
    write_model(writer, model)
    texts = ["hello world", "end", "a longer text that takes more than one block of the cache"]
    found = embed(make_real_engine(tmp_path / "model.gguf", max_num_batched_tokens=16), texts)
    for vector, text in zip(found, texts, strict=True):
        with torch.inference_mode():
            ids = torch.tensor([[*tiny_tokenizer().encode(text), IM_END]])
            state = model.model(ids).last_hidden_state[0, -1]
        torch.testing.assert_close(vector, normalize(state, dim=0), atol=5e-5, rtol=0)
    assert describe(tmp_path / "model.gguf").kind == "embedding"


def test_an_encoder_that_masks_what_comes_later_is_refused(tmp_path):
    model = write_encoder(tmp_path, "Bert")
    path = write_gguf_encoder(tmp_path / "model.gguf", model, gguf.PoolingType.MEAN)
    content, name = bytearray(path.read_bytes()), b"bert.attention.causal"
    flag = content.index(name) + len(name) + 4
    content[flag] = 1
    path.write_bytes(content)
    with pytest.raises(ModelLoadError) as refused:
        describe(path)
    assert "attention.causal must be False" in refused.value.message
