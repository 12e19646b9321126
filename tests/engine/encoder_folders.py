"""Folders of small random encoders, as transformers and sentence-transformers write them, and their references."""

from __future__ import annotations

import json
import string
from pathlib import Path

import tokenizers
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import models, normalizers, pre_tokenizers, processors

WORDS = ("the", "sea", "is", "deep", "shore", "stone", "wind")
VOCABULARY = [
    *("[UNK]", "[PAD]", "[CLS]", "[SEP]"),
    *WORDS,
    *string.ascii_lowercase,
    *(f"##{letter}" for letter in string.ascii_lowercase),
    *string.digits,
    *".,?!",
]
SIZES = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 130,
    "pad_token_id": 1,
}
BERT_LIKE = {"type_vocab_size": 2}
SPECIAL = {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
FAMILIES = {
    "Bert": BERT_LIKE,
    "Roberta": {"type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "XLMRoberta": {"type_vocab_size": 1, "layer_norm_eps": 1e-5, "hidden_act": "gelu_new"},
    "MPNet": {},
    "NomicBert": BERT_LIKE,
    "ModernBert": {**SPECIAL, "local_attention": 12, "norm_bias": True},
}
"""The changes of SIZES in each family."""
ONE_TEXT = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
WITHOUT_SEGMENTS = ("[CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] $B [SEP]")
SPREAD = 0.7


def write_encoder(folder: Path, family: str, kind: str = "Model", **changes):
    """Write a random encoder with its tokenizer; return transformers' model. `changes`: of its configuration."""
    torch.manual_seed(len(family))
    config = getattr(transformers, f"{family}Config")(**SIZES | FAMILIES[family] | changes)
    model = getattr(transformers, f"{family}{kind}")(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * SPREAD + (parameter.dim() == 1) * 0.5)
    model.save_pretrained(folder)
    has_segments = FAMILIES[family].get("type_vocab_size") == 2
    word_pieces(ONE_TEXT if has_segments else WITHOUT_SEGMENTS).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"cls_token": "[CLS]", "sep_token": "[SEP]"}')
    return model


def word_pieces(templates: tuple[str, str]) -> tokenizers.Tokenizer:
    """Return a tokenizer of words and letters. `templates`: of one text and of a pair."""
    ids = {token: token_id for token_id, token in enumerate(VOCABULARY)}
    made = tokenizers.Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [(token, ids[token]) for token in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(single=templates[0], pair=templates[1], special_tokens=special)
    made.add_special_tokens(["[UNK]", "[PAD]", "[CLS]", "[SEP]"])
    return made


def write_modules(folder: Path, *kinds: str, **configs: dict) -> None:
    """Write modules.json with a Transformer and these `kinds`, each with its configuration in a folder of its own."""
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for number, kind in enumerate(kinds, 1):
        place = f"{number}_{kind}"
        modules.append({"idx": number, "name": "x", "path": place, "type": f"sentence_transformers.models.{kind}"})
        (folder / place).mkdir()
        (folder / place / "config.json").write_text(json.dumps(configs.get(kind, {})))
    (folder / "modules.json").write_text(json.dumps(modules))


def write_dense(folder: Path, size_in: int, size_out: int) -> torch.nn.Linear:
    """Write the weights of a Dense module and return the layer."""
    layer = torch.nn.Linear(size_in, size_out)
    tensors = {"linear.weight": layer.weight.detach(), "linear.bias": layer.bias.detach()}
    save_file(tensors, folder / "model.safetensors")
    return layer


def encoded(folder: Path, *texts: str) -> dict[str, torch.Tensor]:
    """Return the input of transformers' model for a text or a pair."""
    made = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(*texts)
    inputs = {"input_ids": torch.tensor([made.ids])}
    return inputs | ({"token_type_ids": torch.tensor([made.type_ids])} if 1 in made.type_ids else {})


@torch.inference_mode()
def states_of(model, folder: Path, text: str) -> torch.Tensor:
    """Return the last states (T, E) of a text."""
    return model(**encoded(folder, text)).last_hidden_state[0]
