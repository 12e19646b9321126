"""The routes of OpenAI's shape, described."""

from __future__ import annotations

from chat.api.openai.audio import TranscriptionRequest
from chat.api.openai.embeddings import EmbeddingRequest
from chat.api.openai.rerank import RerankRequest
from chat.api.openai.tokens import DetokenizeRequest, TokenizeRequest
from chat.api.openapi.answers import CHAT_EXAMPLE, FILE_EXAMPLE, MODEL_STATES, STARTING_AFTER, TEXT_EXAMPLE
from chat.api.openapi.describe import PAGING, requests, routes
from chat.api.openapi.notation import components
from chat.api.request.fields import fields_schema
from chat.api.request.objects import Metadata
from chat.api.request.schema import ChatCompletionRequest
from chat.api.request.text_schema import CompletionRequest

RANKING_EXAMPLE = {"query": "How deep is the sea?", "documents": ["Some 3,700 metres.", "Blue."]}
LABELS = Metadata("Replaces the labels.", is_required=True)

SCHEMAS = requests(
    *(ChatCompletionRequest, CompletionRequest, EmbeddingRequest, RerankRequest, TokenizeRequest, DetokenizeRequest),
    TranscriptionRequest,
) | components(
    """
    defaults = {
        temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty: number; top_k: integer;
        max_completion_tokens: integer | null "null: the rest of the context."
    }
    Model = {
        id, owned_by: string; object: 'model'; created: seconds; state: state;
        max_model_len: integer | null "Context in tokens; null before the model was first loaded.";
        context: integer | null "Tokens that it was made for, as its files say.";
        kind: 'chat' | 'embedding' | 'reranker' | 'transcriber' | null "What it is for; null while no worker has it.";
        capabilities: [string]
            "chat, completion, structured_output, embedding, tools, reasoning, rerank, transcription.";
        format: string | null "Of its weights, such as Q4_K_M."; architecture: string | null;
        deprecated_at: integer | null "Unix seconds.";
        default_parameters: defaults "The values of fields that a request leaves out.";
        state_reason?: string "Progress, or why it failed; for keys with the right usage_read."
    }
    ModelList = {object: 'list'; data: [Model]}
    Tokens = {
        count?, max_model_len?: integer; tokens: [integer | object]; token_strs?: [string] | null
    } "Beside `content` only `tokens`, with `with_pieces` as objects of id and piece."
    DetokenizedText = {prompt: string; content: string "The same."}
    RenderedChat = {
        object: 'chat.completion.prompt'; model, prompt: string; token_ids: [integer];
        num_tokens, max_model_len: integer; sampling_params: object "What would be used, defaults included."
    }
    token_usage = {
        type: 'tokens'; input_tokens, output_tokens, total_tokens: integer;
        input_token_details: {audio_tokens, text_tokens: integer}
    }
    spoken_logprob = {token: string; logprob: number; bytes: [integer]}
    spoken_segment = {
        id: integer; seek: integer "Where its window begins, in hundredths of a second.";
        start, end: number "Seconds."; text: string; tokens: [integer]; temperature: number;
        avg_logprob, compression_ratio, no_speech_prob: number
    }
    Transcript = {
        text: string; logprobs?: [spoken_logprob]; usage: token_usage | {type: 'duration'; seconds: integer};
        task?: string; language?: string "In English."; duration?: number "Seconds.";
        segments?: [spoken_segment]; words?: [{word: string; start, end: number}]
    } "From `task` on with verbose_json alone. Other formats than json and verbose_json are plain text."
    TranscriptEvent = {
        type: 'transcript.text.delta' | 'transcript.text.done'; delta?, text?: string; logprobs?: [spoken_logprob];
        usage?: token_usage
    }
    Embedding = {object: 'embedding'; index: integer; embedding: [number] | string "Numbers, or base64."}
    EmbeddingList = {
        object: 'list'; data: [Embedding]; model: string; usage: {prompt_tokens, total_tokens: integer}
    }
    RankedDocument = {
        index: integer "The place in documents."; relevance_score: number; document?: {text: string}
    }
    Ranking = {
        id, model: string; results: [RankedDocument] "Best first."; usage: {prompt_tokens, total_tokens: integer}
    }
    CohereRanking = {
        id: string; results: [RankedDocument] "Best first.";
        meta: {
            api_version: {version: string}; billed_units: {search_units: integer}; tokens: {input_tokens: integer}
        }
    }
    """,
    state=MODEL_STATES,
)
SCHEMAS["Labels"] = fields_schema({"metadata": LABELS})

