"""Routes under /v1/responses, with and without a trailing slash."""

from django.urls import re_path

from chat.api.responses import views
from chat.api.responses.dialect import INPUT_TOKENS, RESPONSES
from chat.api.view import api_view

ONE = r"^v1/responses/(?P<response_id>[^/]+)"
one_response = api_view(RESPONSES, get=views.retrieve, delete=views.delete)
input_items = api_view(RESPONSES, get=views.input_items)
input_tokens = api_view(INPUT_TOKENS, post=views.input_tokens)

urlpatterns = [
    re_path(r"^v1/responses/?\Z", api_view(RESPONSES, post=views.create), name="responses"),
    re_path(r"^v1/responses/input_tokens/?\Z", input_tokens, name="response_input_tokens"),
    re_path(rf"{ONE}/?\Z", one_response, name="response"),
    re_path(rf"{ONE}/cancel/?\Z", api_view(RESPONSES, post=views.cancel), name="response_cancel"),
    re_path(rf"{ONE}/input_items/?\Z", input_items, name="response_input_items"),
]
