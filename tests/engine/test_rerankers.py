"""Rerankers through `submit()`: their scores are those of transformers' classifiers, and of a causal model's yes."""

import json

import pytest
import torch

from engine.api import Completed, ErrorCode, ModelLoadError, RawPrompt, Rejected, Scored, Task
from engine.core.model_description import describe
from engine.engine import Resume
from engine.inputs.pairs import AFTER, BEFORE
from engine.tokenizers.tokenizer import Tokenizer
from tests.engine.encoder_folders import encoded, write_encoder, write_modules
from tests.engine.random_model import random_model
from tests.engine.real_engine import write_model
from tests.engine.tiny_tokenizer import ALPHABET, CHATML, CONTROL, MERGES, NORMAL, tiny_tokenizer

QUERY = "is the sea deep?"
DOCUMENTS = ["the sea is deep", "stone", "The wind on the shore. " * 5, ""]
TOLERANCE = 3e-5
"""Float32, added up in another order; scores are up to ten."""
SCORERS = {
    "Bert": {},
    "Roberta": {},
    "XLMRoberta": {},
    "MPNet": {},
    "ModernBert": {"classifier_pooling": "mean", "classifier_bias": True},
}


def scores(engine, documents, query=QUERY, **raw):
    """Return the scores of documents that are submitted together."""
    for number, document in enumerate(documents):
        prompt = RawPrompt(query, document=document, param=f"documents.{number}", **raw)
        engine.submit(str(number), task=Task.SCORE, raw=prompt)
    events = engine.events_to_end(*map(str, range(len(documents))))
    return [_score(events[str(number)]) for number in range(len(documents))]


def _score(events):
    admitted, scored, completed = (event.payload for event in events)
    assert isinstance(scored, Scored)
    assert isinstance(completed, Completed)
    assert completed.usage.prompt_tokens == admitted.num_prompt_tokens > 0
    return scored.score


@torch.inference_mode()
def logits_of(model, folder, documents):
    return [model(**encoded(folder, QUERY, document)).logits.item() for document in documents]


IDENTITY = "torch.nn.modules.linear.Identity"
RAW = [
    {"sbert_ce_default_activation_function": IDENTITY},
    {"sentence_transformers": {"activation_fn": IDENTITY, "version": "5.0"}},
]


def change_config(folder, **changes):
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | changes))


@pytest.mark.parametrize("family", SCORERS)
def test_raw_scores_are_those_of_a_classifier_together_and_alone(tmp_path, make_real_engine, family):
    model = write_encoder(tmp_path, family, "ForSequenceClassification", num_labels=1, **SCORERS[family])
    change_config(tmp_path, **RAW[family == "Bert"])
    expected = logits_of(model, tmp_path, DOCUMENTS)
    assert max(expected) - min(expected) > 0.1
    engine = make_real_engine(tmp_path)
    assert scores(engine, DOCUMENTS) == pytest.approx(expected, abs=TOLERANCE)
    assert [scores(engine, [one])[0] for one in DOCUMENTS] == pytest.approx(expected, abs=TOLERANCE)
    assert describe(tmp_path).kind == "reranker"


def test_scores_are_sigmoids_unless_the_folder_asks_for_raw_ones(tmp_path, make_real_engine):
    model = write_encoder(tmp_path, "Bert", "ForSequenceClassification", num_labels=1)
    expected = torch.tensor(logits_of(model, tmp_path, DOCUMENTS)).sigmoid().tolist()
    assert scores(make_real_engine(tmp_path), DOCUMENTS) == pytest.approx(expected, abs=TOLERANCE)


def test_only_the_beginning_of_a_document_counts_if_asked_and_a_pair_that_is_too_long_is_refused(
    tmp_path, make_real_engine
):
    model = write_encoder(tmp_path, "Bert", "ForSequenceClassification", num_labels=1)
    engine = make_real_engine(tmp_path, max_model_len=40)
    long = "the sea is deep. " * 200
    (found,) = scores(engine, [long], max_document_tokens=6)
    assert found == pytest.approx(torch.tensor(logits_of(model, tmp_path, ["the sea is deep. the"])).sigmoid().item())
    for document in (long, "sea " * 40):
        engine.submit("run", task=Task.SCORE, raw=RawPrompt(QUERY, document=document, param="documents.7"))
        (refused,) = (event.payload for event in engine.events_to_end("run")["run"])
        assert isinstance(refused, Rejected)
        assert (refused.code, refused.param, refused.limit) == (ErrorCode.CONTEXT_LENGTH_EXCEEDED, "documents.7", 40)
        assert "max_tokens_per_doc" in refused.message


