"""Whisper: windows of 30 seconds, text between marks of time, the next window from the last mark (long-form).

The modules are transformers' own. Rules of tokens, thresholds and the cuts into segments are those of its
`WhisperForConditionalGeneration.generate`, and of https://github.com/openai/whisper.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from transformers import (
    GenerationConfig,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTimeStampLogitsProcessor,
)
from transformers.modeling_outputs import BaseModelOutput

from engine.api.errors import ModelLoadError
from engine.messages import SpeechOptions, SpokenSegment
from engine.models.speech.alignment import token_starts
from engine.models.speech.loading import load_quietly, read_model
from engine.models.speech.log_mel import LogMel
from engine.models.speech.model import RATE, Steps, chosen_token

WINDOW_FRAMES = 3_000
FRAMES_PER_STATE = 2
FRAME_S = 0.01
STATE_S = FRAME_S * FRAMES_PER_STATE
"""The seconds of a state of the encoder, and of a mark of time."""
TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""What is tried one after the other while a window fails the thresholds, unless the request names a temperature."""
LEAST_LOGPROB, MOST_RATIO, MOST_SILENCE = -1.0, 1.35, 0.6
"""Thresholds where generation_config.json has none: mean log-probability, compression of the tokens, no speech."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The tokens of a window, without the end."""

    token_ids: list[int]
    logprobs: list[float]
    mean_logprob: float
    """The end counts too."""
    silence: float
    """The probability that nobody speaks."""
    temperature: float


