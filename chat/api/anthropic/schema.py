"""The fields of `POST /v1/messages` and of `count_tokens`; conversation.py reads the turns.

A field that this server cannot honour is refused by name; unknown fields are ignored.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework import serializers

from chat.api.request.fields import (
    Array,
    Boolean,
    Integer,
    Number,
    Object,
    Record,
    RequestField,
    Text,
    echo,
    refuse,
    text_read,
)
from chat.api.request.objects import Messages
from chat.api.request.schema import MAX_TOKENS

LIMITS = settings.LIGHTCONE_LIMITS
EFFORTS = ("low", "medium", "high", "xhigh", "max")
MAX_USER_ID_CHARS = 512
TURNS_TEXT = (
    "Turns of user and assistant; a last one of the assistant is continued. Blocks of the user: text, tool_result, "
    "search_result, image and document, whose source is base64, url or a file by file_id, of a document also text and "
    "content."
)
CLEAR_THINKING = "clear_thinking_20251015"


class Unsupported(RequestField):
    """A field that this server cannot honour: any value but null and those of `harmless` is refused."""

    def __init__(self, reason: str, *, harmless: tuple[Any, ...] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reason, self.harmless = reason, harmless

    def to_internal_value(self, data: Any) -> None:
        if not any(type(data) is type(value) and data == value for value in self.harmless):
            raise refuse("unsupported_parameter", self.reason)


class System(RequestField):
    """The system prompt: text, or text blocks, which conversation.py reads."""

    json_schema = {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]}

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str | list):
            raise refuse("invalid_type", f"must be a string or an array of text blocks, got {echo(data)}")
        return data


class Thinking(Record):
    """Whether the model thinks before it answers, for how many tokens at most, and whether the thoughts are shown."""

    parts = {
        "type": Text(choices=("enabled", "disabled", "adaptive"), is_required=True),
        "budget_tokens": Integer(
            "Of enabled alone, where it is required; below max_tokens.", minimum=1, accepts_strings=False
        ),
        "display": Text("omitted: thoughts are left out of the answer.", choices=("summarized", "omitted")),
    }

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        values: dict[str, Any] = super().to_internal_value(data)
        if values["type"] == "enabled" and values["budget_tokens"] is None:
            raise refuse("missing_required_parameter", "is required where thinking is enabled", "budget_tokens")
        if values["type"] != "enabled" and values["budget_tokens"] is not None:
            raise refuse("invalid_value", f"must be left out where the type is {values['type']}", "budget_tokens")
        return values


class ToolChoiceObject(Record):
    """auto: the model decides. any: at least one call. tool: the one named. none: no calls."""

    parts = {
        "type": Text(choices=("auto", "any", "tool", "none"), is_required=True),
        "name": Text("Of tool alone, where it is required.", max_chars=LIMITS.max_label_chars),
        "disable_parallel_tool_use": Boolean("At most one call.", default=False),
    }

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        values: dict[str, Any] = super().to_internal_value(data)
        if values["type"] == "tool" and values["name"] is None:
            raise refuse("missing_required_parameter", "is required where the type is tool", "name")
        return values


class ToolEntry(Record):
    """A tool that the client runs. Tools of Anthropic's own types have no schema: they are left out and named."""

    parts = {
        "type": Text("custom, or absent; tools of other types are left out and named."),
        "name": Text(max_chars=LIMITS.max_label_chars, is_filled=True, is_label=True, is_required=True),
        "description": Text(),
        "input_schema": Object("JSON Schema of the input, an object.", is_required=True),
        "strict": Boolean("The input follows the schema, whatever the model would rather write.", default=False),
        "input_examples": Array(
            Object(nullable=False).run_validation,
            max_items=LIMITS.max_tools,
            help_text="Told to the model with the description.",
        ),
        "defer_loading": Boolean("Only false: there is no search for tools.", default=False),
        "allowed_callers": Array(
            text_read, max_items=LIMITS.max_tools, help_text="Must have direct, the only caller that there is."
        ),
    }

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        kind = data.get("type") if isinstance(data, dict) else None
        if isinstance(kind, str) and kind != "custom":
            return {"type": kind, "name": data.get("name")}
        values: dict[str, Any] = super().to_internal_value(data)
        values["type"] = "custom"
        if values["defer_loading"]:
            raise refuse(
                "unsupported_parameter",
                "cannot be true: this server has no search for tools; leave it out",
                "defer_loading",
            )
        if values["allowed_callers"] is not None and "direct" not in values["allowed_callers"]:
            raise refuse(
                "unsupported_parameter",
                "must have direct: no code runs on this server that could call",
                "allowed_callers",
            )
        return values


