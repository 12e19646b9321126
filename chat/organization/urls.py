"""Under /v1/organization alone, with and without a trailing slash."""

from django.urls import re_path

from chat.organization import (
    admin_keys,
    audit_logs,
    invites,
    people,
    project_keys,
    projects,
    rate_limits,
    service_accounts,
    usage,
)
from chat.organization.frame import unknown

ROOT = r"^v1/organization"
PROJECT = rf"{ROOT}/projects/(?P<project_id>[^/]+)"
ACCOUNT = rf"{PROJECT}/service_accounts/(?P<account_id>[^/]+)"

urlpatterns = [
    re_path(rf"{ROOT}/admin_api_keys/?\Z", admin_keys.admin_keys, name="organization_admin_keys"),
    re_path(rf"{ROOT}/admin_api_keys/(?P<key_id>[^/]+)/?\Z", admin_keys.admin_key, name="organization_admin_key"),
    re_path(rf"{ROOT}/projects/?\Z", projects.projects, name="organization_projects"),
    re_path(rf"{PROJECT}/?\Z", projects.project, name="organization_project"),
    re_path(rf"{PROJECT}/archive/?\Z", projects.archive, name="organization_project_archive"),
    re_path(rf"{PROJECT}/users/?\Z", projects.users, name="organization_project_users"),
    re_path(rf"{PROJECT}/users/(?P<user_id>[^/]+)/?\Z", projects.user, name="organization_project_user"),
    re_path(rf"{PROJECT}/service_accounts/?\Z", service_accounts.accounts, name="organization_service_accounts"),
    re_path(rf"{ACCOUNT}/?\Z", service_accounts.account, name="organization_service_account"),
    re_path(rf"{ACCOUNT}/api_keys/?\Z", service_accounts.account_keys, name="organization_service_account_keys"),
    re_path(rf"{PROJECT}/api_keys/?\Z", project_keys.keys, name="organization_project_keys"),
    re_path(rf"{PROJECT}/api_keys/(?P<key_id>[^/]+)/?\Z", project_keys.key, name="organization_project_key"),
    re_path(rf"{PROJECT}/rate_limits/?\Z", rate_limits.rate_limits, name="organization_rate_limits"),
    re_path(
        rf"{PROJECT}/rate_limits/(?P<rate_limit_id>[^/]+)/?\Z", rate_limits.rate_limit, name="organization_rate_limit"
    ),
    re_path(rf"{ROOT}/audit_logs/?\Z", audit_logs.audit_logs, name="organization_audit_logs"),
    re_path(rf"{ROOT}/usage/completions/?\Z", usage.usage_completions, name="organization_usage_completions"),
    re_path(rf"{ROOT}/usage/embeddings/?\Z", usage.usage_embeddings, name="organization_usage_embeddings"),
    re_path(
        rf"{ROOT}/usage/audio_transcriptions/?\Z", usage.usage_transcriptions, name="organization_usage_transcriptions"
    ),
    re_path(rf"{ROOT}/costs/?\Z", usage.organization_costs, name="organization_costs"),
    re_path(rf"{ROOT}/invites/?\Z", invites.invites, name="organization_invites"),
    re_path(rf"{ROOT}/invites/(?P<invite_id>[^/]+)/?\Z", invites.invite, name="organization_invite"),
    re_path(rf"{ROOT}/users/?\Z", people.users, name="organization_users"),
    re_path(rf"{ROOT}/users/(?P<user_id>[^/]+)/?\Z", people.user, name="organization_user"),
    re_path(rf"{ROOT}(?:/.*)?\Z", unknown),
]
