"""Small random models that hear, with real processors, as folders of Hugging Face; transformers is the oracle."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import PreTrainedTokenizerFast

from tests.engine.seeing_folders import TEMPLATE
from tests.engine.speech_folders import tones, wav
from tests.engine.tiny_tokenizer import VOCAB_SIZE, tiny_tokenizer

RATE = 16_000
SPECIAL = ("<pad>", "<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>", "[BEGIN_AUDIO]", "[AUDIO]")
IDS = {text: VOCAB_SIZE + number for number, text in enumerate(SPECIAL)}
TEXT = {
    "vocab_size": VOCAB_SIZE + len(SPECIAL),
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "pad_token_id": IDS["<pad>"],
}
SHORT_S = 2
"""A window of the Qwen2-Audio of tests: published ones have 30 seconds."""


def hearing_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Return the tiny tokenizer with the special tokens."""
    backend = tiny_tokenizer().backend
    backend.add_special_tokens(list(SPECIAL))
    backend.save(str(folder / "tokenizer.json"))
    return PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), eos_token="<|im_end|>", pad_token="<pad>"
    )


def _qwen2_audio(folder: Path):
    config = transformers.Qwen2AudioConfig(
        audio_config=transformers.Qwen2AudioEncoderConfig(
            num_mel_bins=16,
            d_model=16,
            encoder_layers=2,
            encoder_attention_heads=2,
            encoder_ffn_dim=32,
            max_source_positions=50 * SHORT_S,
        ),
        text_config=transformers.Qwen2Config(**TEXT),
        audio_token_index=IDS["<|AUDIO|>"],
    )
    extractor = transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=SHORT_S)
    processor = transformers.Qwen2AudioProcessor(extractor, hearing_tokenizer(folder))
    return transformers.Qwen2AudioForConditionalGeneration(config), processor


class VoxtralProcessor(transformers.VoxtralProcessor):
    """Voxtral's processor without mistral-common: its tokenizer writes prompts by a template of text."""

    def __init__(self, feature_extractor, tokenizer):
        super().__init__(feature_extractor, tokenizer)
        self.audio_token = "[AUDIO]"


class VoxtralTokenizer(PreTrainedTokenizerFast):
    """Stands in for mistral-common: returns token ids, and the sounds, each padded to whole windows."""

    def apply_chat_template(self, conversations, **_options):
        (conversation,) = conversations
        sounds, samples, counts = [], 3000 * 160, []
        for message in conversation:
            for part in message["content"]:
                if part["type"] == "audio":
                    sounds.append(part["audio"])
                    counts.append(-(-len(part["audio"]) // samples))
        text = super().apply_chat_template(conversation, add_generation_prompt=True, tokenize=False)
        first, *others = text.split("[AUDIO]")
        text = first + "".join("[AUDIO]" * 375 * count + other for count, other in zip(counts, others, strict=True))
        ids = self(text, add_special_tokens=False)["input_ids"]
        return {"input_ids": [ids], "attention_mask": [[1] * len(ids)], **({"audio": sounds} if sounds else {})}


def _voxtral(folder: Path):
    config = transformers.VoxtralConfig(
        audio_config={
            "model_type": "voxtral_encoder",
            "num_mel_bins": 16,
            "hidden_size": 16,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
        },
        text_config={"model_type": "llama", **TEXT, "head_dim": 8, "rms_norm_eps": 1e-5, "rope_theta": 10000.0},
        audio_token_id=IDS["[AUDIO]"],
    )
    hearing_tokenizer(folder)
    tokenizer = VoxtralTokenizer(
        tokenizer_file=str(folder / "tokenizer.json"), eos_token="<|im_end|>", pad_token="<pad>"
    )
    processor = VoxtralProcessor(transformers.WhisperFeatureExtractor(feature_size=16), tokenizer)
    return transformers.VoxtralForConditionalGeneration(config), processor


FAMILIES = {"qwen2_audio": _qwen2_audio, "voxtral": _voxtral}
PLACES = {
    "qwen2_audio": "<|audio_bos|><|AUDIO|><|audio_eos|>\n",
    "voxtral": "[BEGIN_AUDIO][AUDIO]",
}


def write_hearing(folder: Path, family: str, spread: float = 0.3):
    """Write a random float32 model of a family with its processor; return both."""
    torch.manual_seed(5)
    model, processor = FAMILIES[family](folder)
    model = model.float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * spread + (parameter.dim() == 1))
    template = TEMPLATE.replace("part.type == 'image'", "'audio' in part").replace("PLACE", PLACES[family])
    processor.tokenizer.chat_template = processor.chat_template = template
    model.save_pretrained(folder)
    processor.feature_extractor.save_pretrained(folder)
    if family == "voxtral":
        PreTrainedTokenizerFast(
            tokenizer_file=str(folder / "tokenizer.json"), eos_token="<|im_end|>", pad_token="<pad>"
        ).save_pretrained(folder)
    else:
        processor.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(template)
    return model, processor


def sound_of(seconds: float, seed: int = 0) -> np.ndarray:
    """Return a sound as models get it: float32 samples."""
    return tones(seconds, seed).astype(np.float32) / 32_768


def encoded(sound: np.ndarray) -> str:
    """Return a WAV file in base64."""
    return base64.b64encode(wav(np.rint(sound * 32_768))).decode()
