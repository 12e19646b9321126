"""Turn documents and search results into parts of a message. Nothing is decoded or fetched here."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.conf import settings

from chat.api.request.fields import echo
from chat.errors import Problems

Part = dict[str, Any]
UNNAMED = "document"
MEDIA_TYPE = re.compile(
    r"application/(?:pdf|json|vnd\.openxmlformats-officedocument\."
    r"(?:wordprocessingml\.document|spreadsheetml\.sheet|presentationml\.presentation))|text/[a-z0-9.+-]{1,60}",
    re.ASCII,
)


class DocumentReader:
    """A reader of such blocks. `text_blocks(blocks, path)` returns the texts of a list of text blocks."""

    def __init__(self, problems: Problems, text_blocks: Callable[[Any, str], list[str]]) -> None:
        self._problems = problems
        self._text_blocks = text_blocks

    def document(self, block: dict[str, Any], path: str) -> list[Part]:
        """Return the parts of a document: its context, then its text, or the file for the worker to read.

        `detail` is an extension: how closely a model that sees is shown the pages of a PDF.
        """
        self._check_citations(block, path)
        title = self._label(block, "title", path)
        context = self._label(block, "context", path, is_short=False)
        source = block.get("source")
        if not isinstance(source, dict):
            self._problems.refuse(f"{path}.source", f"must be an object, got {echo(source)}", "invalid_type")
            return []
        parts = [text_part(f"Context of the document below: {context}")] if context else []
        for part in self._source(source, f"{path}.source", title):
            if part["type"] == "file" and block.get("detail") is not None:
                part["file"]["detail"] = block["detail"]
            parts.append(part)
        return parts

    def search_result(self, block: dict[str, Any], path: str) -> list[Part]:
        """Return the part of a result of the client's own search: its source, then its text."""
        self._check_citations(block, path)
        title, source = (self._label(block, name, path, is_required=True) for name in ("title", "source"))
        texts = self._text_blocks(block.get("content"), f"{path}.content")
        return [text_part("\n".join((f"Search result: {title}", f"Source: {source}", *texts)))]

    def _source(self, source: dict[str, Any], path: str, given_title: str | None) -> list[Part]:
        kind, title = source.get("type"), given_title or UNNAMED
        if kind == "text":
            data = source.get("data")
            if isinstance(data, str):
                return [text_part(f"File: {title}\n{data}")]
            self._problems.refuse(f"{path}.data", f"must be a string, got {echo(data)}", "invalid_type")
        elif kind == "content":
            content = source.get("content")
            texts = [content] if isinstance(content, str) else self._text_blocks(content, f"{path}.content")
            return [text_part("\n".join((f"File: {title}", *texts)))]
        elif kind == "base64":
            return self._file(source, path, title)
        elif kind == "file":
            return self._kept_file(source, path, given_title)
        elif kind == "url":
            url = source.get("url")
            if isinstance(url, str) and url:
                return [{"type": "file", "file": {"file_url": url, "filename": given_title}}]
            code = "invalid_value" if url == "" else "invalid_type"
            self._problems.refuse(f"{path}.url", f"must be the address of a PDF, got {echo(url)}", code)
        else:
            self._problems.refuse(f"{path}.type", f"must be one of base64, text, content, file, url; got {echo(kind)}")
        return []

    def _kept_file(self, source: dict[str, Any], path: str, title: str | None) -> list[Part]:
        """Return the part of a file that the project keeps, under its own name if the document has no title."""
        file_id = file_id_read(source, path, self._problems)
        return [] if file_id is None else [{"type": "file", "file": {"file_id": file_id, "filename": title}}]

    def _file(self, source: dict[str, Any], path: str, title: str) -> list[Part]:
        media_type, data = source.get("media_type"), source.get("data")
        if not isinstance(media_type, str) or not MEDIA_TYPE.fullmatch(media_type):
            known = "application/pdf, text/plain or another type of text, or that of DOCX, XLSX or PPTX"
            self._problems.refuse(f"{path}.media_type", f"must be {known}; got {echo(media_type)}")
            return []
        if not isinstance(data, str) or not data:
            code = "invalid_value" if data == "" else "invalid_type"
            self._problems.refuse(f"{path}.data", f"must be the content in base64, got {echo(data)}", code)
            return []
        return [{"type": "file", "file": {"file_data": f"data:{media_type};base64,{data}", "filename": title}}]

    def _label(
        self, block: dict[str, Any], name: str, path: str, *, is_short: bool = True, is_required: bool = False
    ) -> str | None:
        value = block.get(name)
        limit = settings.LIGHTCONE_LIMITS.max_label_chars
        if value is None and is_required:
            self._problems.refuse(f"{path}.{name}", "is required", "missing_required_parameter")
        elif not isinstance(value, str | None):
            self._problems.refuse(f"{path}.{name}", f"must be a string, got {echo(value)}", "invalid_type")
        elif value is not None and is_short and (len(value) > limit or not value.isprintable()):
            self._problems.refuse(f"{path}.{name}", f"must have at most {limit} printable characters")
        else:
            return value
        return None

    def _check_citations(self, block: dict[str, Any], path: str) -> None:
        citations = block.get("citations")
        if isinstance(citations, dict) and citations.get("enabled"):
            message = "cannot be enabled: this server's models do not cite; leave it out"
            self._problems.refuse(f"{path}.citations", message, "unsupported_parameter")


def file_id_read(source: dict[str, Any], path: str, problems: Problems) -> str | None:
    """Return the id of a source that names a file; None after a problem."""
    file_id = source.get("file_id")
    if isinstance(file_id, str) and file_id:
        return file_id
    code = "invalid_value" if file_id == "" else "invalid_type"
    problems.refuse(f"{path}.file_id", f"must be the id of a file, got {echo(file_id)}", code)
    return None


def text_part(text: str) -> Part:
    return {"type": "text", "text": text}
