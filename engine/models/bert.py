"""BERT and its kin with a table of positions: BERT (MiniLM, BGE, E5, GTE), RoBERTa and XLM-RoBERTa, MPNet."""

from __future__ import annotations

from dataclasses import replace

from engine.models.encoder_config import (
    EncoderActivation,
    EncoderConfig,
    EncoderFamily,
    ScoreHead,
    encoder_activation,
)
from engine.models.fields import Fields

EMBEDDINGS = {
    "embedding": (("embeddings.word_embeddings",),),
    "positions": (("embeddings.position_embeddings",),),
    "segments": (("embeddings.token_type_embeddings",),),
    "embedding_norm": (("embeddings.LayerNorm",),),
}
BERT_TENSORS = EMBEDDINGS | {
    "qkv": (("attention.self.query", "attention.self.key", "attention.self.value"),),
    "o": (("attention.output.dense",),),
    "attention_norm": (("attention.output.LayerNorm",),),
    "up": (("intermediate.dense",),),
    "down": (("output.dense",),),
    "mlp_norm": (("output.LayerNorm",),),
}
MPNET_TENSORS = BERT_TENSORS | {
    "qkv": (("attention.attn.q", "attention.attn.k", "attention.attn.v"),),
    "o": (("attention.attn.o",),),
    "attention_norm": (("attention.LayerNorm",),),
    "buckets": (("encoder.relative_attention_bias",),),
}


def describe_bert(fields: Fields, first_position: int = 0, num_segments: int = -1) -> EncoderConfig:
    """Describe an encoder of BERT's shape. `first_position`: see EncoderConfig. Raises ModelLoadError."""
    fields.expect("position_embedding_type", "absolute")
    fields.expect("is_decoder", False)
    num_rows = fields.size("max_position")
    return EncoderConfig(
        architecture=fields.architecture,
        vocab_size=fields.vocab_size,
        hidden_size=fields.size("hidden_size"),
        num_layers=fields.num_layers,
        num_heads=fields.size("num_heads"),
        intermediate_size=fields.size("intermediate_size"),
        max_position=num_rows - first_position,
        norm_eps=fields.number("layer_norm_eps", 1e-12),
        activation=encoder_activation(fields),
        first_position=first_position,
        num_segments=fields.size("type_vocab_size", 2) if num_segments < 0 else num_segments,
    )


def describe_roberta(fields: Fields) -> EncoderConfig:
    """Positions are numbered from behind the row of padding."""
    padding = fields.get("pad_token_id")
    first_position = 2 if padding is None else fields.count("pad_token_id") + 1
    return describe_bert(fields, first_position)


def describe_mpnet(fields: Fields) -> EncoderConfig:
    """Biases of attention by distance are added to those of a table of positions."""
    described = describe_bert(fields, 2, num_segments=0)
    return replace(described, num_buckets=fields.size("relative_attention_num_buckets", 32))


def bert_head(fields: Fields) -> ScoreHead:
    return ScoreHead("bert.pooler.dense", "classifier", EncoderActivation.TANH)


def roberta_head(fields: Fields) -> ScoreHead:
    return ScoreHead("classifier.dense", "classifier.out_proj", EncoderActivation.TANH)


BERT = EncoderFamily(
    "BERT: MiniLM, BGE, E5, GTE",
    hf_names=("BertModel", "BertForMaskedLM"),
    scorer_names=("BertForSequenceClassification",),
    describe=describe_bert,
    head=bert_head,
    layer="encoder.layer",
    tensors=BERT_TENSORS,
    prefixes=("", "bert."),
)
ROBERTA = EncoderFamily(
    "RoBERTa and XLM-RoBERTa: BGE-M3, multilingual E5, BGE rerankers",
    hf_names=("RobertaModel", "XLMRobertaModel", "CamembertModel", "RobertaForMaskedLM", "XLMRobertaForMaskedLM"),
    scorer_names=(
        "RobertaForSequenceClassification",
        "XLMRobertaForSequenceClassification",
        "CamembertForSequenceClassification",
    ),
    describe=describe_roberta,
    head=roberta_head,
    layer="encoder.layer",
    tensors=BERT_TENSORS,
    prefixes=("", "roberta."),
)
MPNET = EncoderFamily(
    "MPNet",
    hf_names=("MPNetModel", "MPNetForMaskedLM"),
    scorer_names=("MPNetForSequenceClassification",),
    describe=describe_mpnet,
    head=roberta_head,
    layer="encoder.layer",
    tensors=MPNET_TENSORS,
    prefixes=("", "mpnet."),
)
