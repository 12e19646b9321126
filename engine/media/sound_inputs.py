"""The inputs of a model's encoder of sound, by the feature extractor of its folder, and how many vectors they become.

Child processes run this module (engine.inputs.message_sounds), so that workers need not import torch and transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from numpy.typing import NDArray
from torch.nn import functional
from transformers import AutoConfig, AutoFeatureExtractor, AutoProcessor, WhisperFeatureExtractor
from transformers.utils import logging as transformers_logging

from engine.api.errors import ErrorCode, ModelLoadError, RequestError
from engine.models.transformers_backend.media_config import FEATURES, FRAMES_MASK, LENGTHS, STEP, sound_config
from engine.tokenizers.folder_files import read_object
from engine.ultravox_folder import is_ultravox

OPEN, PREPARE = "open", "prepare"
AUDIO_TOKEN = "<|audio|>"
"""Of Ultravox, which stands for sounds."""
UNUSED = ("reserved", "unused", "<special_")
"""Words in the names of tokens that nothing uses."""

transformers_logging.set_verbosity_error()
_opened: dict[str, OpenedSounds] = {}
"""What this process has opened, by its folder."""


@dataclass(frozen=True, slots=True)
class OpenedSounds:
    """A feature extractor. `prepare` returns how many vectors a sound gets, and the inputs of the encoder."""

    token: str
    """Of a vector, and what a template writes once for a sound."""
    token_id: int
    rate: int
    """Samples a second."""
    prepare: Callable[[NDArray[np.float32]], tuple[int, dict[str, torch.Tensor]]]
    max_seconds: float = 0.0
    """The longest sound; 0: any."""
    is_text: bool = False
    """The template knows of no sounds: the token stands in the text of a message."""


def answer(task: str, path: str, samples: bytes = b"", digest: str = "") -> dict[str, Any]:
    """Do one task of the process: open the feature extractor of a folder, or prepare a sound. Raises RequestError.

    OPEN returns the fields of `OpenedSounds` that are plain. PREPARE takes float32 `samples` of one channel at its
    rate and their `digest`. It returns the `text` that takes the place of the placeholder, how many vectors there are,
    the encoder's `tensors` (name, dtype, shape, bytes), and a `key` that stands for it all.
    """
    if path not in _opened:
        _opened[path] = open_sounds(Path(path))
    opened = _opened[path]
    if task == OPEN:
        names = ("token", "token_id", "rate", "max_seconds", "is_text")
        return {name: getattr(opened, name) for name in names}
    num_vectors, made = opened.prepare(np.frombuffer(samples, np.float32).copy())
    if num_vectors < 1:
        raise RequestError(ErrorCode.INVALID_VALUE, "the sound is too short for the model; send a longer one")
    tensors = [
        (name, str(value.dtype).removeprefix("torch."), list(value.shape), value.contiguous().numpy().tobytes())
        for name, value in made.items()
    ]
    key = sha256(f"{digest} {num_vectors} {opened.token}".encode()).hexdigest()
    return {"text": opened.token * num_vectors, "num_vectors": num_vectors, "tensors": tensors, "key": key}


def open_sounds(path: Path) -> OpenedSounds:
    """Open what a folder says of sounds. Voxtral's own processor needs mistral-common, which reads its tokenizer."""
    values = read_object(path / "config.json")
    if is_ultravox(values):
        return _in_frames(path)
    config = AutoConfig.from_pretrained(path)
    if config.model_type == "voxtral":
        return _in_windows(path, config)
    return _within_one_window(AutoProcessor.from_pretrained(path))


