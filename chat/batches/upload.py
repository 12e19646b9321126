"""Read the multipart body of an upload into memory with Django's parser. The HTTP server enforces the limit."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.core.files.uploadhandler import FileUploadHandler
from django.http import QueryDict
from django.http.multipartparser import MultiPartParser, MultiPartParserError
from rest_framework.fields import empty

from chat.api.request.fields import RequestField, Text, echo, field_read, integer_read, refuse
from chat.batches.models import CHUNK_BYTES, Purpose
from chat.errors import ApiError

UPLOAD_PURPOSES = tuple(value for value in Purpose.values if value != Purpose.BATCH_OUTPUT)
MIN_LIFE_S, MAX_LIFE_S = 3600, 30 * 24 * 3600
FIELDS = ("purpose", "expires_after[anchor]", "expires_after[seconds]")


@dataclass(frozen=True, slots=True)
class Upload:
    """A checked upload. `lives_s` None: by its purpose."""

    filename: str
    purpose: str
    pieces: tuple[bytes, ...]
    num_bytes: int
    lives_s: int | None


class ExpiresAfter(RequestField):
    """The field `{"anchor": "created_at", "seconds": N}`, the life of a file. It reads to the seconds."""

    json_schema = {
        "type": "object",
        "properties": {
            "anchor": {"type": "string", "enum": ["created_at"]},
            "seconds": {"type": "integer", "minimum": MIN_LIFE_S, "maximum": MAX_LIFE_S},
        },
        "required": ["anchor", "seconds"],
    }

    def to_internal_value(self, data: Any) -> int:
        if not isinstance(data, dict):
            raise refuse("invalid_type", f"must be an object, got {echo(data)}")
        for name in ("anchor", "seconds"):
            if data.get(name) is None:
                raise refuse("missing_required_parameter", "is required", name)
        if data["anchor"] != "created_at":
            raise refuse("invalid_value", f"must be created_at, got {echo(data['anchor'])}", "anchor")
        seconds = integer_read(data["seconds"])
        if not MIN_LIFE_S <= seconds <= MAX_LIFE_S:
            raise refuse("invalid_value", f"must be from {MIN_LIFE_S} to {MAX_LIFE_S}, got {seconds}", "seconds")
        return seconds


PURPOSE = Text(choices=UPLOAD_PURPOSES, is_required=True)
EXPIRES_AFTER = ExpiresAfter()


def upload_read(body: bytes, content_type: str) -> Upload:
    """Read the upload in a `multipart/form-data` body. Raises ApiError."""
    if content_type.partition(";")[0].strip().lower() != "multipart/form-data":
        raise ApiError(
            "invalid_content_type",
            "The Content-Type header must be multipart/form-data, with the parts file and purpose.",
        )
    files = _Pieces()
    fields = _parse(body, content_type, files)
    for name in FIELDS:
        if len(fields.getlist(name)) > 1:
            raise ApiError("invalid_value", f"{name} was sent {len(fields.getlist(name))} times; send it once", name)
    if "expires_after" in fields:
        message = "expires_after must be sent as two parts, expires_after[anchor] and expires_after[seconds]"
        raise ApiError("invalid_type", message, "expires_after")
    purpose = _value("purpose", PURPOSE, fields.get("purpose"))
    lives_s = _value("expires_after", EXPIRES_AFTER, _expires_after(fields))
    _check_file(fields, files)
    return Upload(files.filename, purpose, tuple(files.pieces), files.num_bytes, lives_s)


def _check_file(fields: QueryDict, files: _Pieces) -> None:
    """Raise ApiError unless there was exactly one file, as the part `file`."""
    if files.is_cut_off:
        raise ApiError("invalid_value", "The multipart body ends before its last boundary.", "file")
    if files.num_files > 1:
        raise ApiError("invalid_value", f"{files.num_files} files were sent; send one, as the part named file", "file")
    if files.num_files == 1 and files.field_name != "file":
        message = f"file is required; the file came as the part {echo(files.field_name)}"
        raise ApiError("missing_required_parameter", message, "file")
    if files.num_files == 0 and "file" in fields:
        raise ApiError("invalid_type", "file must be a file: a part with a filename", "file")
    if files.num_files == 0:
        raise ApiError("missing_required_parameter", "file is required: a part with a filename", "file")


class _Pieces(FileUploadHandler):
    """Keeps the content of the first file in memory. Further files are refused anyway."""

    chunk_size = CHUNK_BYTES

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.num_bytes = 0
        self.num_files = 0
        self.filename = ""
        self.is_cut_off = False

    def new_file(self, field_name: str, file_name: str, *args: Any, **kwargs: Any) -> None:
        self.num_files += 1
        self.field_name, self.filename = field_name, file_name

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        if self.num_files == 1:
            self.pieces.append(bytes(raw_data))
            self.num_bytes += len(raw_data)
        if self.num_bytes > settings.LIGHTCONE_HTTP_LIMITS.max_upload_bytes:
            raise upload_too_large()

    def file_complete(self, file_size: int) -> None:
        """Return None, as the file is not one of Django's uploads."""

    def upload_interrupted(self) -> None:
        self.is_cut_off = True


def _parse(body: bytes, content_type: str, handler: FileUploadHandler) -> QueryDict:
    # NOTE: the length is that of the body, as one that came in chunks has no header of it.
    meta = {"CONTENT_TYPE": content_type, "CONTENT_LENGTH": len(body)}
    try:
        fields, _ = MultiPartParser(meta, BytesIO(body), [handler], "utf-8").parse()
    except MultiPartParserError as error:
        raise ApiError("invalid_value", f"The multipart body cannot be read: {str(error)[:200]}", "file") from None
    except TypeError:
        # Python's reader of header parameters fails on continuations without numbers (`a; filename*=…; filename*0*=…`).
        raise ApiError("invalid_value", "The multipart body has a part whose headers cannot be read.", "file") from None
    except (SuspiciousOperation, RequestDataTooBig):
        raise ApiError("invalid_value", "The multipart body has too many parts; send file and purpose alone.") from None
    return fields


def upload_too_large() -> ApiError:
    limit = settings.LIGHTCONE_HTTP_LIMITS.max_upload_bytes
    return ApiError(
        "request_too_large", f"The file is larger than the limit of {limit} bytes; split it into several files.", "file"
    )


def _expires_after(fields: QueryDict) -> dict[str, Any] | None:
    named = {"anchor": fields.get("expires_after[anchor]"), "seconds": fields.get("expires_after[seconds]")}
    return named if any(value is not None for value in named.values()) else None


def _value(name: str, field: RequestField, value: Any) -> Any:
    return field_read(name, field.run_validation, empty if value is None else value)
