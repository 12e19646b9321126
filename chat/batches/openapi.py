"""The routes of files and batches, described."""

from __future__ import annotations

from typing import Any

from chat.api.openapi.answers import PAGE
from chat.api.openapi.describe import (
    BOOLEAN,
    INTEGER,
    NULL,
    SECONDS,
    TEXT,
    Operation,
    array,
    body_of,
    many,
    obj,
    one_of,
    or_null,
    query,
    ref,
)
from chat.batches.batch_views import BatchRequest
from chat.batches.models import BatchStatus, Purpose
from chat.batches.services import ENDPOINTS
from chat.batches.upload import EXPIRES_AFTER, UPLOAD_PURPOSES

TAG = "batches"
AFTER = query("after", TEXT, "The id that the page before ended with.")
LIMIT = query("limit", INTEGER)
EXAMPLE = {"input_file_id": "file-abc123", "endpoint": "/v1/chat/completions", "completion_window": "24h"}
INSTANTS = "in_progress_at finalizing_at completed_at failed_at expired_at cancelling_at cancelled_at"
PARTS = "As two parts, expires_after[anchor] and expires_after[seconds]."
UPLOAD = obj(
    {"expires_after": {**EXPIRES_AFTER.json_schema, "description": PARTS}},
    file={**TEXT, "format": "binary"},
    purpose=one_of(*UPLOAD_PURPOSES),
)

SCHEMAS = {
    "FileBody": obj(
        **many(TEXT, "id filename"),
        object=one_of("file"),
        bytes=INTEGER,
        created_at=SECONDS,
        expires_at={**or_null(INTEGER), "description": "Null: kept until it is deleted."},
        purpose=one_of(*Purpose.values),
        status=one_of("processed"),
        status_details=NULL,
    ),
    "FileContent": {**TEXT, "format": "binary"},
    "FileList": obj(**PAGE, data=array(ref("FileBody"))),
    "DeletedFile": obj(id=TEXT, object=one_of("file"), deleted=BOOLEAN),
    "BatchErrors": obj(
        object=one_of("list"),
        data=array(obj(**many(TEXT, "code message"), line=or_null(INTEGER), param=or_null(TEXT))),
    ),
    "BatchUsage": obj(
        **many(INTEGER, "input_tokens output_tokens total_tokens"),
        input_tokens_details=obj(cached_tokens=INTEGER),
        output_tokens_details=obj(reasoning_tokens=INTEGER),
    ),
    "BatchBody": obj(
        **many(TEXT, "id input_file_id completion_window"),
        object=one_of("batch"),
        endpoint=one_of(*ENDPOINTS),
        model={**or_null(TEXT), "description": "The model of all lines."},
        errors=or_null(ref("BatchErrors")),
        status=one_of(*BatchStatus.values),
        **many(or_null(TEXT), "output_file_id error_file_id"),
        created_at={**INTEGER, "description": "Unix seconds, as all instants."},
        expires_at=INTEGER,
        **many(or_null(INTEGER), INSTANTS),
        request_counts=obj(**many(INTEGER, "total completed failed")),
        usage=or_null(ref("BatchUsage")),
        metadata={"type": ["object", "null"], "additionalProperties": TEXT},
    ),
    "BatchList": obj(**PAGE, data=array(ref("BatchBody"))),
}


def _operation(route: str, name: str, text: str, *errors: int, **more: Any) -> Operation:
    tag = "files" if "/files" in route else "batches"
    return Operation(route, name, text, errors=(401, 403, *errors, 429, 500), tag=tag, **more)


OPERATIONS = (
    _operation(
        "POST /v1/files",
        "create_file",
        "Upload a file. For batches or for yourself.",
        400,
        413,
        form=UPLOAD,
        answer="FileBody",
    ),
    _operation(
        "GET /v1/files",
        "list_files",
        "List files. Those of the key's project, the newest first.",
        400,
        parameters=(query("purpose"), LIMIT, query("order"), AFTER),
        answer="FileList",
    ),
    _operation("GET /v1/files/{file_id}", "retrieve_file", "One file. Without its content.", 404, answer="FileBody"),
    _operation("DELETE /v1/files/{file_id}", "delete_file", "Delete a file", 400, 404, answer="DeletedFile"),
    _operation(
        "GET /v1/files/{file_id}/content",
        "download_file",
        "Content of a file. The bytes as they were sent, or the lines that a batch has put out.",
        404,
        answer="FileContent",
        answer_type="application/octet-stream",
    ),
    _operation(
        "POST /v1/batches",
        "create_batch",
        "Create a batch. The requests in a file are answered when there is time.",
        *(400, 404, 413),
        body=body_of(BatchRequest, **EXAMPLE),
        answer="BatchBody",
    ),
    _operation(
        "GET /v1/batches",
        "list_batches",
        "List batches. Those of the key's project, the newest first.",
        400,
        parameters=(LIMIT, AFTER),
        answer="BatchList",
    ),
    _operation(
        "GET /v1/batches/{batch_id}", "retrieve_batch", "One batch. Its state and results.", 404, answer="BatchBody"
    ),
    _operation(
        "POST /v1/batches/{batch_id}/cancel",
        "cancel_batch",
        "Cancel a batch. Requests that run end, and no more are sent; answers stay.",
        *(400, 404),
        answer="BatchBody",
    ),
)
