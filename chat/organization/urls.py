"""Under /v1/organization alone, with and without a trailing slash."""

from django.urls import re_path

from chat.organization import admin_keys, people, projects
from chat.organization.frame import unknown

ROOT = r"^v1/organization"
PROJECT = rf"{ROOT}/projects/(?P<project_id>[^/]+)"

urlpatterns = [
    re_path(rf"{ROOT}/admin_api_keys/?\Z", admin_keys.admin_keys, name="organization_admin_keys"),
    re_path(rf"{ROOT}/admin_api_keys/(?P<key_id>[^/]+)/?\Z", admin_keys.admin_key, name="organization_admin_key"),
    re_path(rf"{ROOT}/projects/?\Z", projects.projects, name="organization_projects"),
    re_path(rf"{PROJECT}/?\Z", projects.project, name="organization_project"),
    re_path(rf"{PROJECT}/archive/?\Z", projects.archive, name="organization_project_archive"),
    re_path(rf"{PROJECT}/users/?\Z", projects.users, name="organization_project_users"),
    re_path(rf"{PROJECT}/users/(?P<user_id>[^/]+)/?\Z", projects.user, name="organization_project_user"),
    re_path(rf"{ROOT}/users/?\Z", people.users, name="organization_users"),
    re_path(rf"{ROOT}/users/(?P<user_id>[^/]+)/?\Z", people.user, name="organization_user"),
    re_path(rf"{ROOT}(?:/.*)?\Z", unknown),
]
