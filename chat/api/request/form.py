"""Read a `multipart/form-data` body: its fields as texts, and its one file. The HTTP server enforces the size."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Any

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.core.files.uploadhandler import FileUploadHandler
from django.http.multipartparser import MultiPartParser, MultiPartParserError

from chat.api.request.fields import echo
from chat.errors import ApiError

FORM = "multipart/form-data"


@dataclass(frozen=True, slots=True)
class SentFile:
    """The file of a form."""

    name: str
    data: bytes


class FileInMemory(FileUploadHandler):
    """Keeps the first file. Further ones are refused anyway."""

    chunk_size = 1 << 20

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.names: list[str] = []
        self.file_name = ""
        self.is_cut_off = False

    def new_file(self, field_name: str, file_name: str, *args: Any, **kwargs: Any) -> None:
        self.names.append(field_name)
        self.file_name = self.file_name or file_name

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        if len(self.names) == 1:
            self.pieces.append(bytes(raw_data))

    def file_complete(self, file_size: int) -> None:
        """Return None, as the file is not one of Django's uploads."""

    def upload_interrupted(self) -> None:
        self.is_cut_off = True


def form_read(body: bytes, *, content_type: str, arrays: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of a form by name, and its file as `file`. Raises ApiError.

    Only `arrays`, whose names end in [], may come several times.
    """
    if content_type.partition(";")[0].strip().lower() != FORM:
        raise ApiError("invalid_content_type", f"The Content-Type header must be {FORM}, with a part named file.")
    files = FileInMemory()
    meta = {"CONTENT_TYPE": content_type, "CONTENT_LENGTH": len(body)}
    try:
        sent, _ = MultiPartParser(meta, BytesIO(body), [files], "utf-8").parse()
    except MultiPartParserError as error:
        raise ApiError("invalid_value", f"The multipart body cannot be read: {str(error)[:200]}", "file") from None
    except TypeError:
        # Python's reader of header parameters fails on continuations without numbers (`a; filename*=…; filename*0*=…`).
        raise ApiError("invalid_value", "The multipart body has a part whose headers cannot be read.", "file") from None
    except (SuspiciousOperation, RequestDataTooBig):
        message = "The multipart body has too many or too large fields; send the file and short fields alone."
        raise ApiError("invalid_value", message) from None
    if files.is_cut_off:
        raise ApiError("invalid_value", "The multipart body ends before its last boundary.", "file")
    if len(files.names) > 1:
        raise ApiError("invalid_value", f"{len(files.names)} files were sent; send one, as the part named file", "file")
    fields: dict[str, Any] = {}
    for name in sent:
        values = sent.getlist(name)
        bare = name.removesuffix("[]")
        if bare in arrays:
            fields.setdefault(bare, []).extend(values)
        elif len(values) > 1:
            raise ApiError("invalid_value", f"{name[:200]} was sent {len(values)} times; send it once", name[:200])
        else:
            fields[name] = values[0]
    if files.names and files.names != ["file"]:
        message = f"file is required; the file came as the part {echo(files.names[0])}"
        raise ApiError("missing_required_parameter", message, "file")
    if files.names:
        fields["file"] = SentFile(files.file_name, b"".join(files.pieces))
    return fields
