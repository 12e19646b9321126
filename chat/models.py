"""All tables, as Django finds them. Each room has its own `models`; writes go through the services of the room."""

from chat.access.models import (
    AdminKey,
    ApiKey,
    ApiKeySecret,
    ChatProject,
    Invitation,
    Membership,
    Org,
    Project,
    ServiceAccount,
)
from chat.alerts.models import Alert, AlertChannel, AlertDelivery, AlertRule
from chat.api.stored.models import StoredAnswer
from chat.audit.models import AuditEntry
from chat.batches.models import Batch, BatchResult, FileChunk, ProjectFile
from chat.budgets.models import Budget, BudgetSpend
from chat.catalog.models import ModelAdapter, ModelPrice, ServedModel, WeightedAlias
from chat.console.collected import names_translate
from chat.conversations.models import (
    ChatFile,
    ChatFileUse,
    ChatSpace,
    Conversation,
    Draft,
    SearchFacet,
    SearchText,
    ShareLink,
    Turn,
)
from chat.model_jobs.models import ModelJob
from chat.playground.models import PageState, Preset
from chat.usage.models import RequestLog, RequestText, UsageSum, UsageTotal

__all__ = [
    "AdminKey",
    "Alert",
    "AlertChannel",
    "AlertDelivery",
    "AlertRule",
    "ApiKey",
    "ApiKeySecret",
    "AuditEntry",
    "Batch",
    "BatchResult",
    "Budget",
    "ChatFile",
    "ChatFileUse",
    "ChatProject",
    "BudgetSpend",
    "ChatSpace",
    "Conversation",
    "Draft",
    "FileChunk",
    "Invitation",
    "Membership",
    "ModelAdapter",
    "ModelJob",
    "ModelPrice",
    "Org",
    "PageState",
    "Preset",
    "Project",
    "ProjectFile",
    "RequestLog",
    "RequestText",
    "SearchFacet",
    "SearchText",
    "ServedModel",
    "ServiceAccount",
    "ShareLink",
    "StoredAnswer",
    "Turn",
    "UsageSum",
    "UsageTotal",
    "WeightedAlias",
]

names_translate(globals()[name] for name in __all__)
