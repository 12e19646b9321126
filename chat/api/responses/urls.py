"""Routes under /v1/responses, with and without a trailing slash."""

from django.urls import re_path

from chat.api.responses import views

urlpatterns = [
    re_path(r"^v1/responses/?\Z", views.responses, name="responses"),
    re_path(r"^v1/responses/input_tokens/?\Z", views.response_input_tokens, name="response_input_tokens"),
    re_path(r"^v1/responses/(?P<response_id>[^/]+)/?\Z", views.response, name="response"),
    re_path(r"^v1/responses/(?P<response_id>[^/]+)/cancel/?\Z", views.response_cancel, name="response_cancel"),
    re_path(
        r"^v1/responses/(?P<response_id>[^/]+)/input_items/?\Z", views.response_input_items, name="response_input_items"
    ),
]
