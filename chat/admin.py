"""The pages of the console: importing the `admin` of each room registers its pages with Django's admin site."""

from chat.access.admin import keys, organisations, users
from chat.api.request.schema import sampling_defaults_read
from chat.batches.admin import batches, files
from chat.catalog import admin as catalog
from chat.usage.admin import request_log, usage_hours

catalog.ServedModelForm.read_sampling_defaults = staticmethod(sampling_defaults_read)

__all__ = ["batches", "catalog", "files", "keys", "organisations", "request_log", "usage_hours", "users"]
