"""Translate chats, prompts and inputs of embeddings into the one request schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from chat.api.ollama.conversation import ConversationReader, are_texts, image_parts, image_paths
from chat.api.ollama.fields import CHAT, EMBED, EMBEDDINGS, GENERATE
from chat.api.ollama.names import OllamaNames
from chat.api.ollama.options import options_ignored, options_translate
from chat.api.request.fields import bad_value
from chat.api.request.parse import fields_read, request_parse, unknown_names, values_parse
from chat.api.request.parsed import ParsedRequest, PromptsRequest
from chat.api.request.schema import RequestBody
from chat.errors import ApiError, Problems
from engine.api import EmbedOptions, RawPrompt, Task

TAG = ":latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedAnswer(ParsedRequest):
    """A checked chat or prompt."""

    num_ctx: int | None = None
    """The context that the request needs, in tokens."""
    unloads: bool = False
    """It asks that its model is unloaded, and for nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedInputs(PromptsRequest):
    """Checked inputs of embeddings."""

    num_ctx: int | None = None


def names_of(model: str | None) -> tuple[str, ...] | None:
    """Return the names that `model` may stand for: a name without a tag is that with `:latest`, and the reverse."""
    if not model:
        return None
    if model.endswith(TAG):
        return model, model.removesuffix(TAG)
    return (model,) if ":" in model else (model, model + TAG)


def chat_parse(body: dict[str, Any]) -> ParsedAnswer:
    """Check and translate a chat. Raises ApiError in the client's names."""
    fields = fields_read(CHAT, body)
    reader = ConversationReader()
    messages = reader.read(fields["messages"] or [])
    if not messages:
        return _load(fields, body, CHAT)
    translated = {"messages": messages, **_answer_fields(fields)}
    if fields["tools"]:
        translated["tools"] = fields["tools"]
    last = messages[-1]
    names = OllamaNames({"continue_final_message": f"messages.{len(messages) - 1}", **reader.sent})
    if isinstance(last, dict) and last.get("role") == "assistant" and not last.get("tool_calls"):
        translated["continue_final_message"] = True
    parsed = _renamed(names, request_parse, translated)
    return _answer(parsed, fields, body, CHAT, names)


def generate_parse(body: dict[str, Any]) -> ParsedAnswer:
    """Check and translate a prompt: a message of the user, or with `raw` or a `suffix` a text without a template."""
    fields = fields_read(GENERATE, body)
    prompt, suffix, system = fields["prompt"] or "", fields["suffix"] or None, fields["system"] or ""
    is_raw = fields["raw"] or suffix is not None
    if is_raw and system:
        raise bad_value(
            "system", f"cannot be combined with {'suffix' if suffix else 'raw'}, which goes without a template"
        )
    images, problems = fields["images"] or [], Problems()
    are_texts(images, "images", problems)
    problems.raise_any()
    if images and is_raw:
        raise bad_value("images", f"cannot be combined with {'suffix' if suffix else 'raw'}: send a prompt alone")
    if not prompt and not images and suffix is None:
        return _load(fields, body, GENERATE)
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    place = f"messages.{len(messages)}"
    content = image_parts(prompt, images) if images else prompt
    messages.append({"role": "user", "content": content})
    own = {f"{place}.content": "prompt", place: "prompt", **image_paths(len(content), len(images), place, "images")}
    names = OllamaNames(own | ({"messages.0.content": "system", "messages.0": "system"} if system else {}))
    parsed = _renamed(names, request_parse, {"messages": messages, **_answer_fields(fields)})
    if is_raw:
        generation = parsed.generation
        raw, options = RawPrompt(text=prompt, suffix=suffix), replace(generation.prompt, add_special_tokens=True)
        parsed = replace(parsed, messages=(), generation=replace(generation, raw=raw, prompt=options))
    return _answer(parsed, fields, body, GENERATE, names)


