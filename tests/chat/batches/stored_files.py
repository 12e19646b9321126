"""Write and read whole files; production does so in pieces."""

from __future__ import annotations

from chat.batches.files import FileAbout, file_begin
from chat.models import FileChunk, ProjectFile


def file_create(*, about: FileAbout, content: bytes) -> ProjectFile:
    """Store a whole upload."""
    writer = file_begin(about=about, num_bytes=len(content))
    writer.write(content)
    return writer.finish()


def file_chunks(file: ProjectFile) -> list[bytes]:
    """Return the content by chunks."""
    return [bytes(chunk) for chunk in FileChunk.objects.filter(file=file).values_list("content", flat=True)]
