"""The options of a request, which are also the parameters of a created model, in the words of the one request schema.

Their meaning: https://github.com/ollama/ollama/blob/main/docs/modelfile.md (valid parameters and values).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chat.api.request.fields import Integer, Number, Record, bad_value
from chat.api.request.objects import Stop
from chat.api.request.parse import unknown_names

SENT_NAMES = {
    "max_tokens": "num_predict",
    "max_completion_tokens": "num_predict",
    "repetition_penalty": "repeat_penalty",
    **{
        name: name
        for name in ("temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "seed", "stop")
    },
}
"""From fields of the one request schema to the options that they come from."""
SAME = ("temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "seed", "stop")
WHOLE_CONTEXT = -1
"""The `repeat_last_n` that is served: penalties look at the whole context."""


class Options(Record):
    """How tokens are drawn, and how many. Options that this server does not know are ignored and named."""

    parts = {
        "num_predict": Integer("Limit of generated tokens; 0 or less: the rest of the context."),
        "temperature": Number("0 is greedy; higher is more random."),
        "top_k": Integer("Draw from the k most likely tokens; 0 or -1: off."),
        "top_p": Number("Draw from the smallest set of tokens whose probability reaches this."),
        "min_p": Number("Drop tokens less likely than this share of the most likely one."),
        "typical_p": Number("Only 1, which is off."),
        "repeat_penalty": Number("Divides the logits of tokens that the prompt or the answer already has."),
        "repeat_last_n": Integer("0: no repeat_penalty. Others are ignored: it looks at the whole context."),
        "presence_penalty": Number("Subtracted from the logit of each token that the answer has."),
        "frequency_penalty": Number("Subtracted from a token's logit once per occurrence in the answer so far."),
        "seed": Integer("Makes the draw repeatable; -1 or absent: a random one."),
        "stop": Stop("Strings that end the answer; the text is cut before them."),
        "num_ctx": Integer("The context that the request needs, in tokens; at most what is served.", minimum=1),
    }


def options_translate(options: Mapping[str, Any] | None, path: str = "options") -> dict[str, Any]:
    """Return the fields of the one request schema for checked options at `path`. Raises ApiError."""
    given = {name: value for name, value in (options or {}).items() if value is not None}
    if given.get("typical_p", 1) != 1:
        message = "must be 1: there is no typical sampling here; leave it out, and send top_p or min_p"
        raise bad_value(f"{path}.typical_p", message, "unsupported_parameter")
    translated = {name: given[name] for name in SAME if name in given}
    if given.get("num_predict", 0) > 0:
        translated["max_tokens"] = given["num_predict"]
    if "repeat_penalty" in given and given.get("repeat_last_n") != 0:
        translated["repetition_penalty"] = given["repeat_penalty"]
    return translated


def options_ignored(sent: Any, path: str = "options") -> tuple[str, ...]:
    """Return the names of sent options that have no effect."""
    if not isinstance(sent, dict):
        return ()
    ignored = unknown_names(sent, Options.parts, f"{path}.")
    has_window = sent.get("repeat_last_n") not in (None, 0, WHOLE_CONTEXT)
    return (*ignored, f"{path}.repeat_last_n") if has_window else ignored
