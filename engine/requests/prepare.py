"""From a request to a run: the prompt is made, everything that can be wrong with the request is found, its answers get their parsers.

Called by `engine.engine` in the thread that submits. Nothing has reached the core yet, and of a run that is only read nothing ever does.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import secrets
from collections.abc import Mapping
from typing import Any

from engine.api import Admitted, GenerationRequest, Task, Timings
from engine.config import EngineConfig
from engine.inputs.encoding import Prompt
from engine.inputs.limits import (
    ContextLimits,
    check_alternatives,
    check_embedding,
    check_processors,
    check_prompt_ids,
    check_token_ids,
    choice_token_limit,
)
from engine.inputs.processor import PromptProcessor
from engine.inputs.text_fields import bad_word_ids, prediction_ids
from engine.outputs.detokenizer import Detokenizer
from engine.outputs.parsing import OutputParsing
from engine.outputs.pipeline import ChoicePipeline
from engine.outputs.prompt_scores import PromptScores
from engine.requests.runs.factory import make_run
from engine.requests.runs.run import Choice, Run
from engine.scheduling.queue_places import has_place, queue_full
from engine.structured.registry import AnswerGrammars
from engine.tokenizers.tokenizer import Tokenizer


class Admission:
    """Of one model. Thread-safe."""

    def __init__(
        self,
        config: EngineConfig,
        tokenizer: Tokenizer,
        processor: PromptProcessor,
        parsing: OutputParsing,
        forms: AnswerGrammars,
    ) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._processor = processor
        self._parsing = parsing
        self._forms = forms
        self._cache_secret = secrets.token_bytes(32)
        self._seq_ids = itertools.count(1)

    def run(
        self,
        request: GenerationRequest,
        limits: ContextLimits,
        *,
        num_known: Mapping[str, int],
        position: int = 0,
        admitted: Admitted | None = None,
    ) -> Run:
        """Check a request and make its run. `num_known`: sequences of each tenant with the core; `admitted`: what an earlier attempt said.

        Raises EngineError.
        """
        if request.task is Task.GENERATE:
            self._parsing.check(request)
        prompt = self._processor.prompt(request, limits.max_model_len)
        if request.task is Task.GENERATE:
            fields = self._answered(request, prompt, limits, num_known, admitted)
        else:
            fields = self._unanswered(request, prompt, limits, num_known)
        return make_run(
            self._tokenizer,
            request,
            prompt_ids=prompt.token_ids,
            cache_root=self._cache_root(request),
            position=position,
            timings=Timings(request.arrived_at),
            context_length=limits.max_model_len,
            **self._told(request, prompt),
            **fields,
        )

    def _answered(
        self,
        request: GenerationRequest,
        prompt: Prompt,
        limits: ContextLimits,
        num_known: Mapping[str, int],
        admitted: Admitted | None,
    ) -> dict[str, Any]:
        """Of a run that generates: what `Run` holds of its answers."""
        max_tokens = choice_token_limit(request, len(prompt.token_ids), limits)
        check_prompt_ids(prompt.token_ids, limits, request.raw)
        check_token_ids(request, limits)
        check_alternatives(request, limits)
        forbidden = bad_word_ids(request.sampling.bad_words, self._tokenizer, limits)
        check_processors(request.sampling, limits)
        parsing = self._parsing.plan(request, prompt.token_ids)
        self._check_queue(request, num_known, request.num_sequences)
        grammar = self._forms.grammar(request)
        seed = request.sampling.seed
        if admitted is not None:
            max_tokens, seed = (
                min(max_tokens, admitted.max_tokens),
                admitted.seed,
            )  # this worker's context may be shorter
        own_ends = () if request.stop.ignore_eos else (*self._tokenizer.eos_ids, *prompt.end_ids)
        return {
            "seed": secrets.randbits(63) if seed is None else seed,
            "max_tokens": max_tokens,
            "stop_ids": list(dict.fromkeys((*own_ends, *request.stop.stop_token_ids))),
            "choices": [
                Choice(
                    next(self._seq_ids),
                    ChoicePipeline(index, self._tokenizer, request.stop, request.logprobs, parsing.make_choice(index)),
                )
                for index in range(request.num_sequences)
            ],
            "bad_word_ids": forbidden,
            "thinking": parsing.thinking,
            "grammar": grammar,
            "draft_ids": prediction_ids(request.prediction or "", self._tokenizer, max_tokens, limits.logits_width),
            "scores": PromptScores(prompt.token_ids, self._tokenizer) if request.logprobs.prompt is not None else None,
        }

    def _unanswered(
        self, request: GenerationRequest, prompt: Prompt, limits: ContextLimits, num_known: Mapping[str, int]
    ) -> dict[str, Any]:
        """Of a run that ends with its prompt: one sequence if that becomes a vector, none if it is only read."""
        choices = []
        if request.task is Task.EMBED:
            check_embedding(request, len(prompt.token_ids), limits)
            self._check_queue(request, num_known, 1)
            choices.append(
                Choice(next(self._seq_ids), ChoicePipeline(0, self._tokenizer, request.stop, request.logprobs))
            )
        check_prompt_ids(prompt.token_ids, limits, request.raw)
        return {"seed": 0, "max_tokens": 0, "stop_ids": [], "choices": choices}

    def _check_queue(self, request: GenerationRequest, num_known: Mapping[str, int], count: int) -> None:
        most = self._config.max_waiting
        if not has_place(num_known, request.tenant, count, most + self._config.max_num_seqs):
            raise queue_full(most)

    def _told(self, request: GenerationRequest, prompt: Prompt) -> dict[str, Any]:
        """What the request asks to be told of its prompt. The text of a token is that of generated ones: with the bytes before it."""
        told: dict[str, Any] = {}
        if request.prompt.returns_text:
            told["prompt_text"] = self._tokenizer.text_of(prompt.token_ids) if prompt.text is None else prompt.text
        if request.prompt.returns_tokens:
            speller = Detokenizer(self._tokenizer, skip_special_tokens=False)
            told["prompt_tokens"] = tuple(speller.feed(token_id) for token_id in prompt.token_ids)
        return told

    def _cache_root(self, request: GenerationRequest) -> bytes:
        """Requests of two tenants or salts share no prefix: the root of their hash chains differs. Secret, so nobody can aim at one.

        Without prefix caching no two runs share any; the choices of one still compute their prompt together.
        """
        if not self._config.prefix_caching:
            return secrets.token_bytes(32)
        tenant, salt = request.tenant.encode(), request.cache_salt.encode()
        return hmac.digest(self._cache_secret, len(tenant).to_bytes(8, "big") + tenant + salt, hashlib.sha256)
