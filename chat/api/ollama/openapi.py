"""The routes of Ollama's API, described."""

from __future__ import annotations

from chat.api.ollama.fields import (
    OllamaChatRequest,
    OllamaCopyRequest,
    OllamaCreateRequest,
    OllamaDeleteRequest,
    OllamaEmbeddingsRequest,
    OllamaEmbedRequest,
    OllamaGenerateRequest,
    OllamaPullRequest,
    OllamaShowRequest,
)
from chat.api.openapi.answers import ASK, MODEL_NAME, TEXT_EXAMPLE
from chat.api.openapi.describe import requests, routes
from chat.api.openapi.notation import components

SCHEMAS = requests(
    OllamaChatRequest,
    OllamaGenerateRequest,
    OllamaEmbedRequest,
    OllamaEmbeddingsRequest,
    OllamaShowRequest,
    OllamaPullRequest,
    OllamaCreateRequest,
    OllamaCopyRequest,
    OllamaDeleteRequest,
) | components(
    """
    OllamaError = {error, code: string; param: fault}
    call = {id: string; function: {index: integer; name: string; arguments: object}}
    message = {role: 'assistant'; content: string; thinking?: string; tool_calls?: [call]}
    one = {token: string; logprob: number; bytes: [integer]}
    logprob = {...one; top_logprobs: [one]}
    end = {
        model: string; created_at: string "ISO 8601."; done: boolean;
        done_reason?: 'stop' | 'length' | 'load' | 'unload';
        total_duration?, load_duration?, prompt_eval_duration?, eval_duration?: integer "Nanoseconds.";
        prompt_eval_count?, eval_count?: integer; logprobs?: [logprob]
    }
    OllamaChat = {...end; message: message} "Of a stream, each line; the last has done: true and what follows it."
    OllamaText = {...end; response: string; thinking?: string}
    OllamaVectors = {
        model: string; embeddings: [[number]]; total_duration, load_duration: integer "Nanoseconds.";
        prompt_eval_count: integer
    }
    OllamaVector = {embedding: [number]}
    details = {
        parent_model, format, family, parameter_size, quantization_level: string; families: [string]
    }
    listed = {name, model, digest: string; size: integer "Bytes."; details: details}
    tagged = {...listed; modified_at: string}
    loaded = {...listed; expires_at: string; size_vram, context_length: integer}
    OllamaTags = {models: [tagged]}
    OllamaLoaded = {models: [loaded]}
    OllamaModel = {
        modelfile, parameters, system, template, license, modified_at: string; details: details; model_info: object;
        capabilities: [string]
    }
    OllamaVersion = {version: string "The release of Ollama whose API this is."; lightcone: string}
    OllamaStatus = {status: string; digest?: string; total?, completed?: integer "Bytes."}
    """
)
COMPUTING = """
    POST /api/chat ollama_chat(OllamaChatRequest) -> OllamaChat lines OllamaChat
        Chat. In the shape of Ollama's API; a stream, unless stream is false, of JSON objects, one a line.
    POST /api/generate ollama_generate(OllamaGenerateRequest) -> OllamaText lines OllamaText
        Generate a text. From a prompt, with a template or raw.
    POST /api/embed ollama_embed(OllamaEmbedRequest) -> OllamaVectors
        Make vectors
    POST /api/embeddings ollama_embeddings(OllamaEmbeddingsRequest) -> OllamaVector
        Make one vector. The older route.
"""
MODELS = """
    GET /api/tags ollama_tags() -> OllamaTags raises 401 403 429 500
        List models
    GET /api/ps ollama_ps() -> OllamaLoaded raises 401 403 429 500
        List loaded models
    POST /api/show ollama_show(OllamaShowRequest) -> OllamaModel raises 400 401 403 404 413 429 500
        Describe a model
    GET /api/version ollama_version() -> OllamaVersion raises 401 403 429 500
        The version of the API
"""
CHANGES = """
    POST /api/pull ollama_pull(OllamaPullRequest) -> OllamaStatus lines OllamaStatus
        Pull a model of the Hugging Face hub. As all changes, for keys with the right models_manage.
    POST /api/create ollama_create(OllamaCreateRequest) -> OllamaStatus lines OllamaStatus
        raises 400 401 403 404 413 429 500
        Create a model of the files of another. With values of its own for options.
    POST /api/copy ollama_copy(OllamaCopyRequest) raises 400 401 403 404 413 429 500
        Give a model a further name
    DELETE /api/delete ollama_delete(OllamaDeleteRequest) raises 400 401 403 404 413 429 500
        Remove a further name, or a model
"""
OPERATIONS = {
    **routes(
        "ollama",
        COMPUTING,
        error="OllamaError",
        ollama_chat={"messages": ASK, "options": {"num_predict": 32}},
        ollama_generate={"prompt": TEXT_EXAMPLE, "options": {"num_predict": 32}},
        ollama_embed={"input": TEXT_EXAMPLE},
        ollama_embeddings={"prompt": TEXT_EXAMPLE},
    ),
    **routes("ollama", MODELS, error="OllamaError", ollama_show={"model": MODEL_NAME}),
    **routes(
        "ollama",
        CHANGES,
        error="OllamaError",
        ollama_pull={"model": "bartowski/SmolLM2-135M-Instruct-GGUF:Q4_K_M"},
        ollama_create={"model": "calm", "from": MODEL_NAME, "parameters": {"temperature": 0.1}},
        ollama_copy={"source": MODEL_NAME, "destination": "gpt-4"},
        ollama_delete={"model": "calm"},
    ),
}