def embed_parse(body: dict[str, Any]) -> ParsedInputs:
    """Check the inputs of `/api/embed`. Without any the model is only loaded."""
    is_load = body.get("input") in (None, "", [])
    fields = fields_read(EMBED, {**body, "input": ""} if is_load else body)
    prompts = [RawPrompt(param="input")] if is_load else fields["input"]
    return _inputs(fields, body, EMBED, prompts, is_load=is_load)


def embeddings_parse(body: dict[str, Any]) -> ParsedInputs:
    """Check the one input of the older `/api/embeddings`."""
    fields = fields_read(EMBEDDINGS, body)
    prompt = fields["prompt"] or ""
    return _inputs(fields, body, EMBEDDINGS, [RawPrompt(text=prompt)], is_load=not prompt)


def _inputs(
    fields: Mapping[str, Any], body: dict[str, Any], schema: RequestBody, prompts: list[RawPrompt], *, is_load: bool
) -> ParsedInputs:
    parsed = values_parse({"model": fields["model"]})
    generation = replace(
        parsed.generation,
        task=Task.READ if is_load else Task.EMBED,
        embed=EmbedOptions(dimensions=fields.get("dimensions")),
        prompt=replace(
            parsed.generation.prompt,
            add_special_tokens=True,
            truncate_to=-1 if fields.get("truncate", True) else None,
            truncation_side="right",
        ),
    )
    return ParsedInputs.extending(
        replace(parsed, generation=generation, **_common(fields, parsed, body, schema)),
        prompts=prompts,
        num_ctx=(fields["options"] or {}).get("num_ctx"),
    )


def _answer_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the one request schema that chats and prompts share."""
    translated = {"model": fields["model"], "stream": fields["stream"], **options_translate(fields["options"])}
    if fields["format"] is not None:
        translated["response_format"] = fields["format"]
    if fields["logprobs"]:
        translated |= {"logprobs": True, "top_logprobs": fields["top_logprobs"] or 0}
    think = fields["think"]
    if isinstance(think, str):
        translated["reasoning_effort"] = think
    elif think is not None:
        translated["chat_template_kwargs"] = {"enable_thinking": think}
        translated["include_reasoning"] = think
    return translated


def _renamed(
    names: OllamaNames, parse: Callable[[Mapping[str, Any]], ParsedRequest], translated: dict[str, Any]
) -> ParsedRequest:
    try:
        return parse(translated)
    except ApiError as error:
        error.rename_fields(names)
        raise


def _load(fields: Mapping[str, Any], body: dict[str, Any], schema: RequestBody) -> ParsedAnswer:
    """Return the request that only waits until its model is there: the prompt is empty, and is read.

    With a `keep_alive` of no time it asks for the reverse.
    """
    parsed = values_parse({"model": fields["model"]})
    loading = replace(parsed, generation=replace(parsed.generation, task=Task.READ, raw=RawPrompt()))
    unloads = bool(fields["keep_alive"])
    sent = {**fields, "keep_alive": None} if unloads else fields
    return replace(_answer(loading, sent, body, schema, OllamaNames()), unloads=unloads)


def _answer(
    parsed: ParsedRequest, fields: Mapping[str, Any], body: dict[str, Any], schema: RequestBody, names: OllamaNames
) -> ParsedAnswer:
    return ParsedAnswer.extending(
        replace(parsed, field_names=names, **_common(fields, parsed, body, schema)),
        num_ctx=(fields["options"] or {}).get("num_ctx"),
    )


def _common(
    fields: Mapping[str, Any], parsed: ParsedRequest, body: dict[str, Any], schema: RequestBody
) -> dict[str, Any]:
    """Return the parts of every request: the names of its model, and what was passed over."""
    ignored = (*options_ignored(body.get("options")), *unknown_names(body, schema.fields))
    if fields["keep_alive"] is not None:
        ignored = ("keep_alive", *ignored)
    return {"model_names": names_of(fields["model"]), "delivery": replace(parsed.delivery, ignored=ignored)}
