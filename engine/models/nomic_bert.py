"""NomicBERT: a BERT whose queries and keys rotate, with a gated feed-forward and no biases (nomic-embed-text v1, v1.5).

Its config.json has the keys of GPT-2, or, written by transformers, those of BERT.
"""

from __future__ import annotations

from engine.models.bert import EMBEDDINGS
from engine.models.encoder_config import EncoderConfig, EncoderFamily, encoder_activation
from engine.models.fields import Fields

OLD_KEYS = {
    "n_embd": "hidden_size",
    "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "activation_function": "hidden_act",
    "rotary_emb_base": "rope_theta",
}


def describe(fields: Fields) -> EncoderConfig:
    """Raises ModelLoadError for switches that no published model has, among them experts (v2)."""
    for name, wanted in {"prenorm": False, "rotary_emb_interleaved": False, "parallel_block": False}.items():
        fields.expect(name, wanted)
    for name in ("num_experts", "moe_every_n_layers", "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "use_rms_norm"):
        fields.expect(name, False, 0)
    fields.expect("rotary_emb_fraction", 1.0, 1)
    values = {OLD_KEYS.get(name, name): value for name, value in fields.values.items()}
    read = fields.with_values(values)
    rope = values.get("rope_parameters")
    rotation = fields.with_values(rope if isinstance(rope, dict) else {})
    rotation.expect("rope_type", "default")
    theta = rotation.number("rope_theta", read.number("rope_theta", 1000.0))
    num_layers, most = read.num_layers, read.size("max_position")
    if read.get("rotary_scaling_factor") not in (None, 1, 1.0):  # of texts longer than those of training (v1)
        most = min(most, read.size("max_trained_positions", 2048))
    return EncoderConfig(
        architecture=fields.architecture,
        vocab_size=read.vocab_size,
        hidden_size=read.size("hidden_size"),
        num_layers=num_layers,
        num_heads=read.size("num_heads"),
        intermediate_size=read.size("intermediate_size"),
        max_position=most,
        norm_eps=read.number("layer_norm_eps", 1e-12),
        activation=encoder_activation(read, default="silu"),
        has_position_table=False,
        num_segments=read.count("type_vocab_size"),
        thetas=(theta,) * num_layers,
        is_gated=True,
        attention_bias=False,
        mlp_bias=False,
    )


FAMILY = EncoderFamily(
    "NomicBERT: nomic-embed-text v1 and v1.5",
    hf_names=("NomicBertModel",),
    describe=describe,
    layer="encoder.layers",
    tensors=EMBEDDINGS
    | {
        "embedding_norm": (("emb_ln",),),
        "qkv": (("attn.Wqkv",),),
        "o": (("attn.out_proj",),),
        "attention_norm": (("norm1",),),
        "up": (("mlp.fc12", "mlp.fc11"),),
        "down": (("mlp.fc2",),),
        "mlp_norm": (("norm2",),),
    },
    prefixes=("", "bert."),
)