def test_half_characters_are_refused_under_their_fields(tmp_path, make_real_engine):
    write_encoder(tmp_path, "Bert", "ForSequenceClassification", num_labels=1)
    engine = make_real_engine(tmp_path)
    for raw, param in ((RawPrompt("\ud800", document="a"), "query"), (RawPrompt("a", document="\ud800"), "prompt")):
        (refused,) = engine.answer(task=Task.SCORE, raw=raw)
        assert (refused.code, refused.param) == (ErrorCode.INVALID_VALUE, param)


def test_a_score_that_an_earlier_attempt_has_logged_is_not_computed_again(tmp_path, make_real_engine):
    write_encoder(tmp_path, "Bert", "ForSequenceClassification", num_labels=1)
    engine = make_real_engine(tmp_path)
    raw = RawPrompt(QUERY, document="stone")
    admitted, scored, _ = engine.events(task=Task.SCORE, raw=raw)
    (completed,) = engine.answer(task=Task.SCORE, raw=raw, resume=Resume((admitted, scored)))
    assert isinstance(completed, Completed)


# A causal reranker.


def write_causal(folder):
    """Write a small random Qwen3 whose tokenizer has words for yes and no; return model and tokenizer."""
    merges = [*MERGES, "y e", "ye s", "n o"]
    tokens = [*ALPHABET, *(merge.replace(" ", "") for merge in merges), "<|im_start|>", "<|im_end|>"]
    end = len(tokens) - 1
    tokenizer = tiny_tokenizer(
        **{
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [NORMAL] * (len(tokens) - 2) + [CONTROL, CONTROL],
            "tokenizer.ggml.merges": merges,
            "tokenizer.ggml.bos_token_id": end - 1,
            "tokenizer.ggml.eos_token_id": end,
        }
    )
    tokenizer.backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    (folder / "chat_template.jinja").write_text(CHATML)
    sizes = {"vocab_size": len(tokens), "head_dim": 16, "max_position_embeddings": 1024}
    model = random_model("Qwen3", seed=5, spread=0.2, **sizes)
    model.save_pretrained(folder)
    return model


CARD = "---\nlicense: apache-2.0\npipeline_tag: text-ranking\n---\n# A model"


@pytest.mark.parametrize("sign", ["card", "name", "module"])
def test_a_causal_reranker_scores_by_its_published_prompt(tmp_path, make_real_engine, sign):
    folder = tmp_path / ("Qwen3-Reranker-tiny" if sign == "name" else "model")
    folder.mkdir()
    model = write_causal(folder)
    tokenizer = Tokenizer.from_path(folder)
    no, yes = (tokenizer.backend.token_to_id(word) for word in ("no", "yes"))
    if sign == "card":
        (folder / "README.md").write_text(CARD)
    if sign == "module":
        no, yes = 40, 41
        write_modules(folder, "LogitScore", LogitScore={"true_token_id": yes, "false_token_id": no})
    documents = ["the sea", "end <|im_end|> of", "stone"]
    expected = []
    for document in documents:
        asked = (
            "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
            f"<Query>: {QUERY}\n<Document>: {document}"
        )
        ids = [*tokenizer.encode(BEFORE), *tokenizer.encode_ordinary(asked), *tokenizer.encode(AFTER)]
        with torch.inference_mode():
            logits = model(torch.tensor([ids])).logits[0, -1, [no, yes]]
        expected.append(logits.softmax(0)[1].item())
    assert max(expected) - min(expected) > 0.001
    engine = make_real_engine(folder, max_num_batched_tokens=64)
    assert scores(engine, documents) == pytest.approx(expected, abs=1e-4)
    assert describe(folder).kind == "reranker"
    for changes in ({}, {"task": Task.EMBED, "raw": RawPrompt("sea")}):
        (refused,) = engine.answer(**changes)
        assert "is a reranker, which answers /v1/rerank" in refused.message


def test_the_card_of_a_chat_model_makes_no_reranker_of_it(tmp_path):
    write_causal(tmp_path)
    (tmp_path / "README.md").write_text("# A model\n\npipeline_tag: text-ranking\n")
    assert describe(tmp_path).kind == "chat"


def test_a_chat_model_does_not_rank(tmp_path, make_real_engine):
    write_model(tmp_path)
    (refused,) = make_real_engine(tmp_path).answer(task=Task.SCORE, raw=RawPrompt("a", document="b"))
    assert (refused.code, refused.param) == (ErrorCode.INVALID_VALUE, "model")
    assert (
        refused.message == "model must name a reranker here: 'tiny' is a chat model, which answers /v1/chat/completions"
    )


def test_a_causal_reranker_whose_prompt_is_not_known_is_refused(tmp_path):
    write_model(tmp_path)
    write_modules(tmp_path, "LogitScore", LogitScore={"true_token_id": 1, "false_token_id": 2})
    with pytest.raises(ModelLoadError) as refused:
        describe(tmp_path)
    assert "a reranker of the architecture LlamaForCausalLM is not served" in refused.value.message
