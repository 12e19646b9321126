"""The pages of the console: importing the `admin` of each room registers its pages with Django's admin site."""

from chat.access.admin import audit, keys, members, organisations, users
from chat.api.request.schema import sampling_defaults_read
from chat.batches import admin as batches
from chat.catalog import admin as catalog
from chat.live import pages as live
from chat.model_jobs import admin as model_jobs
from chat.system import pages as system
from chat.usage import admin as usage
from chat.workers import fit

catalog.ServedModelForm.read_sampling_defaults = staticmethod(sampling_defaults_read)

__all__ = [
    "audit",
    "batches",
    "catalog",
    "fit",
    "keys",
    "live",
    "members",
    "model_jobs",
    "organisations",
    "system",
    "usage",
    "users",
]
