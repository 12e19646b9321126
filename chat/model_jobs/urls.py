"""Under /v1/admin alone, with and without a trailing slash. Acts are POST, so a model may have the name of one."""

from django.urls import re_path

from chat.model_jobs import names, views

urlpatterns = [
    re_path(r"^v1/admin/adapters/?\Z", names.adapters, name="adapters"),
    re_path(r"^v1/admin/adapters/(?P<name>.+?)/?\Z", names.adapter, name="adapter"),
    re_path(r"^v1/admin/aliases/?\Z", names.aliases, name="weighted_aliases"),
    re_path(r"^v1/admin/aliases/(?P<name>.+?)/?\Z", names.alias, name="weighted_alias"),
    re_path(r"^v1/admin/jobs/?\Z", views.all_jobs, name="model_jobs"),
    re_path(r"^v1/admin/jobs/(?P<job_id>[^/]+)/?\Z", views.job, name="model_job"),
    re_path(r"^v1/admin/models/?\Z", views.models, name="admin_models"),
    re_path(r"^v1/admin/models/(?P<name>.+?)/?\Z", views.model, name="admin_model"),
]
