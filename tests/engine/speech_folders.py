"""Folders of small random models that write down speech, as transformers writes them, and sounds for them."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers

from tests.engine.tiny_tokenizer import tiny_tokenizer

RATE = 16_000
SPECIAL = (
    *("<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>"),
    *("<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"),
)
MARKS = tuple(f"<|{place * 0.02:.2f}|>" for place in range(1501))
NEVER = {"logprob_threshold": -1e9, "compression_ratio_threshold": 1e9, "no_speech_threshold": 2.0}
"""Thresholds that no window fails: transformers has none unless it is asked to."""


def write_whisper(folder: Path, *, seed: int = 1, has_heads: bool = True, **thresholds):
    """Write a random Whisper with marks of time; return transformers' model. `thresholds`: as in NEVER."""
    backend = tiny_tokenizer().backend
    backend.add_special_tokens(list(SPECIAL))
    backend.add_special_tokens(list(MARKS))
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>"}')
    ids = {text: backend.token_to_id(text) for text in SPECIAL}
    end = ids["<|endoftext|>"]
    torch.manual_seed(seed)
    config = transformers.WhisperConfig(
        vocab_size=backend.get_vocab_size(),
        num_mel_bins=80,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_target_positions=64,
        decoder_start_token_id=ids["<|startoftranscript|>"],
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
    )
    model = transformers.WhisperForConditionalGeneration(config).float().eval()
    _scatter(model)
    model.generation_config = transformers.GenerationConfig(
        decoder_start_token_id=ids["<|startoftranscript|>"],
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
        no_timestamps_token_id=ids["<|notimestamps|>"],
        prev_sot_token_id=ids["<|startofprev|>"],
        lang_to_id={text: ids[text] for text in ("<|en|>", "<|de|>")},
        task_to_id={name: ids[f"<|{name}|>"] for name in ("translate", "transcribe")},
        is_multilingual=True,
        max_initial_timestamp_index=50,
        suppress_tokens=[3, 4, *(ids[text] for text in SPECIAL[1:-2])],
        begin_suppress_tokens=[5, end],
        return_timestamps=False,
        max_length=64,
        **({"alignment_heads": [[0, 1], [1, 0]]} if has_heads else {}),
        **NEVER | thresholds,
    )
    model.save_pretrained(folder)
    for name in NEVER:
        setattr(model.generation_config, name, None)
    transformers.WhisperFeatureExtractor().save_pretrained(folder)
    return model


def write_moonshine(folder: Path, *, seed: int = 2):
    """Write a random Moonshine; return transformers' model."""
    backend: tokenizers.Tokenizer = tiny_tokenizer().backend
    backend.add_special_tokens(["<s>", "</s>"])
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>", "bos_token": "<s>"}')
    start, end = (backend.token_to_id(text) for text in ("<s>", "</s>"))
    torch.manual_seed(seed)
    config = transformers.MoonshineConfig(
        vocab_size=backend.get_vocab_size(),
        hidden_size=32,
        intermediate_size=64,
        encoder_num_hidden_layers=2,
        decoder_num_hidden_layers=2,
        encoder_num_attention_heads=2,
        decoder_num_attention_heads=2,
        max_position_embeddings=194,
        bos_token_id=start,
        decoder_start_token_id=start,
        eos_token_id=end,
    )
    model = transformers.MoonshineForConditionalGeneration(config).float().eval()
    _scatter(model)
    model.generation_config = transformers.GenerationConfig(
        decoder_start_token_id=start, bos_token_id=start, eos_token_id=end, pad_token_id=end, max_length=194
    )
    model.save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor(do_normalize=False, return_attention_mask=True).save_pretrained(folder)
    return model


def _scatter(model, spread: float = 0.3) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn_like(parameter) * spread)


def tones(seconds: float, seed: int = 0) -> np.ndarray:
    """Return a sound of changing tones and pauses, as 16-bit samples."""
    source = np.random.default_rng(seed)
    count = round(seconds * RATE)
    pieces = []
    while sum(map(len, pieces)) < count:
        times = np.arange(source.integers(RATE // 8, RATE)) / RATE
        tone = np.sin(2 * np.pi * source.uniform(100, 2000) * times) * source.uniform(0, 0.8)
        pieces.append((tone + source.normal(0, 0.01, len(times))).clip(-1, 1) * 32_000)
    return np.concatenate(pieces)[:count].astype(np.int16)


def wav(samples: np.ndarray, rate: int = RATE) -> bytes:
    """Return a WAV file of 16-bit samples."""
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())
    return made.getvalue()