class OutputFormat(Record):
    parts = {
        "type": Text(choices=("json_schema",), is_required=True),
        "schema": Object("JSON Schema of the answer.", is_required=True),
    }


class OutputConfig(Record):
    parts = {
        "effort": Text("Given to the template as reasoning_effort.", choices=EFFORTS),
        "format": OutputFormat("The JSON that the answer must be."),
        "task_budget": Unsupported(
            "is not supported: budgets are not kept between requests; leave it out, and send max_tokens"
        ),
    }


class Metadata(Record):
    parts = {"user_id": Text("A label for the usage record.", max_chars=MAX_USER_ID_CHARS, is_label=True)}


class ContextManagement(Object):
    """Edits of the conversation by the server. None is made, so only those that keep everything pass."""

    def to_internal_value(self, data: Any) -> None:
        edits = super().to_internal_value(data).get("edits")
        if edits is not None and not isinstance(edits, list):
            raise refuse("invalid_type", f"must be an array, got {echo(edits)}", "edits")
        for index, edit in enumerate(edits or ()):
            keeps = edit.get("keep") if isinstance(edit, dict) and edit.get("type") == CLEAR_THINKING else None
            if keeps not in ("all", {"type": "all"}):
                message = (
                    "is not supported: this server takes nothing out of a conversation; "
                    "leave out what the model need not see"
                )
                raise refuse("unsupported_parameter", message, f"edits.{index}")


class BillingPolicy(Record):
    """The payer, which is always the key's project."""

    parts = {
        "bill_to": Unsupported("must be self: what a key uses is its project's; leave it out", harmless=("self",)),
    }


class Diagnostics(Record):
    parts = {"previous_message_id": Text("The answer then says that the cache tells no reasons.")}


class CountTokensRequest(serializers.Serializer):
    """The body of a count: the fields that make the prompt."""

    messages = Messages(help_text=TURNS_TEXT)
    model = Text(
        "A served name or alias; absent or empty: the default.", max_chars=LIMITS.max_label_chars, is_label=True
    )
    system = System("What the model is told before the conversation.")
    tools = Array(
        ToolEntry(nullable=False).run_validation, max_items=LIMITS.max_tools, help_text="Tools that the model may use."
    )
    tool_choice = ToolChoiceObject("How the model is to choose among the tools.")
    thinking = Thinking("Absent: disabled.")
    output_config = OutputConfig("The form of the answer, and the effort behind it.")
    output_format = OutputFormat("The older place of output_config.format.")
    context_management = ContextManagement("Only what keeps everything.")
    mcp_servers = Unsupported(
        "is not supported: this server calls no others; leave it out, and send the tools as tools", harmless=([],)
    )
    speed = Unsupported("must be standard: this server has one speed; leave it out", harmless=("standard",))
    cache_control = Object("A hint: prefixes are cached without it.")
    compaction = Unsupported("is not supported: this server does not summarise conversations; leave it out")
    billing_policy = BillingPolicy("Only what bills the key.")


class MessagesRequest(CountTokensRequest):
    """The body of a message. Unknown fields are ignored; known ones have their effect or are refused."""

    max_tokens = Integer(
        "Limit of generated tokens, thinking included.", minimum=1, maximum=MAX_TOKENS, is_required=True
    )
    stream = Boolean("Send the answer as server-sent events.", default=False)
    stop_sequences = Array(
        text_read, max_items=LIMITS.max_stop_strings, help_text="Strings that end the answer, which is cut before them."
    )
    temperature = Number("0 is greedy; higher is more random.", minimum=0, maximum=2)
    top_p = Number("Draw from the smallest set of tokens whose probability reaches this.", above=0, maximum=1)
    top_k = Integer("Draw from the k most likely tokens; 0: off.", minimum=0)
    metadata = Metadata("A label of the user.")
    service_tier = Text("auto: earlier in the queue, where the key may.", choices=("auto", "standard_only"))
    diagnostics = Diagnostics("Asks why the cache was not used, which is not known.")
    container = Unsupported("is not supported: this server runs no code; leave it out")
    inference_geo = Unsupported("is not supported: this server is in one place; leave it out")
    thread = Unsupported("is not supported: conversations are not kept; send all messages")
    fallbacks = Unsupported(
        "is not supported: a request is answered by the model that it names; leave it out", harmless=([],)
    )
    fallback_credit_token = Unsupported("is not supported: this server gives no credit; leave it out")


MESSAGES = MessagesRequest()
COUNT_TOKENS = CountTokensRequest()
