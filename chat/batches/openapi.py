"""The routes of files and batches, described."""

from __future__ import annotations

from chat.api.openapi.describe import requests, routes
from chat.api.openapi.notation import components, one_of
from chat.batches.models import BatchStatus, Purpose
from chat.batches.services import ENDPOINTS
from chat.batches.upload import EXPIRES_AFTER, UPLOAD_PURPOSES
from chat.batches.views import BatchRequest

SCHEMAS = requests(BatchRequest) | components(
    """
    FileUpload = {
        file: binary;
        purpose: upload_purpose "batch: for batches. user_data, assistants, vision: for messages to name by file_id.";
        expires_after?: expires_after "As two parts, expires_after[anchor] and expires_after[seconds]."
    }
    FileBody = {
        id, filename: string; object: 'file'; bytes: integer; created_at: seconds; purpose: purpose;
        expires_at: integer | null "Null: kept until it is deleted."; status: 'processed'; status_details: null
    }
    FileList = {...page; data: [FileBody]}
    DeletedFile = {id: string; object: 'file'; deleted: boolean}
    BatchErrors = {
        object: 'list'; data: [{code, message: string; line: integer | null; param: string | null}]
    }
    BatchUsage = {
        input_tokens, output_tokens, total_tokens: integer; input_tokens_details: {cached_tokens: integer};
        output_tokens_details: {reasoning_tokens: integer}
    }
    BatchBody = {
        id, input_file_id, completion_window: string; object: 'batch'; endpoint: endpoint;
        model: string | null "The model of all lines."; errors: BatchErrors | null; status: status;
        output_file_id, error_file_id: string | null; created_at: integer "Unix seconds, as all instants.";
        expires_at: integer; in_progress_at, finalizing_at, completed_at, failed_at, expired_at, cancelling_at,
        cancelled_at: integer | null; request_counts: {total, completed, failed: integer};
        usage: BatchUsage | null; metadata: {*: string} | null
    }
    BatchList = {...page; data: [BatchBody]}
    """,
    upload_purpose=one_of(*UPLOAD_PURPOSES),
    expires_after=EXPIRES_AFTER.json_schema,
    purpose=one_of(*Purpose.values),
    endpoint=one_of(*ENDPOINTS),
    status=one_of(*BatchStatus.values),
)
QUERY = 'limit: integer; after: string "The id that the page before ended with."; purpose, order: string'
FILES = """
    POST /v1/files create_file(form FileUpload) -> FileBody raises 401 403 400 413 429 500
        Upload a file. For a batch, or for messages that name it by file_id.
    GET /v1/files list_files(purpose, limit, order, after) -> FileList raises 401 403 400 429 500
        List files. Those of the key's project, the newest first.
    GET /v1/files/{file_id} retrieve_file() -> FileBody raises 401 403 404 429 500
        One file. Without its content.
    DELETE /v1/files/{file_id} delete_file() -> DeletedFile raises 401 403 400 404 429 500
        Delete a file
    GET /v1/files/{file_id}/content download_file() -> binary raises 401 403 404 429 500
        Content of a file. The bytes as they were sent, or the lines that a batch has put out.
"""
BATCHES = """
    POST /v1/batches create_batch(BatchRequest) -> BatchBody raises 401 403 400 404 413 429 500
        Create a batch. The requests in a file are answered when there is time.
    GET /v1/batches list_batches(limit, after) -> BatchList raises 401 403 400 429 500
        List batches. Those of the key's project, the newest first.
    GET /v1/batches/{batch_id} retrieve_batch() -> BatchBody raises 401 403 404 429 500
        One batch. Its state and results.
    POST /v1/batches/{batch_id}/cancel cancel_batch() -> BatchBody raises 401 403 400 404 429 500
        Cancel a batch. Requests that run end, and no more are sent; answers stay.
"""
EXAMPLE = {"input_file_id": "file-abc123", "endpoint": "/v1/chat/completions", "completion_window": "24h"}
OPERATIONS = routes("files", FILES, query=QUERY) | routes("batches", BATCHES, query=QUERY, create_batch=EXAMPLE)
