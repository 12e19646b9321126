"""Projects: make, rename, archive, restore, delete, limit, and let people in and out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from chat.access.active_projects import check_active
from chat.access.configuration import configuration_touch
from chat.access.keys import keys_settle
from chat.access.memberships import orgs_lock
from chat.access.models import Org, Project
from chat.access.policy import may
from chat.access.roles import Act, Reach
from chat.access.subjects import project_subject
from chat.audit.services import audit_record
from chat.audit.values import row_values


def project_create(*, org: Org, name: str, actor: User) -> Project:
    """Make a project. Raises PermissionDenied, or ValidationError for a name that is bad or taken."""
    _check_may(actor, Act.PROJECTS_MANAGE, org)
    project = Project(org=org, name=name)
    project.full_clean()
    with transaction.atomic():
        project.save()
        audit_record(action="project.create", on=project_subject(project), after={"name": name, "org": org.name})
    return project


def project_rename(*, project: Project, name: str, actor: User) -> None:
    """Give a project another name. Raises PermissionDenied, or ValidationError also for an archived one."""
    _check_may(actor, Act.PROJECTS_MANAGE, project.org)
    check_active(project)
    before = {"name": project.name}
    project.name = name
    project.full_clean()
    with transaction.atomic():
        project.save(update_fields=["name"])
        audit_record(action="project.change", on=project_subject(project), before=before, after={"name": name})
        configuration_touch()


def project_archive(*, project: Project, actor: User) -> None:
    """Refuse the keys of a project from now on, and let nothing new be made in it. Its history stays.

    Raises PermissionDenied, or ValidationError for the last project of an organisation: chats count to one.
    """
    _check_may(actor, Act.PROJECTS_MANAGE, project.org)
    with transaction.atomic():
        orgs_lock(org_ids=[project.org_id])
        _check_another(project)
        now = timezone.now()
        if Project.objects.filter(pk=project.pk, archived_at=None).update(archived_at=now):
            project.archived_at = now
            audit_record(action="project.archive", on=project_subject(project))
            configuration_touch()


def project_restore(*, project: Project, actor: User) -> None:
    """Accept the keys of an archived project again. Raises PermissionDenied."""
    _check_may(actor, Act.PROJECTS_MANAGE, project.org)
    with transaction.atomic():
        if Project.objects.filter(pk=project.pk).exclude(archived_at=None).update(archived_at=None):
            project.archived_at = None
            audit_record(action="project.restore", on=project_subject(project))
            configuration_touch()


def project_delete(*, project: Project, actor: User) -> None:
    """Delete a project without keys. Raises PermissionDenied.

    Raises ValidationError for the last active project of an organisation that has people: their chats count to it.
    """
    _check_may(actor, Act.PROJECTS_MANAGE, project.org)
    with transaction.atomic():
        orgs_lock(org_ids=[project.org_id])
        if project.org.memberships.exists() and not Project.objects.get(pk=project.pk).archived_at:
            _check_another(project)
        names = [field.attname for field in project._meta.concrete_fields if not field.primary_key]
        audit_record(action="project.delete", on=project_subject(project), before=row_values(project, names))
        project.delete()
        configuration_touch()


def project_limit(*, project: Project, limits: Mapping[str, int | None], actor: User) -> None:
    """Set some of the limits of a project; None lifts one. Raises PermissionDenied and ValidationError."""
    _check_may(actor, Act.LIMITS_MANAGE, project.org)
    check_active(project)
    before = row_values(project, limits)
    for name, limit in limits.items():
        setattr(project, name, limit)
    project.full_clean()
    with transaction.atomic():
        project.save(update_fields=list(limits))
        audit_record(action="project.change", on=project_subject(project), before=before, after=dict(limits))
        configuration_touch()


def project_join(*, project: Project, user: User) -> None:
    """Make somebody a member of a project, who may be one already. Raises ValidationError for people of others."""
    if not project.org.memberships.filter(user=user).exists():
        refusal = _("%(user)s is no member of %(org)s: add the person to the organisation first.")
        raise ValidationError(refusal % {"user": user, "org": project.org})
    with transaction.atomic():
        members = _names(project)
        if user.get_username() in members:
            return
        project.members.add(user)
        _members_record(project, members)


def project_leave(*, project: Project, user: User) -> None:
    """Take somebody out of a project; the person's keys in it are disabled, unless the role gives them anyway."""
    with transaction.atomic():
        members = _names(project)
        if user.get_username() not in members:
            return
        project.members.remove(user)
        _members_record(project, members)
        keys_settle(owner=user)
        configuration_touch()


def _check_another(project: Project) -> None:
    """Raise ValidationError unless the organisation has another active project. The caller has locked it."""
    if not project.org.projects.filter(archived_at=None).exclude(pk=project.pk).exists():
        raise ValidationError(
            _("This is the only active project of %(org)s: make another one first.") % {"org": project.org}
        )


def _check_may(actor: Any, act: Act, org: Org) -> None:
    if not may(actor, act, org_id=org.pk, least=Reach.ORG):
        raise PermissionDenied(_("Your role in %(org)s does not let you do that.") % {"org": org})


def _names(project: Project) -> list[str]:
    return list(project.members.order_by("username").values_list("username", flat=True))


def _members_record(project: Project, before: list[str]) -> None:
    """Record who is a member now, and who was."""
    audit_record(
        action="project.change",
        on=project_subject(project),
        before={"members": before},
        after={"members": _names(project)},
    )
