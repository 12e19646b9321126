"""The tables. Writes go through chat.services, reads through chat.selectors."""

from chat.models.access import ApiKey, ApiKeySecret, Org, Project
from chat.models.catalogue import ServedModel
from chat.models.stored import StoredAnswer
from chat.models.usage import RequestLog, UsageHour

__all__ = ["ApiKey", "ApiKeySecret", "Org", "Project", "RequestLog", "ServedModel", "StoredAnswer", "UsageHour"]
