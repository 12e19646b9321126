"""The routes of the Responses API, described."""

from __future__ import annotations

from chat.api.openapi.answers import ASK, STARTING_AFTER
from chat.api.openapi.describe import PAGING, routes
from chat.api.openapi.notation import PIECES, components, one_of, shape
from chat.api.request.fields import fields_schema
from chat.api.request.schema import CHAT_SCHEMA
from chat.api.responses.schema import ALIKE, FURTHER, ResponseRequest

READ_APART = shape(
    """
    {
        input: string | some | null "Text or items; files (file_data, file_id, file_url), images (image_url, file_id).";
        tool_choice: mode | object | null "Which functions may, or must, be called."
    }
    """,
    some=PIECES["items"] | {"minItems": 1},
    mode=one_of("none", "auto", "required"),
)
REQUEST = fields_schema({**ResponseRequest().fields, **{name: CHAT_SCHEMA.fields[name] for name in (*ALIKE, *FURTHER)}})

SCHEMAS = components(
    """
    ResponseBody = {
        id, model: string; object: 'response'; created_at: integer; completed_at: integer | null;
        status: 'completed' | 'incomplete' | 'failed' | 'cancelled' | 'queued' | 'in_progress';
        output: items "Reasoning, messages and function calls, in order.";
        usage: object | null "Tokens of input and output.";
        error: object | null "Of a failed response: code and message.";
        incomplete_details: object | null "Of an incomplete response: reason."; metadata: {*: string} "As sent."
    }
    ResponseEvent = {type: string "As the frame is named."; sequence_number: integer}
    InputTokenCount = {object: 'response.input_tokens'; input_tokens: integer}
    """
)
SCHEMAS["ResponseRequest"] = {**REQUEST, "properties": READ_APART["properties"] | REQUEST["properties"]}
OPERATIONS = routes(
    "responses",
    """
    POST /v1/responses create_response(ResponseRequest) -> ResponseBody stream ResponseEvent
        Create a response. At once, as a stream of server-sent events that are named as their type, or in the
        background.
    GET /v1/responses/{response_id} retrieve_response(stream, starting_after) -> ResponseBody stream ResponseEvent
        One response. A stored response as it is now, or its events behind a number.
    DELETE /v1/responses/{response_id} delete_response() -> Deleted
        Delete a response. One in the background is stopped.
    POST /v1/responses/{response_id}/cancel cancel_response() -> ResponseBody
        Cancel a response. One in the background ends.
    GET /v1/responses/{response_id}/input_items list_response_input_items(limit, after, order) -> ItemList
        The input of a response. With the items of the responses before.
    POST /v1/responses/input_tokens count_response_input_tokens(ResponseRequest) -> InputTokenCount
        Count the tokens of an input
    """,
    query=f"{PAGING}; {STARTING_AFTER}; stream: boolean",
    create_response={"input": ASK[0]["content"], "max_output_tokens": 32},
    count_response_input_tokens={"input": ASK[0]["content"]},
)
