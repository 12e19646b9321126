"""Bad Scale requests and their exact errors, in the names of the sent fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MESSAGES = [{"role": "user", "content": "hi"}]
TYPE, VALUE, MISSING, UNSUPPORTED = (
    "invalid_type",
    "invalid_value",
    "missing_required_parameter",
    "unsupported_parameter",
)
ONE_KIND = "You can only use one kind of guided decoding but multiple are specified"
TOOL = {"type": "function", "function": {"name": "f"}}


@dataclass(frozen=True)
class Bad:
    """A body's fields beside `model` and `messages`, and the answer. `drops`: fields left out of the body."""

    fields: dict[str, Any]
    param: str
    code: str = VALUE
    says: str = ""
    drops: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        return f"{self.param}:{','.join(self.fields)[:60]}:{str(list(self.fields.values()))[:60]}"

    @property
    def may_stream(self) -> bool:
        """Return whether the answer is the same with `stream: true`; not so if the fault is about streams."""
        return not {"stream", "stream_options", "best_of"} & set(self.fields)

    def body(self, model: str) -> dict[str, Any]:
        return {
            name: value
            for name, value in {"model": model, "messages": MESSAGES, **self.fields}.items()
            if name not in self.drops
        }


def extra(**params: Any) -> dict[str, Any]:
    return {"inference_extra_params": params}