CHAT = """
    POST /v1/chat/completions create_chat_completion(ChatCompletionRequest) -> ChatCompletion stream ChatCompletionChunk
        Create a chat completion. At once or as a stream: server-sent events with one chunk in each, then [DONE].
    GET /v1/chat/completions list_chat_completions(limit, after, order, model) -> ItemList
        raises 400 401 403 429 500 503
        List stored chat completions. Those of the key's project; by labels with metadata[NAME]=VALUE.
    GET /v1/chat/completions/{completion_id} retrieve_chat_completion() -> ChatCompletion
        One stored chat completion. Or the whole answer of a resumable one.
    POST /v1/chat/completions/{completion_id} update_chat_completion(Labels) -> ChatCompletion
        raises 400 401 403 404 429 500 503
        Replace the labels of a stored chat completion
    DELETE /v1/chat/completions/{completion_id} delete_chat_completion() -> Deleted
        Delete a stored chat completion
    GET /v1/chat/completions/{completion_id}/messages list_chat_completion_messages(limit, after, order) -> ItemList
        The messages of a stored chat completion. As they were sent.
    GET /v1/chat/completions/{completion_id}/events resume_chat_completion(starting_after) stream ChatCompletionChunk
        Resume a stream. The chunks of a resumable chat completion behind a number, then live.
"""
MODELS = """
    GET /v1/models list_models() -> ModelList raises 401 403 429 500
        List models. Those that the key may use, under each of their names: aliases are entries of their own.
    GET /v1/models/{model_id} retrieve_model() -> Model raises 401 403 404 429 500
        One model. By name or alias; names may contain slashes.
"""
PROMPTS = """
    POST /v1/completions create_completion(CompletionRequest) -> TextCompletion stream TextCompletionChunk
        Continue a text. Without a chat and a template; as a stream, server-sent events with one chunk in each, then
        [DONE].
    POST /v1/chat/completions/render render_chat_completion(ChatCompletionRequest) -> RenderedChat
        The prompt of a chat. As the model would read it, and how an answer would be drawn.
    POST /v1/embeddings create_embeddings(EmbeddingRequest) -> EmbeddingList
        Text to vectors. A vector per input, of length 1 but for models whose files say otherwise.
    POST /v1/rerank create_ranking(RerankRequest) -> Ranking
        Rank documents by a query. In Jina's shape; the served model is a reranker.
    POST /v2/rerank create_cohere_ranking(RerankRequest) -> CohereRanking
        Rank documents by a query, for Cohere's clients. The same in Cohere's shape.
    POST /tokenize tokenize(TokenizeRequest) -> Tokens
        Text to tokens. Of a text, or of a conversation in `messages` with the fields that make its prompt.
    POST /detokenize detokenize(DetokenizeRequest) -> DetokenizedText
        Tokens to text
"""
AUDIO = """
    POST /v1/audio/transcriptions create_transcription(form TranscriptionRequest) -> Transcript stream TranscriptEvent
        Write down speech. In the language that is spoken; the served model is a transcriber. As a stream, server-sent
        events with a segment in each, then [DONE].
    POST /v1/audio/translations create_translation(form TranscriptionRequest) -> Transcript stream TranscriptEvent
        Write down speech in English. Whatever is spoken.
"""
OPERATIONS = {
    **routes("audio", AUDIO),
    **routes(
        "chat",
        CHAT,
        query=f"{PAGING}; {STARTING_AFTER}; model: string",
        create_chat_completion=CHAT_EXAMPLE,
        update_chat_completion={"metadata": {"topic": "greetings"}},
    ),
    **routes("models", MODELS),
    **routes(
        "prompts",
        PROMPTS,
        create_completion={"prompt": TEXT_EXAMPLE, "max_tokens": 32},
        render_chat_completion=FILE_EXAMPLE,
        create_embeddings={"input": TEXT_EXAMPLE},
        create_ranking=RANKING_EXAMPLE,
        create_cohere_ranking=RANKING_EXAMPLE,
        tokenize={"content": TEXT_EXAMPLE},
        detokenize={"tokens": [100, 200, 300]},
    ),
}