def _within_one_window(processor: Any) -> OpenedSounds:
    """Use the processor of Qwen2-Audio, whose sounds lie within one window of the encoder."""
    extractor, token, token_id = processor.feature_extractor, processor.audio_token, int(processor.audio_token_id)

    def prepare(samples: NDArray[np.float32]) -> tuple[int, dict[str, torch.Tensor]]:
        made = processor(
            text=[token],
            audio=[samples],
            sampling_rate=extractor.sampling_rate,
            add_special_tokens=False,
            return_tensors="pt",
        )
        num_vectors = int((made["input_ids"] == token_id).sum())
        return num_vectors, {name: made[name] for name in (FEATURES, FRAMES_MASK)}

    return OpenedSounds(token, token_id, extractor.sampling_rate, prepare, float(extractor.chunk_length))


def _in_windows(path: Path, config: Any) -> OpenedSounds:
    """Use the feature extractor of Voxtral: silence fills a sound's last window, and all have as many vectors."""
    extractor, sounds = AutoFeatureExtractor.from_pretrained(path), config.audio_config
    token_id = int(config.audio_token_id)
    token = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json")).id_to_token(token_id) or ""
    num_frames = sounds.max_source_positions * STEP
    num_vectors = sounds.max_source_positions * sounds.hidden_size // sounds.intermediate_size

    def prepare(samples: NDArray[np.float32]) -> tuple[int, dict[str, torch.Tensor]]:
        made = extractor(
            samples,
            sampling_rate=extractor.sampling_rate,
            padding=True,
            truncation=False,
            pad_to_multiple_of=num_frames * extractor.hop_length,
            return_tensors="pt",
        )
        windows = made[FEATURES].reshape(extractor.feature_size, -1, num_frames).transpose(0, 1)
        return len(windows) * num_vectors, {FEATURES: windows}

    return OpenedSounds(token, token_id, extractor.sampling_rate, prepare)


def _in_frames(path: Path) -> OpenedSounds:
    """Use Whisper's feature extractor for Ultravox: sounds have as many vectors as they are long, window by window.

    A folder may lack its settings: those of Whisper are all alike but for the bands.
    """
    config = sound_config(path)
    extractor = WhisperFeatureExtractor(feature_size=config.tower.num_mel_bins)
    most_frames, per_vector = config.tower.max_source_positions * STEP, STEP * config.projector["stack_factor"]
    token, token_id = _stand_in(path / "tokenizer.json", config.text.vocab_size)

    def prepare(samples: NDArray[np.float32]) -> tuple[int, dict[str, torch.Tensor]]:
        made = extractor(
            samples,
            sampling_rate=extractor.sampling_rate,
            padding="longest",
            pad_to_multiple_of=extractor.hop_length,
            truncation=False,
            return_tensors="pt",
        )
        windows = made[FEATURES][0].split(most_frames, dim=1)
        lengths = [window.shape[1] for window in windows]
        filled = [functional.pad(window, (0, lengths[0] - window.shape[1])) for window in windows]
        num_vectors = sum(-(-length // per_vector) for length in lengths)
        return num_vectors, {FEATURES: torch.stack(filled), LENGTHS: torch.tensor(lengths)}

    return OpenedSounds(token, token_id, extractor.sampling_rate, prepare, is_text=True)


def _stand_in(file: Path, num_rows: int) -> tuple[str, int]:
    """Return the token whose places vectors take: the model's own, or else one that nothing has a use for.

    Tokenizers of older folders lack it, and in newer ones it may have no row in the text model's embedding.
    `num_rows`: of that embedding. Raises ModelLoadError if there is neither.
    """
    added = tokenizers.Tokenizer.from_file(str(file)).get_added_tokens_decoder()
    known = {one.content: number for number, one in added.items() if one.special and number < num_rows}
    unused = (text for text in known if any(mark in text.lower() for mark in UNUSED))
    token = AUDIO_TOKEN if AUDIO_TOKEN in known else next(unused, None)
    if token is None:
        raise ModelLoadError(
            f"{file}: has no special token that can stand for sounds: {AUDIO_TOKEN} or a reserved one, with an id "
            f"below the text model's vocab_size of {num_rows}"
        )
    return token, known[token]
