"""From a request to a run: renders and tokenises the prompt, checks the request, and plans how its answers are parsed.

Called in the thread that submits, before anything reaches the core.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import itertools
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from engine.api import Admitted, Delta, EmbedOptions, Event, GenerationRequest, RawPrompt, Task, Usage
from engine.api.errors import ErrorCode, RequestError
from engine.config import EngineConfig
from engine.decoding.beam_search import BeamSearch, EndRules
from engine.inputs.encoding import Prompt
from engine.inputs.images import PromptMedia
from engine.inputs.limits import (
    ContextLimits,
    check_alternatives,
    check_embedding,
    check_given,
    check_kind,
    check_processors,
    check_prompt_ids,
    check_token_ids,
    choice_token_limit,
)
from engine.inputs.processor import PromptProcessor
from engine.inputs.sound import SoundReader
from engine.inputs.text_fields import bad_word_ids, prediction_ids
from engine.messages import IMAGE_ADAPTER, AddAdapter
from engine.model_kind import ModelPurpose
from engine.outputs.detokenizer import Detokenizer
from engine.outputs.parsing import OutputParsing
from engine.outputs.pipeline import ChoicePipeline
from engine.outputs.prompt_scores import PromptScores
from engine.requests.held_inputs import HeldInputs
from engine.requests.runs.beams import BeamRun
from engine.requests.runs.buffered import RankedRun
from engine.requests.runs.non_generating import EmbedRun, PromptRun, TokenizeRun
from engine.requests.runs.run import Choice, PreparedRequest, Run
from engine.requests.runs.transcribing import TranscribeRun
from engine.requests.served_adapters import ServedAdapters
from engine.scheduling.waiting import check_place
from engine.scheduling.whole_spans import check_spans
from engine.structured.registry import AnswerGrammars
from engine.tokenizers.tokenizer import Tokenizer

SEED_BITS = 52  # JavaScript reads whole numbers exactly below 2**53, and choices add their index


@dataclass(frozen=True, slots=True)
class Resume:
    """The logged events of an earlier attempt at a run, complete and in order."""

    events: tuple[Event, ...] = ()
    next_position: int | None = None
    """The position of the next event; None: right after the last one."""

    @property
    def position(self) -> int:
        if self.next_position is not None:
            return self.next_position
        return self.events[-1].start + self.events[-1].count if self.events else 0

    @property
    def admitted(self) -> Admitted | None:
        return next((event.payload for event in self.events if isinstance(event.payload, Admitted)), None)

    @property
    def usage(self) -> Usage:
        """The counts that the logged events account for."""
        num_generated = sum(len(event.payload.token_ids) for event in self.events if isinstance(event.payload, Delta))
        return Usage(self.admitted.num_prompt_tokens if self.admitted else 0, completion_tokens=num_generated)


class RequestPreparer:
    """The preparation of the requests to one model. Thread-safe."""

    def __init__(
        self,
        config: EngineConfig,
        tokenizer: Tokenizer,
        processor: PromptProcessor,
        parsing: OutputParsing,
        grammars: AnswerGrammars,
        adapters: ServedAdapters,
        purpose: ModelPurpose | None = None,
        sounds: SoundReader | None = None,
    ) -> None:
        """`purpose`: what the model is for, to chat if it is None. `sounds`: the reader of a model that writes down
        speech.
        """
        self._sounds = sounds
        self._purpose = purpose or ModelPurpose()
        self._config = config
        self._tokenizer = tokenizer
        self._processor = processor
        self._parsing = parsing
        self._grammars = grammars
        self._adapters = adapters
        self._held = HeldInputs(config.media.max_encoder_input_bytes)
        self._cache_secret = secrets.token_bytes(32)
        self._seq_ids = itertools.count(1)

    def prepare(
        self, request: GenerationRequest, limits: ContextLimits, resume: Resume, num_known: Mapping[str, int]
    ) -> Run:
        """Check a request and make its run. `num_known`: sequences with the core, by tenant. Raises EngineError."""
        check_kind(request, self._purpose.kind)
        if request.max_context is not None:
            context = min(request.max_context, limits.max_model_len)
            limits = dataclasses.replace(limits, max_model_len=context)
        adapter = None if request.adapter is None else self._adapters.find(request.adapter)
        if request.task is Task.TRANSCRIBE:
            return self._transcribing_run(request, limits, resume, num_known)
        if request.task is Task.GENERATE:
            self._parsing.check(request)
        prompt = self._processor.prompt(request, limits.max_model_len)
        adapter = self._adapter_for(prompt, adapter)
        self._held.hold(prompt.media, request.tenant)
        if request.task is Task.GENERATE:
            return self._generating_run(request, adapter, prompt, limits, resume, num_known)
        choices = []
        computes = request.task is not Task.READ
        if computes:
            if request.task is Task.EMBED:
                check_embedding(request, len(prompt.token_ids), limits)
            self._check_queue(request, num_known, 1)
            pipeline = ChoicePipeline(0, self._tokenizer, request.stop, request.logprobs)
            choices = [Choice(next(self._seq_ids), pipeline)]
        check_prompt_ids(prompt.token_ids, limits, request.raw)
        prepared = self._prompt_only(request, adapter, prompt, limits)
        if not computes:
            return TokenizeRun(prepared, choices, resume.position)
        is_score = request.task is Task.SCORE
        prepared = dataclasses.replace(
            prepared,
            second_start=prompt.second_start,
            embed=self._embed_options(request.embed),
            score_ids=self._processor.score_ids if is_score else None,
        )
        return EmbedRun(prepared, choices, resume.position)

    def _adapter_for(self, prompt: Prompt, asked: AddAdapter | None) -> AddAdapter | None:
        """Return the adapter of a request: images may be seen by one. Raises RequestError if another is asked for."""
        folder = self._purpose.image_adapter
        if folder is None or not prompt.media.num_tokens.get("image"):
            return asked
        if asked is not None:
            message = (
                f"adapter {asked.name!r} cannot be combined with images, which this model sees by an adapter of its "
                "own; leave out the images, or name the model without an adapter"
            )
            raise RequestError(ErrorCode.INVALID_VALUE, message, "adapter")
        return AddAdapter(IMAGE_ADAPTER, "", str(folder))

    def _transcribing_run(
        self, request: GenerationRequest, limits: ContextLimits, resume: Resume, num_known: Mapping[str, int]
    ) -> Run:
        assert self._sounds is not None
        assert request.speech is not None
        self._check_queue(request, num_known, 1)
        admitted, asked = resume.admitted, request.sampling.seed
        seed = secrets.randbits(SEED_BITS) if asked is None else asked
        options = self._sounds.options(request.speech, admitted.seed if admitted is not None else seed)
        prompt_ids = self._sounds.prompt_ids(request.speech)
        check_prompt_ids(prompt_ids, limits, RawPrompt(request.speech.prompt))
        sound = self._sounds.read(request.speech, request.run_id, request.tenant)
        prepared = PreparedRequest(
            request=dataclasses.replace(request, speech=dataclasses.replace(request.speech, data="")),
            prompt_ids=prompt_ids,
            cache_root=b"",
            context_length=limits.max_model_len,
            media=PromptMedia((sound.definition,)),
            seed=options.seed,
        )
        choice = Choice(next(self._seq_ids), ChoicePipeline(0, self._tokenizer, request.stop, request.logprobs))
        return TranscribeRun(
            prepared, [choice], resume.position, sound=sound, speech=options, tokenizer=self._tokenizer
        )

    def _embed_options(self, asked: EmbedOptions) -> EmbedOptions:
        """Return the options with what the model's files say where the request says nothing."""
        purpose = self._purpose
        normalizes = purpose.normalizes if asked.normalizes is None else asked.normalizes
        return EmbedOptions(asked.pooling or purpose.pooling, asked.dimensions, normalizes)

    def _generating_run(
        self,
        request: GenerationRequest,
        adapter: AddAdapter | None,
        prompt: Prompt,
        limits: ContextLimits,
        resume: Resume,
        num_known: Mapping[str, int],
    ) -> Run:
        if request.beam is not None and prompt.media.spans:
            media = "images, videos and sounds" if request.raw is None else "prompt_embeds"
            message = f"use_beam_search cannot be combined with {media}: leave it out, or ask for several choices by n"
            raise RequestError(ErrorCode.INVALID_VALUE, message, "use_beam_search")
        max_tokens = choice_token_limit(request, len(prompt.token_ids), limits)
        check_prompt_ids(prompt.token_ids, limits, request.raw)
        check_given(prompt.media, limits)
        check_spans(prompt.media.spans, limits.longest_chunk)
        check_token_ids(request, limits)
        check_alternatives(request, limits)
        forbidden = bad_word_ids(request.sampling.bad_words, self._tokenizer, limits)
        check_processors(request.sampling, limits)
        parsing = self._parsing.plan(request, prompt.token_ids)
        self._check_queue(request, num_known, request.num_sequences)
        grammar = self._grammars.grammar(request)
        seed, admitted, position = request.sampling.seed, resume.admitted, resume.position
        if admitted is not None:
            # NOTE: the context of this worker may be shorter than that of the earlier attempt.
            max_tokens, seed = min(max_tokens, admitted.max_tokens), admitted.seed
        own_ends = () if request.stop.ignore_eos else (*self._tokenizer.eos_ids, *prompt.end_ids)
        prepared = dataclasses.replace(
            self._prompt_only(request, adapter, prompt, limits),
            seed=secrets.randbits(SEED_BITS) if seed is None else seed,
            max_tokens=max_tokens,
            stop_ids=list(dict.fromkeys((*own_ends, *request.stop.stop_token_ids))),
            bad_word_ids=forbidden,
            draft_ids=prediction_ids(request.prediction or "", self._tokenizer, max_tokens, limits.logits_width),
            thinking=parsing.thinking,
            grammar=grammar,
        )
        choices = [
            Choice(
                next(self._seq_ids),
                ChoicePipeline(index, self._tokenizer, request.stop, request.logprobs, parsing.make_choice(index)),
            )
            for index in range(request.num_sequences)
        ]
        scores = PromptScores(prompt.token_ids, self._tokenizer) if request.logprobs.prompt is not None else None
        if request.stop.max_tokens == 0:
            return PromptRun(prepared, choices[:1], position, scores)
        if request.beam is not None:
            search = BeamSearch(request.num_choices, request.beam.length_penalty, self._beam_ends(prepared))
            return BeamRun(prepared, choices, position, scores, search=search)
        if (request.best_of or 1) > 1:
            return RankedRun(prepared, choices, position, scores, num_reported=request.num_choices)
        return Run(prepared, choices, position, scores)

    def _prompt_only(
        self, request: GenerationRequest, adapter: AddAdapter | None, prompt: Prompt, limits: ContextLimits
    ) -> PreparedRequest:
        """Return the preparation of a request that generates nothing."""
        return PreparedRequest(
            request=request,
            prompt_ids=prompt.token_ids,
            cache_root=self._cache_root(request, adapter),
            context_length=limits.max_model_len,
            adapter=adapter,
            media=prompt.media,
            prompt_text=self._prompt_text(request, prompt),
            prompt_tokens=self._prompt_tokens(request, prompt),
        )

    def _check_queue(self, request: GenerationRequest, num_known: Mapping[str, int], count: int) -> None:
        check_place(num_known, request.tenant, count, self._config.max_waiting, self._config.max_num_seqs)

    def _prompt_text(self, request: GenerationRequest, prompt: Prompt) -> str | None:
        if not request.prompt.returns_text:
            return None
        return self._tokenizer.text_of(prompt.token_ids) if prompt.text is None else prompt.text

    def _prompt_tokens(self, request: GenerationRequest, prompt: Prompt) -> tuple[str, ...] | None:
        """Return the texts of the prompt's tokens, as among generated ones: they depend on the bytes before them."""
        if not request.prompt.returns_tokens:
            return None
        speller = Detokenizer(self._tokenizer, skip_special_tokens=False)
        return tuple(speller.feed(token_id) for token_id in prompt.token_ids)

    def _cache_root(self, request: GenerationRequest, adapter: AddAdapter | None) -> bytes:
        """Return the root of the request's hash chains in the prefix cache.

        It differs between tenants, salts and adapters, so these share no prefix. An adapter that is added anew under
        its name is another one. It is keyed by a secret, so a tenant
        cannot construct the root of another. Without prefix caching no two runs share one; the choices of one run still
        compute their prompt together.
        """
        if not self._config.prefix_caching:
            return secrets.token_bytes(32)
        tenant, salt = request.tenant.encode(), request.cache_salt.encode()
        numbers = (adapter.adapter_id if adapter else 0, len(tenant))
        fixed = b"".join(number.to_bytes(8, "big") for number in numbers)
        return hmac.digest(self._cache_secret, fixed + tenant + salt, hashlib.sha256)

    def _beam_ends(self, prepared: PreparedRequest) -> EndRules:
        stop = prepared.request.stop
        return EndRules(
            stop_ids=frozenset(prepared.stop_ids),
            stops=tuple(text.encode() for text in stop.stop),
            min_tokens=stop.min_tokens,
            max_tokens=prepared.max_tokens,
            text_of=partial(self._token_bytes, stop.skip_special_tokens),
        )

    def _token_bytes(self, skip_special_tokens: bool, token_id: int) -> bytes:
        is_left_out = skip_special_tokens and self._tokenizer.is_special(token_id)
        return b"" if is_left_out else self._tokenizer.token_bytes(token_id)