class Whisper:
    """A loaded model of the family."""

    def __init__(self, model: Any, extractor: Any, generation: Any, path: Path) -> None:
        """Raises ModelLoadError for a description that misses what is needed."""
        self._model = model
        self._device, self._dtype = model.device, model.dtype
        self._log_mel = LogMel(torch.from_numpy(extractor.mel_filters), extractor.n_fft, extractor.hop_length)
        config = model.config
        if extractor.sampling_rate != RATE or 2 * config.max_source_positions != WINDOW_FRAMES:
            raise ModelLoadError(f"{path}: windows of 30 seconds of {RATE} samples a second are served, and no others")
        if extractor.feature_size != config.num_mel_bins:
            raise ModelLoadError(
                f"{path}: preprocessor_config.json has {extractor.feature_size} bands, the model {config.num_mel_bins}"
            )
        self._generation = generation
        self._no_timestamps = generation.no_timestamps_token_id
        self._first_mark = self._no_timestamps + 1
        ends = generation.eos_token_id
        self._end: int = ends[0] if isinstance(ends, list) else ends
        self._languages: dict[str, int] = {
            token.strip("<|>"): token_id for token, token_id in (getattr(generation, "lang_to_id", None) or {}).items()
        }
        self._codes = {token_id: code for code, token_id in self._languages.items()}
        self._tasks: dict[str, int] = getattr(generation, "task_to_id", None) or {}
        self._heads: list[tuple[int, int]] = [
            tuple(head) for head in getattr(generation, "alignment_heads", None) or ()
        ]
        self._rules: list[Any] = []
        if generation.suppress_tokens:
            self._rules.append(SuppressTokensLogitsProcessor(generation.suppress_tokens, device=str(self._device)))
        self.vocab_size: int = config.vocab_size
        self.max_tokens: int = config.max_target_positions

    @classmethod
    def load(cls, path: Path, device: torch.device, dtype: torch.dtype) -> Whisper:
        """Load a folder. Raises ModelLoadError."""
        with load_quietly(path):
            extractor = WhisperFeatureExtractor.from_pretrained(path)
            generation = GenerationConfig.from_pretrained(path)
            model = read_model(WhisperForConditionalGeneration, path, dtype)
        return cls(model.eval().requires_grad_(False).to(device), extractor, generation, path)

    def forms(self) -> dict[str, str]:
        weights = str(self._dtype).removeprefix("torch.")
        return {"backend": "transformers", "weights": weights, "attention": "torch, windows of 30 s"}

    def transcribe(self, samples: torch.Tensor, prompt_ids: list[int], options: SpeechOptions) -> Steps:
        """Follow the seconds of the sound, a window at a time."""
        pieces = self._log_mel.pieces(samples)
        del samples  # an hour of it is 230 MB, and frames are all that is needed
        frames = yield from self._joined(pieces)
        total, seek, language = frames.shape[1], 0, options.language
        draws = torch.Generator(self._device).manual_seed(options.seed)
        while seek < total:
            count = min(total - seek, WINDOW_FRAMES)
            states = self._encode(functional.pad(frames[:, seek : seek + count], (0, WINDOW_FRAMES - count)))
            yield []
            if self._languages and not language:
                language = self._detected(states)
                yield []
            start = self._start(language, translates=options.translates)
            decoded = yield from self._decoded(states, prompt_ids, start, options, draws)
            if decoded is None:  # nobody speaks
                seek += count
                continue
            starts = None
            if options.wants_times and decoded.token_ids:
                starts = self._token_starts(states, [*prompt_ids, *start], decoded.token_ids, count)
            segments, advance = self._cut(decoded, starts, seek, count, language)
            yield segments
            seek += advance or count
        return language

    def _joined(self, pieces: Iterator[torch.Tensor]) -> Generator[list[SpokenSegment], None, torch.Tensor]:
        made = []
        for piece in pieces:
            made.append(piece)
            yield []
        return LogMel.joined(made)

    @torch.inference_mode()
    def _encode(self, frames: torch.Tensor) -> torch.Tensor:
        return self._model.get_encoder()(frames[None].to(self._device, self._dtype)).last_hidden_state

    @torch.inference_mode()
    def _logits(self, states: torch.Tensor, token_ids: list[int], cache: Any) -> tuple[torch.Tensor, Any]:
        """Return the logits at each of the next tokens (n, vocabulary), and the cache with them."""
        result = self._model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            decoder_input_ids=torch.tensor([token_ids], device=self._device),
            past_key_values=cache,
            use_cache=True,
        )
        return result.logits[0].float(), result.past_key_values

    def _detected(self, states: torch.Tensor) -> str:
        logits, _ = self._logits(states, [self._generation.decoder_start_token_id], None)
        ids = torch.tensor(list(self._codes), device=logits.device)
        return self._codes[int(ids[logits[0, ids].argmax()])]

    def _start(self, language: str, *, translates: bool) -> list[int]:
        start = [self._generation.decoder_start_token_id]
        if self._languages:
            start += [self._languages[language], self._tasks["translate" if translates else "transcribe"]]
        return start

    def _decoded(
        self,
        states: torch.Tensor,
        prompt_ids: list[int],
        start: list[int],
        options: SpeechOptions,
        draws: torch.Generator,
    ) -> Generator[list[SpokenSegment], None, Decoded | None]:
        """Decode a window, warmer as long as it fails the thresholds. Return None if nobody speaks in it."""
        temperatures = (options.temperature,) if options.temperature else TEMPERATURES
        least = self._threshold("logprob_threshold", LEAST_LOGPROB)
        for temperature in temperatures:
            decoded = yield from self._once(states, prompt_ids, start, temperature, draws)
            is_doubtful = decoded.mean_logprob < least
            if is_doubtful and decoded.silence > self._threshold("no_speech_threshold", MOST_SILENCE):
                return None
            is_repeating = self._ratio(decoded.token_ids) > self._threshold("compression_ratio_threshold", MOST_RATIO)
            if not is_doubtful and not is_repeating:
                break
        return decoded

    def _once(
        self, states: torch.Tensor, prompt_ids: list[int], start: list[int], temperature: float, draws: torch.Generator
    ) -> Generator[list[SpokenSegment], None, Decoded]:
        prefix = [*prompt_ids, *start]
        logits, cache = self._logits(states, prefix, None)
        silence = float(logits[len(prompt_ids)].softmax(-1)[self._no_timestamps - 1])
        rules = [*self._rules, WhisperTimeStampLogitsProcessor(self._generation, begin_index=len(prefix))]
        if first := self._generation.begin_suppress_tokens:
            rules.insert(0, SuppressTokensAtBeginLogitsProcessor(first, len(prefix), device=str(self._device)))
        token_ids: list[int] = []
        logprobs: list[float] = []
        while len(prefix) + len(token_ids) < self.max_tokens:
            scores = logits[-1:]
            known = torch.tensor([[*prefix, *token_ids]], device=self._device)
            for rule in rules:
                scores = rule(known, scores)
            chosen = chosen_token(scores[0], temperature, draws)
            logprobs.append(float(scores[0].log_softmax(-1)[chosen]))
            if chosen == self._end:
                break
            token_ids.append(chosen)
            yield []
            if len(prefix) + len(token_ids) < self.max_tokens:
                logits, cache = self._logits(states, [chosen], cache)
        mean = sum(logprobs) / max(1, len(logprobs))
        return Decoded(token_ids, logprobs[: len(token_ids)], mean, silence, temperature)

    def _threshold(self, name: str, default: float) -> float:
        value = getattr(self._generation, name, None)
        return default if value is None else float(value)

    def _ratio(self, token_ids: list[int]) -> float:
        """Return how much smaller the tokens become when they are compressed: text that repeats itself does."""
        size = int(math.log2(self.vocab_size) / 8) + 1
        written = b"".join(token_id.to_bytes(size, "little") for token_id in token_ids)
        return len(written) / len(zlib.compress(written))

    @torch.inference_mode()
    def _token_starts(
        self, states: torch.Tensor, prefix: list[int], token_ids: list[int], num_frames: int
    ) -> list[float]:
        """Return when each token of a window begins, in seconds from its start, by the heads that follow speech."""
        taken: dict[tuple[int, str], torch.Tensor] = {}
        hooks = []
        layers = self._model.get_decoder().layers
        for layer in {layer for layer, _ in self._heads}:
            for name in ("q_proj", "k_proj"):
                module = getattr(layers[layer].encoder_attn, name)

                def keep(_: Any, __: Any, output: torch.Tensor, key: tuple[int, str] = (layer, name)) -> None:
                    taken[key] = output[0]

                hooks.append(module.register_forward_hook(keep))
        try:
            self._logits(states, [*prefix, *token_ids[:-1]], None)
        finally:
            for hook in hooks:
                hook.remove()
        weights = []
        for layer, head in self._heads:
            attention = layers[layer].encoder_attn
            size = attention.head_dim
            queries, keys = (taken[layer, name][:, head * size : (head + 1) * size] for name in ("q_proj", "k_proj"))
            weights.append((queries * attention.scaling @ keys.T).float().softmax(-1))
        most = max(1, num_frames // FRAMES_PER_STATE)
        own = torch.stack(weights)[:, len(prefix) - 1 :, :most]  # of the place that foresees each token
        return token_starts(own, self._model.config.median_filter_width, STATE_S)

    def _cut(
        self, decoded: Decoded, starts: list[float] | None, seek: int, count: int, language: str
    ) -> tuple[list[SpokenSegment], int]:
        """Return the segments of a window, and the frames until the next one.

        A mark of time that another one follows ends a segment. What comes after the last such pair is said again by the
        next window, which begins there, unless a single mark ends the window: then nobody speaks after it.
        """
        ids = decoded.token_ids
        marks = [token_id >= self._first_mark for token_id in ids]
        ends = [place for place in range(1, len(ids)) if marks[place - 1] and marks[place]]
        is_closed = marks[-2:] == [False, True]
        advance, spans = count, list[tuple[int, int, float, float]]()
        if ends:
            places = [*ends, len(ids)] if is_closed else ends
            for first, stop in zip([0, *places], places, strict=False):
                spans.append((first, stop, self._seconds(ids[first]), self._seconds(ids[stop - 1])))
            if not is_closed:
                advance = (ids[ends[-1] - 1] - self._first_mark) * FRAMES_PER_STATE
        else:
            last = next((token_id for token_id, is_mark in zip(ids[::-1], marks[::-1], strict=True) if is_mark), 0)
            length = self._seconds(last) if last > self._first_mark else count * FRAME_S
            spans.append((0, len(ids), 0.0, length))
        offset = seek * FRAME_S
        made = []
        for first, stop, start_s, end_s in spans:
            places = [place for place in range(first, stop) if not marks[place]]
            if not places:
                continue
            made.append(
                SpokenSegment(
                    seek=seek,
                    start_s=offset + start_s,
                    end_s=offset + max(start_s, end_s),
                    token_ids=[ids[place] for place in places],
                    logprobs=[decoded.logprobs[place] for place in places],
                    mean_logprob=decoded.mean_logprob,
                    silence=decoded.silence,
                    temperature=decoded.temperature,
                    language=language,
                    token_starts=[offset + starts[place] for place in places] if starts else [],
                    token_ends=[offset + starts[min(place + 1, len(ids) - 1)] for place in places] if starts else [],
                )
            )
        return made, advance

    def _seconds(self, mark: int) -> float:
        return (mark - self._first_mark) * STATE_S
