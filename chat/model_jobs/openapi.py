"""The routes that manage models, described."""

from __future__ import annotations

from chat.api.openapi.answers import MODEL_NAME
from chat.api.openapi.describe import requests, routes
from chat.api.openapi.notation import components, one_of
from chat.catalog.models import ModelState
from chat.model_jobs.models import JobKind, JobState
from chat.model_jobs.names import AdapterFiles, AliasTargets
from chat.model_jobs.views import CopyRequest, ImportRequest, ModelChange, ModelRequest, PullRequest

SCHEMAS = requests(
    AdapterFiles, AliasTargets, PullRequest, ImportRequest, ModelRequest, CopyRequest, ModelChange
) | components(
    """
    StoredFile = {path, sha256: string; num_bytes: integer}
    StoredModel = {
        name, kind: string; model_file: string "What is loaded: a GGUF file, or empty for the whole folder.";
        files: [StoredFile]; source: {kind, place, revision, asked_revision: string}; description: object;
        created_at: string; num_bytes: integer
    }
    ManagedModel = {
        id: string; object: 'model'; created: seconds; state: state; state_reason: string;
        context: integer | null; memory_bytes: integer | null "Of its core; what it would need if it is not loaded.";
        computed_by, path: string; enabled, is_default, pinned: boolean; idle_s, max_model_len: integer | null;
        fallback: string | null "Answers in its place.";
        transcriber: string | null "Writes down sound in its messages."; deprecated_at: integer | null;
        system_prompt, chat_template: string | null; aliases: [string];
        sampling_defaults, maker_defaults: object; stored: StoredModel | null
    }
    ManagedModelList = {...page; data: [ManagedModel]}
    ModelAdapter = {id, model, name, path: string; object: 'adapter'; enabled: boolean; created: seconds}
    ModelAdapterList = {...page; data: [ModelAdapter]}
    RemovedAdapter = {id: string; object: 'adapter'; deleted: boolean}
    ModelAlias = {id: string; object: 'alias'; targets: [{model: string; weight: integer}]}
    ModelAliasList = {...page; data: [ModelAlias]}
    RemovedAlias = {id: string; object: 'alias'; deleted: boolean}
    RemovedModel = {id: string; object: 'model'; deleted: boolean; num_bytes: integer}
    ModelJob = {
        id: string; object: 'model.job'; kind: kind; model: string; revision, name: string | null; state: job_state;
        phase: string | null; num_bytes: integer | null; num_done, bytes_per_second: integer;
        seconds_left: integer | null; message: string | null "What was chosen and why, then what came of it.";
        created_at: seconds; ended_at: integer | null
    }
    ModelJobList = {...page; data: [ModelJob]}
    """,
    state=one_of(*ModelState.values),
    kind=one_of(*JobKind.values),
    job_state=one_of(*JobState.values),
)
QUERY = "limit: integer"
ROUTES = """
    GET /v1/admin/models list_managed_models() -> ManagedModelList raises 401 403 429 500
        List models. With what is set, what workers report and what is stored.
    GET /v1/admin/models/{name} retrieve_managed_model() -> ManagedModel raises 401 403 404 429 500
        One model
    PATCH /v1/admin/models/{name} change_managed_model(ModelChange) -> ManagedModel raises 401 403 400 404 429 500
        Change a model. What is left out stays.
    DELETE /v1/admin/models/{name} remove_model() -> RemovedModel raises 401 403 400 404 429 500
        Remove a model. With its stored files, or what an unfinished pull has left.
    POST /v1/admin/models/pull pull_model(PullRequest) -> ModelJob raises 401 403 400 429 500
        Pull a model of the hub. In the background.
    POST /v1/admin/models/import import_models(ImportRequest) -> ModelJob raises 401 403 400 429 500
        Import models that are on the server's machine. In the background.
    POST /v1/admin/models/check check_model(ModelRequest) -> ModelJob raises 401 403 400 429 500
        Compare the files of a stored model with their hashes. In the background.
    POST /v1/admin/models/copy copy_model(CopyRequest) -> ManagedModel raises 401 403 400 429 500
        Offer a stored model under another name too. Its files are shared.
    POST /v1/admin/models/load load_model(ModelRequest) -> ManagedModel raises 401 403 404 429 500 503
        Load a model. A worker that has room does it, as for a request.
    POST /v1/admin/models/unload unload_model(ModelRequest) -> ManagedModel raises 401 403 400 404 429 500
        Unload a model. After its running requests; a pinned one is refused.
    GET /v1/admin/adapters list_adapters() -> ModelAdapterList raises 401 403 429 500
        List LoRA adapters
    PUT /v1/admin/adapters/{name} set_adapter(AdapterFiles) -> ModelAdapter raises 401 403 400 404 429 500
        Add a LoRA adapter. Its name is MODEL:ADAPTER, which requests ask for as a model.
    DELETE /v1/admin/adapters/{name} remove_adapter() -> RemovedAdapter raises 401 403 404 429 500
        Remove a LoRA adapter. Its requests go on; its files stay.
    GET /v1/admin/aliases list_weighted_aliases() -> ModelAliasList raises 401 403 429 500
        List weighted aliases. Names that lead to one of several models.
    PUT /v1/admin/aliases/{name} set_weighted_alias(AliasTargets) -> ModelAlias raises 401 403 400 429 500
        Set a weighted alias. Each model is asked as often as its weight says.
    DELETE /v1/admin/aliases/{name} delete_weighted_alias() -> RemovedAlias raises 401 403 404 429 500
        Delete a weighted alias
    GET /v1/admin/jobs list_model_jobs(limit) -> ModelJobList raises 401 403 400 429 500
        List pulls, imports, checks and copies. The newest first.
    GET /v1/admin/jobs/{job_id} retrieve_model_job() -> ModelJob raises 401 403 404 429 500
        One job. How far it is.
    DELETE /v1/admin/jobs/{job_id} cancel_model_job() -> ModelJob raises 401 403 404 429 500
        Cancel a job. What a pull has fetched is kept for the next try.
"""
SMALL = {"model": MODEL_NAME}
OPERATIONS = routes(
    "models_manage",
    ROUTES,
    query=QUERY,
    pull_model={"model": "bartowski/Qwen2.5-7B-Instruct-GGUF:Q4_K_M"},
    import_models={"path": "/home/ann/.ollama/models"},
    check_model=SMALL,
    copy_model={"model": MODEL_NAME, "name": "another-name"},
    load_model=SMALL,
    unload_model=SMALL,
    set_adapter={"path": "/srv/adapters/support"},
    set_weighted_alias={"targets": [{"model": MODEL_NAME, "weight": 95}, {"model": "another-name", "weight": 5}]},
    change_managed_model={"pinned": True, "idle_s": 3600},
)