BAD = [
    # Required.
    Bad({}, "model", MISSING, drops=("model",)),
    Bad({"model": None}, "model", MISSING),
    Bad({"model": ""}, "model", says="must not be empty"),
    Bad({"model": " "}, "model"),
    Bad({"model": 5}, "model", TYPE),
    Bad({"model": "a\0b"}, "model"),
    Bad({"model": "a" * 257}, "model", says="256"),
    Bad({}, "messages", MISSING, drops=("messages",)),
    Bad({"messages": None}, "messages", MISSING),
    Bad({"messages": []}, "messages"),
    Bad({"messages": "hi"}, "messages", TYPE),
    # memory_strategy.
    Bad({"memory_strategy": {"name": "window", "k": 3}}, "memory_strategy", says="last_k"),
    Bad({"memory_strategy": "last_k"}, "memory_strategy", TYPE),
    Bad({"memory_strategy": {"k": 1, "params": {"k": 2}}}, "memory_strategy"),
    Bad({"memory_strategy": {"k": 0}}, "memory_strategy.k"),
    Bad({"memory_strategy": {"k": 2.0}}, "memory_strategy.k", TYPE),
    Bad({"memory_strategy": {}}, "memory_strategy.k", MISSING),
    # guided_*.
    Bad({"guided_json": ""}, "guided_json"),
    Bad({"guided_json": "{"}, "guided_json"),
    Bad({"guided_json": "5"}, "guided_json", TYPE),
    Bad({"guided_json": []}, "guided_json", TYPE),
    Bad({"guided_regex": ""}, "guided_regex"),
    Bad({"guided_regex": 5}, "guided_regex", TYPE),
    Bad({"guided_choice": []}, "guided_choice"),
    Bad({"guided_choice": [""]}, "guided_choice.0"),
    Bad({"guided_choice": ["a", 5]}, "guided_choice.1", TYPE),
    Bad({"guided_grammar": " \n"}, "guided_grammar"),
    Bad({"guided_whitespace_pattern": "("}, "guided_whitespace_pattern"),
    Bad({"guided_whitespace_pattern": "a"}, "guided_whitespace_pattern"),
    Bad({"guided_whitespace_pattern": "a", "guided_regex": "b"}, "guided_whitespace_pattern"),
    Bad({"guided_decoding_backend": "xgrammar"}, "guided_decoding_backend", says="outlines, lm-format-enforcer"),
    Bad({"guided_decoding_backend": 5}, "guided_decoding_backend", TYPE),
    Bad({"guided_json": {}, "guided_regex": "a"}, "guided_json", says=ONE_KIND),
    Bad({"guided_choice": ["a"], "guided_grammar": "root ::= 'a'"}, "guided_choice", says=ONE_KIND),
    Bad({"guided_choice": ["a"], "response_format": {"type": "json_object"}}, "guided_choice", says=ONE_KIND),
    Bad({"guided_choice": ["a"], **extra(structured_outputs={"regex": "a"})}, "guided_choice", says=ONE_KIND),
    Bad(
        {"response_format": {"type": "json_object"}, **extra(structured_outputs={"regex": "a"})},
        "response_format",
        says=ONE_KIND,
    ),
    Bad(
        extra(structured_outputs={"regex": "a", "choice": ["b"]}),
        "inference_extra_params.structured_outputs.regex",
        says=ONE_KIND,
    ),
    Bad({"guided_json": {}, **extra(structured_outputs=5)}, "inference_extra_params.structured_outputs", TYPE),
    Bad(
        {"guided_choice": ["a"], "tools": [TOOL], "tool_choice": "required"},
        "guided_choice",
        says="guided_choice cannot be combined",
    ),
    # Several answers.
    Bad({"best_of": 0}, "best_of"),
    Bad({"best_of": 129}, "best_of", says="128"),
    Bad({"best_of": 10**9}, "best_of"),
    Bad({"best_of": 1.5}, "best_of", TYPE),
    Bad({"best_of": 2, "n": 3}, "best_of", says="at least n, 3"),
    Bad({"best_of": 2, "stream": True}, "best_of", says="Results cannot be streamed"),
    Bad({"best_of": 2, "temperature": 0}, "best_of", says="temperature is 0"),
    Bad({"best_of": 2, **extra(use_beam_search=True)}, "best_of"),
    Bad({"best_of": 100, "max_tokens": 10_000}, "best_of", says="262144"),
    Bad({"n": 2, "temperature": 0}, "n"),
    Bad({"n": 0}, "n"),
    # Suffix.
    Bad({"suffix": 5}, "suffix", TYPE),
    Bad({"suffix": "x", "tools": [TOOL]}, "suffix"),
    Bad({"suffix": "x", "chat_template_kwargs": {"a": 1}}, "suffix", says="chat_template_kwargs"),
    Bad({"suffix": "x", **extra(echo=True)}, "suffix", says="inference_extra_params.echo"),
    Bad({"suffix": "x", "messages": [{"role": "system", "content": "hi"}]}, "messages"),
    Bad({"suffix": "x", "messages": [{"content": [{"type": "image_url", "image_url": {}}]}]}, "messages.0.content"),
    Bad({"suffix": "x", "messages": [{"role": "user"}]}, "messages.0.content"),
    # Audio.
    Bad({"modalities": ["audio"]}, "modalities", UNSUPPORTED),
    Bad({"modalities": ["text", "audio"]}, "modalities", UNSUPPORTED),
    Bad({"modalities": []}, "modalities"),
    Bad({"modalities": ["image"]}, "modalities"),
    Bad({"modalities": "text"}, "modalities", TYPE),
    Bad({"audio": {}}, "audio.format", MISSING),
    Bad({"audio": {"format": "wav"}}, "audio.voice", MISSING),
    Bad({"audio": {"format": "ogg", "voice": "alloy"}}, "audio.format", says="wav, mp3"),
    Bad({"audio": {"format": "wav", "voice": "bob"}}, "audio.voice"),
    Bad({"audio": "wav"}, "audio", TYPE),
    # inference_*.
    *(
        Bad({"inference_timeout": wrong}, "inference_timeout", TYPE)
        for wrong in ("30s", "nan", "inf", "1e3", "", " 30", True, False, [], {})
    ),
    *(Bad({"inference_timeout": wrong}, "inference_timeout") for wrong in (0, -1, "0", "-5", 0.0)),
    Bad({"inference_extra_params": []}, "inference_extra_params", TYPE),
    Bad({"inference_extra_params": "x"}, "inference_extra_params", TYPE),
    Bad(extra(min_p=2), "inference_extra_params.min_p", says="inference_extra_params.min_p must be"),
    Bad(extra(temperature=9), "inference_extra_params.temperature"),
    Bad(extra(stop=["a"] * 5), "inference_extra_params.stop"),
    Bad(extra(stop_token_ids=[1, -1]), "inference_extra_params.stop_token_ids.1"),
    Bad(extra(top_logprobs=3), "inference_extra_params.top_logprobs"),
    Bad(extra(structured_outputs={}), "inference_extra_params.structured_outputs"),
    Bad(extra(structured_outputs={"regex": ""}), "inference_extra_params.structured_outputs.regex"),
    Bad(extra(cache_salt=5), "inference_extra_params.cache_salt", TYPE),
    Bad(extra(web_search_options={}), "inference_extra_params.web_search_options", UNSUPPORTED),
    Bad({"inference_extra_headers": "x"}, "inference_extra_headers", TYPE),
    Bad({"inference_extra_headers": ["x"]}, "inference_extra_headers", TYPE),
    # Checked as in the Lightcone request.
    Bad({"stop": ["a", "b", "c", "d", "e"]}, "stop", says="at most 4"),
    Bad({"stop": [""]}, "stop.0"),
    Bad({"stop": 5}, "stop", TYPE),
    Bad({"temperature": 2.1}, "temperature"),
    Bad({"top_logprobs": 3}, "top_logprobs", says="logprobs: true"),
    Bad({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    Bad({"stream_options": {"include_usage": True}}, "stream_options"),
    Bad({"response_format": {"type": "xml"}}, "response_format.type"),
    Bad({"max_tokens": 0}, "max_tokens"),
    Bad({"tools": [{"type": "search"}]}, "tools.0.function", MISSING),
    Bad({"tools": [{"type": 5, "function": {"name": "f"}}]}, "tools.0.type", TYPE),
    Bad({"tool_choice": "required"}, "tool_choice"),
    Bad({"prediction": {"type": "image", "content": "x"}}, "prediction.type"),
    Bad({"logit_bias": {"a": 1}}, "logit_bias"),
    Bad({"frequency_penalty": 3}, "frequency_penalty"),
    Bad({"functions": [{"name": "f"}], "tools": [TOOL]}, "functions"),
]
NOT_OF_THE_KEY = [
    Bad({"chat_template": "x"}, "chat_template", "untrusted_chat_template"),
    Bad(extra(chat_template="x"), "inference_extra_params.chat_template", "untrusted_chat_template"),
    Bad(extra(priority=-1), "inference_extra_params.priority", says="inference_extra_params.priority must be"),
    Bad(extra(logits_processors=["x"]), "inference_extra_params.logits_processors", UNSUPPORTED),
    Bad(extra(kv_transfer_params={"a": 1}), "inference_extra_params.kv_transfer_params", UNSUPPORTED),
    Bad(extra(media_io_kwargs={"image": {"a": 1}}), "inference_extra_params.media_io_kwargs", UNSUPPORTED),
]
IMAGE = {"type": "image_url", "image_url": {"url": "http://10.0.0.1/x", "media_type": "image/png"}}
BAD_MESSAGES = [
    Bad({"messages": [5]}, "messages.0", TYPE),
    Bad({"messages": [{"role": 5, "content": "x"}]}, "messages.0.role", TYPE),
    Bad({"messages": [{"role": "user", "content": None}]}, "messages.0.content", TYPE),
    Bad({"messages": [5, *MESSAGES], "suffix": "x"}, "messages.0", TYPE),
    Bad({"messages": [{"content": [IMAGE]}, *MESSAGES], "suffix": "x"}, "messages.0.content.0.image_url", UNSUPPORTED),
    Bad({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages.0.content.0.image_url", UNSUPPORTED),
    Bad(
        {"messages": [{"content": IMAGE}]},
        "messages.0.content.image_url",
        UNSUPPORTED,
        says="messages.0.content.image_url cannot",
    ),
    Bad({"messages": [{"role": "system", "content": IMAGE}]}, "messages.0.content", TYPE),
    Bad(
        {
            "messages": [{"role": "system", "content": "s"}, *MESSAGES, *MESSAGES, {"content": [IMAGE]}],
            "memory_strategy": {"k": 1},
        },
        "messages.3.content.0.image_url",
        UNSUPPORTED,
        says="messages.3.content.0.image_url cannot",
    ),
    Bad(
        {"messages": [*MESSAGES * 4, {"role": "tool"}, {"content": 5}, {"content": 6}], "memory_strategy": {"k": 2}},
        "messages.5.content",
        TYPE,
        says="; messages.6.content must be",
    ),
]
