"""GGUF files of encoders through `submit()`: vectors and scores are those of transformers."""

import gguf
import pytest
import torch
from torch.nn.functional import normalize

from engine.api import ModelLoadError
from engine.core.model_description import describe
from tests.engine.encoder_folders import encoded, states_of, write_encoder
from tests.engine.gguf_encoders import write_gguf_encoder
from tests.engine.test_embedding_models import TEXTS, embed
from tests.engine.test_rerankers import DOCUMENTS, QUERY, scores

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
