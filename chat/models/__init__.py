"""The tables. Writes go through chat.services, reads through chat.selectors."""

from chat.models.access import ApiKey, ApiKeySecret, Org, Project
from chat.models.batches import Batch, BatchResult
from chat.models.catalogue import ServedModel
from chat.models.files import FileChunk, ProjectFile
from chat.models.stored import StoredAnswer
from chat.models.usage import RequestLog, UsageHour

__all__ = [
    "ApiKey",
    "ApiKeySecret",
    "Batch",
    "BatchResult",
    "FileChunk",
    "Org",
    "Project",
    "ProjectFile",
    "RequestLog",
    "ServedModel",
    "StoredAnswer",
    "UsageHour",
]
