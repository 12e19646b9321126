"""How the audit log names organisations, projects, keys, members and users."""

from __future__ import annotations

from typing import Any

from chat.access.models import AdminKey, ApiKey, Membership, Org, Project, ServiceAccount
from chat.audit.services import Subject


def org_subject(org: Org) -> Subject:
    return Subject(org.pk, org.name, org.pk)


def project_subject(project: Project) -> Subject:
    return Subject(project.pk, project.name, project.org_id, project.pk)


def key_subject(key: ApiKey) -> Subject:
    return Subject(key.public_id, key.name, key.project.org_id, key.project_id)


def admin_key_subject(key: AdminKey) -> Subject:
    return Subject(key.public_id, key.name, key.org_id)


def service_account_subject(account: ServiceAccount) -> Subject:
    return Subject(account.pk, account.name, account.project.org_id, account.project_id)


def member_subject(membership: Membership) -> Subject:
    """Return how the audit log names a membership: by the person, in the organisation."""
    return Subject(membership.user_id, membership.user.get_username(), membership.org_id)


def user_subject(user: Any) -> Subject:
    return Subject(user.pk, user.get_username())
