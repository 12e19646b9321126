"""ModernBERT (gte-modernbert, modern rerankers): norms before attention and feed-forward, windows, rotations.

Every third layer sees the whole text, the others a window on either side (https://arxiv.org/abs/2412.13663).
"""

from __future__ import annotations

from engine.models.encoder_config import EncoderConfig, EncoderFamily, ScoreHead, encoder_activation
from engine.models.fields import Fields

FULL, WINDOW = "full_attention", "sliding_attention"


def describe(fields: Fields) -> EncoderConfig:
    num_layers = fields.num_layers
    every = fields.size("global_attn_every_n_layers", 3)
    kinds = fields.get("layer_types")
    if kinds is None:
        kinds = [WINDOW if number % every else FULL for number in range(num_layers)]
    if not isinstance(kinds, list) or len(kinds) != num_layers or not all(kind in (FULL, WINDOW) for kind in kinds):
        raise fields.wrong("layer_types", f"{num_layers} of {FULL}, {WINDOW}", kinds)
    thetas = {
        FULL: _theta(fields, FULL, "global_rope_theta", 160_000.0),
        WINDOW: _theta(fields, WINDOW, "local_rope_theta", 10_000.0),
    }
    window = fields.size("local_attention", 128) // 2
    return EncoderConfig(
        architecture=fields.architecture,
        vocab_size=fields.vocab_size,
        hidden_size=fields.size("hidden_size"),
        num_layers=num_layers,
        num_heads=fields.size("num_heads"),
        intermediate_size=fields.size("intermediate_size"),
        max_position=fields.size("max_position"),
        norm_eps=fields.number("any_norm_eps", 1e-5),
        activation=encoder_activation(fields, "hidden_activation"),
        has_position_table=False,
        thetas=tuple(thetas[kind] for kind in kinds),
        windows=tuple(window if kind == WINDOW else 0 for kind in kinds),
        is_gated=True,
        has_input_norms=True,
        attention_bias=fields.flag("attention_bias"),
        mlp_bias=fields.flag("mlp_bias"),
        norm_bias=fields.flag("norm_bias"),
    )


def _theta(fields: Fields, kind: str, old_key: str, default: float) -> float:
    """Read the base of a rotation, of `rope_parameters` or of the key that files had before."""
    given = fields.get("rope_parameters")
    of_kind = given.get(kind) if isinstance(given, dict) else None
    rope = fields.with_values(of_kind if isinstance(of_kind, dict) else {})
    rope.expect("rope_type", "default")
    return rope.number("rope_theta", fields.number(old_key, default))


def head(fields: Fields) -> ScoreHead:
    fields.expect("classifier_pooling", "cls", "mean")
    return ScoreHead(
        "head.dense",
        "classifier",
        encoder_activation(fields, "classifier_activation"),
        norm="head.norm",
        pools_mean=fields.get("classifier_pooling") == "mean",
        has_dense_bias=fields.flag("classifier_bias"),
    )


FAMILY = EncoderFamily(
    "ModernBERT",
    hf_names=("ModernBertModel", "ModernBertForMaskedLM"),
    scorer_names=("ModernBertForSequenceClassification",),
    describe=describe,
    head=head,
    layer="layers",
    tensors={
        "embedding": (("embeddings.tok_embeddings",),),
        "embedding_norm": (("embeddings.norm",),),
        "qkv": (("attn.Wqkv",),),
        "o": (("attn.Wo",),),
        "attention_norm": (("attn_norm",),),
        "up": (("mlp.Wi",),),
        "down": (("mlp.Wo",),),
        "mlp_norm": (("mlp_norm",),),
        "final_norm": (("final_norm",),),
    },
    prefixes=("", "model."),
    ignored=("head.", "decoder."),
)
