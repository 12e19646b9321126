"""The body of a text completion: its own fields, those it shares with chat completions, and what they forbid each other.

Fields of a chat alone (`messages`, `tools`, …) are unknown here. Meaning of every field: docs/api/completions.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.conf import settings

from chat.api.request.constraints import GUIDED, constraint_of, guided_places, with_guided
from chat.api.request.cross_field import cross_field_check, foreign_check
from chat.api.request.fields import Boolean, Integer, Text
from chat.api.request.prompt_field import Prompts
from chat.api.request.refusals import refusal_renamed
from chat.api.request.schema import MAX_TOKENS, Alternatives, together_check, values_filled
from chat.api.request.sharing import SharingRequest, fields_read
from chat.errors import ApiError
from engine.api import EngineError

LIMITS = settings.LIGHTCONE_LIMITS
USUAL_MAX_TOKENS = 16
MAX_REPEATED = 64
"""Choices times log-probabilities of each token of their prompt."""


class Logprobs(Alternatives):
    """Likely tokens per position; 0 asks for the chosen one alone, and false, as chats write it, for none."""

    def to_internal_value(self, data: Any) -> Any:
        return None if data is False else super().to_internal_value(data)


class CompletionRequest(SharingRequest):
    prompt = Prompts(max_items=LIMITS.max_prompts, help_text="One prompt or several, as text or as token ids.")
    suffix = Text(help_text="What follows the answer: the model fills in the middle. Empty: none.")
    max_tokens = Integer(
        minimum=0,
        maximum=MAX_TOKENS,
        default=USUAL_MAX_TOKENS,
        help_text="Limit of generated tokens; 0 only with echo: the prompt alone.",
    )
    echo = Boolean(
        default=False, help_text="Begin each text with its prompt, and its log-probabilities with the prompt's."
    )
    best_of = Integer(
        minimum=1,
        maximum=LIMITS.max_n,
        help_text="Generate so many, and answer with the n of the best mean log-probability.",
    )
    logprobs = Logprobs(help_text="Log-probabilities of each token and of this many alternatives.")
    add_special_tokens = Boolean(
        default=True, nullable=False, help_text="Let the tokenizer add its own tokens to a text, as its begin token."
    )

    shared = (
        *(
            "model",
            "frequency_penalty",
            "logit_bias",
            "n",
            "presence_penalty",
            "response_format",
            "seed",
            "stop",
            "stream",
        ),
        *("stream_options", "temperature", "top_p", "user", "use_beam_search", "top_k", "min_p", "repetition_penalty"),
        *(
            "length_penalty",
            "stop_token_ids",
            "include_stop_str_in_output",
            "ignore_eos",
            "min_tokens",
            "skip_special_tokens",
        ),
        *(
            "spaces_between_special_tokens",
            "truncate_prompt_tokens",
            "truncation_side",
            "prompt_logprobs",
            "allowed_token_ids",
        ),
        *(
            "bad_words",
            "structured_outputs",
            "priority",
            "request_id",
            "logits_processors",
            "return_tokens_as_token_ids",
        ),
        *("return_token_ids", "cache_salt", "kv_transfer_params", "vllm_xargs", "stream_interval", "logprob_token_ids"),
        *(
            "repetition_detection",
            "metadata",
            "service_tier",
            "prediction",
            "prompt_cache_key",
            "safety_identifier",
            *GUIDED,
        ),
    )


SCHEMA = CompletionRequest()


def text_check(body: dict[str, Any]) -> dict[str, Any]:
    """The values of the chat schema and `prompts`; `echo` asks for more than it does there. `prompt_values` makes those of one of its
    runs. Raises ApiError."""
    known = {name: value for name, value in body.items() if name in SCHEMA.fields}
    cross_field_check({**known, "logprobs": _asks_for_logprobs(body)}, max_id_chars=LIMITS.max_id_chars)
    foreign_check(body)
    given = fields_read(SCHEMA, body)
    given["structured_outputs"] = with_guided(given)
    logprobs = given["logprobs"]
    values = values_filled(
        {
            **given,
            "prompts": given["prompt"],
            "suffix": given["suffix"] or None,
            "logprobs": logprobs is not None,
            "top_logprobs": logprobs or 0,
            "constraint": constraint_of(given["structured_outputs"], given["response_format"], guided_places(given)),
        }
    )
    _check_choices(values)
    _check_max_tokens(values)
    together_check(values)
    _check_suffix(values)
    _check_prompt_logprobs(values)
    return values


def text_refusal_reworded(error: EngineError, values: dict[str, Any]) -> EngineError:
    """A refusal of the engine in the names of this schema."""
    names = {"top_logprobs": "logprobs"}
    if values["prompt_logprobs"] is None:
        names["prompt_logprobs"] = "logprobs"
    return refusal_renamed(error, lambda path: names.get(path, path))


def prompt_values(values: Mapping[str, Any], index: int) -> dict[str, Any]:
    """The values of the run of prompt number `index`: with the prompt, and with what `echo` needs to know of it."""
    raw = replace(values["prompts"][index], suffix=values["suffix"])
    scores = _scores_echo(values)
    return {
        **values,
        "raw": raw,
        "is_further": index > 0,
        "prompt_logprobs": _prompt_alternatives(values),
        "return_prompt_text": values["echo"]
        and (raw.token_ids is not None or values["truncate_prompt_tokens"] is not None),
        "return_token_ids": values["return_token_ids"] or scores,
        "returns_tokens": scores,
    }


def _prompt_alternatives(values: Mapping[str, Any]) -> int | None:
    """The engine scores a prompt once, for `prompt_logprobs` and for what is echoed."""
    asked = [values["prompt_logprobs"]] if values["prompt_logprobs"] is not None else []
    asked += [values["top_logprobs"]] if _scores_echo(values) else []
    return None if not asked else -1 if -1 in asked else max(asked)


def _scores_echo(values: Mapping[str, Any]) -> bool:
    """Whether log-probabilities of an echoed prompt are told; in the shape of chats they have no place."""
    return bool(values["echo"] and values["logprobs"] and not values["has_chat_logprobs"])


def _asks_for_logprobs(body: Mapping[str, Any]) -> bool:
    """Whether it is sent and not false; 0 is a number of alternatives."""
    return body.get("logprobs") is not None and body["logprobs"] is not False


def _check_choices(values: Mapping[str, Any]) -> None:
    """How many answers there are to be; each prompt has its own."""
    n, best_of, num_prompts = values["n"], values["best_of"], len(values["prompts"])
    if best_of is not None:
        if best_of < n:
            raise _conflict("best_of", f"must be at least n, {n}; got {best_of}")
        if best_of > n and values["stream"]:
            raise _conflict(
                "best_of", f"cannot be more than n, {n}, where stream is true: the best are known at the end only"
            )
        if best_of > 1 and values["use_beam_search"]:
            raise _conflict(
                "best_of",
                "cannot be combined with use_beam_search, which finds the n best by itself; leave one of them out",
            )
    if num_prompts > 1 and num_prompts * max(n, best_of or 0) > LIMITS.max_prompts:
        name = "n" if best_of is None or best_of <= n else "best_of"
        number = max(n, best_of or 0)
        raise _conflict(
            name, f"times the number of prompts must be at most {LIMITS.max_prompts}, got {number} x {num_prompts}"
        )


def _check_max_tokens(values: Mapping[str, Any]) -> None:
    limit, best_of = values["max_tokens"], values["best_of"] or 0
    if limit == 0 and not values["echo"]:
        raise _conflict("max_tokens", "must be at least 1, or 0 with echo: true for the prompt alone; got 0")
    if limit * best_of > LIMITS.max_choice_tokens:
        raise _conflict(
            "best_of", f"times max_tokens must be at most {LIMITS.max_choice_tokens}, got {best_of} x {limit}"
        )


def _check_suffix(values: Mapping[str, Any]) -> None:
    if values["suffix"] is not None and values["echo"]:
        raise _conflict("suffix", "cannot be combined with echo; leave one of them out")


def _check_prompt_logprobs(values: Mapping[str, Any]) -> None:
    """Every choice repeats those of its prompt: a short request could ask for a hundred times what is computed for it."""
    alternatives = _prompt_alternatives(values)
    if alternatives is None or values["n"] == 1:
        return
    number = 1 + (LIMITS.max_logprobs if alternatives == -1 else alternatives)
    if values["n"] * number > MAX_REPEATED:
        message = f"times the log-probabilities per token of the prompt, which every choice repeats, must be at most {MAX_REPEATED}"
        raise _conflict("n", f"{message}, got {values['n']} x {number}")


def _conflict(param: str, message: str) -> ApiError:
    return ApiError("invalid_value", f"{param} {message}", param)
