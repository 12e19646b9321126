"""Each route exists bare and under /v1, with and without a slash. Nothing redirects, as clients turn POST into GET."""

from django.urls import re_path

from chat.api.completions import chat_completion, text_completion
from chat.api.openai import audio, embeddings, models, rerank, stored, tokens
from chat.api.openai.dialect import LIGHTCONE, TEXT_COMPLETIONS
from chat.api.view import api_view, unknown_view

COMPLETION = r"^(?:v1/)?chat/completions/(?P<completion_id>[^/]+)"
AUDIO = r"^(?:v1/)?audio/"
transcriptions = api_view(audio.TRANSCRIPTIONS, post=audio.transcription)
translations = api_view(audio.TRANSLATIONS, post=audio.transcription)
completions = api_view(LIGHTCONE, get=stored.completions_list, post=chat_completion)
one_completion = api_view(
    LIGHTCONE, get=stored.completion_retrieve, post=stored.completion_update, delete=stored.completion_delete
)
render = api_view(tokens.RENDER_DIALECT, post=tokens.render)
tokenize = api_view(tokens.TOKENIZE_DIALECT, post=tokens.tokenize)
detokenize = api_view(tokens.DETOKENIZE_DIALECT, post=tokens.detokenize)
events = api_view(LIGHTCONE, get=stored.completion_events)
messages = api_view(LIGHTCONE, get=stored.completion_messages)

urlpatterns = [
    re_path(r"^(?:v1/)?completions/?\Z", api_view(TEXT_COMPLETIONS, post=text_completion), name="completions"),
    re_path(r"^(?:v1/)?chat/completions/render/?\Z", render, name="render"),
    re_path(r"^(?:v1/)?embeddings/?\Z", api_view(embeddings.EMBEDDINGS, post=embeddings.embeddings), name="embeddings"),
    re_path(r"^(?:v1/)?rerank/?\Z", api_view(rerank.JINA, post=rerank.rerank), name="rerank"),
    re_path(r"^v2/rerank/?\Z", api_view(rerank.COHERE, post=rerank.rerank), name="rerank_v2"),
    re_path(rf"{AUDIO}transcriptions/?\Z", transcriptions, name="transcriptions"),
    re_path(rf"{AUDIO}translations/?\Z", translations, name="translations"),
    re_path(r"^(?:v1/)?tokenize/?\Z", tokenize, name="tokenize"),
    re_path(r"^(?:v1/)?detokenize/?\Z", detokenize, name="detokenize"),
    re_path(r"^(?:v1/)?chat/completions/?\Z", completions, name="chat_completions"),
    re_path(rf"{COMPLETION}/?\Z", one_completion, name="chat_completion"),
    re_path(rf"{COMPLETION}/events/?\Z", events, name="chat_completion_events"),
    re_path(rf"{COMPLETION}/messages/?\Z", messages, name="chat_completion_messages"),
    re_path(r"^(?:v1/)?models/?\Z", api_view(LIGHTCONE, get=models.models_list), name="models"),
    re_path(r"^(?:v1/)?models/(?P<model_id>.+?)/?\Z", api_view(LIGHTCONE, get=models.model_retrieve), name="model"),
    re_path(r"^(?:v1|v2|chat|models|audio)(?:/.*)?\Z", unknown_view(LIGHTCONE)),
]
