"""The pages of the console: importing the `admin` of each room registers its pages with Django's admin site."""

from chat.access.admin import (
    admin_keys,
    audit,
    invitations,
    keys,
    mail,
    members,
    organisations,
    service_accounts,
    users,
)
from chat.alerts import admin as alerts
from chat.alerts import channel_admin as alert_channels
from chat.api.request.schema import sampling_defaults_read
from chat.batches import admin as batches
from chat.budgets import admin as budgets
from chat.catalog import admin as catalog
from chat.catalog import price_admin as prices
from chat.live import pages as live
from chat.model_jobs import admin as model_jobs
from chat.system import pages as system
from chat.usage import log_admin as requests
from chat.usage import page as usage
from chat.workers import fit_page as fit

catalog.ServedModelForm.read_sampling_defaults = staticmethod(sampling_defaults_read)

__all__ = [
    "alert_channels",
    "alerts",
    "admin_keys",
    "audit",
    "batches",
    "budgets",
    "catalog",
    "fit",
    "invitations",
    "keys",
    "live",
    "mail",
    "members",
    "model_jobs",
    "organisations",
    "prices",
    "requests",
    "service_accounts",
    "system",
    "usage",
    "users",
]
