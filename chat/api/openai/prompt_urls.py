"""Each route exists bare and under /v1, with and without a trailing slash."""

from django.urls import re_path

from chat.api.openai.completion_request import TEXT_COMPLETIONS
from chat.api.openai.embedding_request import EMBEDDINGS
from chat.api.openai.embeddings import embeddings
from chat.api.openai.token_requests import DETOKENIZE_DIALECT, RENDER_DIALECT, TOKENIZE_DIALECT
from chat.api.openai.tokens import detokenize, render, tokenize
from chat.api.text_completion import text_completion
from chat.api.view import api_view

urlpatterns = [
    re_path(r"^(?:v1/)?completions/?\Z", api_view(TEXT_COMPLETIONS, post=text_completion), name="completions"),
    re_path(r"^(?:v1/)?chat/completions/render/?\Z", api_view(RENDER_DIALECT, post=render), name="render"),
    re_path(r"^(?:v1/)?embeddings/?\Z", api_view(EMBEDDINGS, post=embeddings), name="embeddings"),
    re_path(r"^(?:v1/)?tokenize/?\Z", api_view(TOKENIZE_DIALECT, post=tokenize), name="tokenize"),
    re_path(r"^(?:v1/)?detokenize/?\Z", api_view(DETOKENIZE_DIALECT, post=detokenize), name="detokenize"),
]
