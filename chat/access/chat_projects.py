"""The project that a person's chats count to: the one that the person chose, else the oldest that there is."""

from __future__ import annotations

from itertools import count
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from chat.access.memberships import orgs_lock
from chat.access.models import ChatProject, Org, Project
from chat.access.policy import standing_of
from chat.access.roles import Act, Reach
from chat.access.subjects import org_subject, project_subject, user_subject
from chat.audit.services import audit_record

DEFAULT_NAME = "Default"


def default_project() -> Project:
    """Return the oldest active project. Create it, with its organisation, if there is none."""
    project: Project | None = Project.objects.filter(archived_at=None).order_by("id").first()
    return project or _default_project_create()


@transaction.atomic
def _default_project_create() -> Project:
    org = Org.objects.order_by("id").first()
    if org is None:
        org = Org.objects.create(name=DEFAULT_NAME, is_operator=True)
        audit_record(action="org.create", on=org_subject(org), after={"name": org.name})
    return _active_project(org)


@transaction.atomic
def _active_project(org: Org) -> Project:
    """Return the oldest active project of an organisation. Create it if all are archived or gone."""
    orgs_lock(org_ids=[org.pk])
    found: Project | None = org.projects.filter(archived_at=None).order_by("id").first()
    if found is not None:
        return found
    taken = set(org.projects.values_list("name", flat=True))
    names = (f"{DEFAULT_NAME} {number}" if number > 1 else DEFAULT_NAME for number in count(1))
    project: Project = org.projects.create(name=next(name for name in names if name not in taken))
    audit_record(action="project.create", on=project_subject(project), after={"name": project.name, "org": org.name})
    return project


def chat_projects(*, user: Any) -> QuerySet[Project]:
    """Return the projects that a user may choose, by age: where the playground is open to the user, the user's own and
    those that the user manages. A superuser without a role may choose any.
    """
    standing = standing_of(user)
    projects = Project.objects.filter(archived_at=None).order_by("id")
    if not standing.chat_orgs:
        return projects if standing.owns_installation else projects.none()
    managed = set(standing.orgs(Act.PROJECTS_MANAGE, Reach.ORG)) & standing.chat_orgs
    return projects.filter(Q(org__in=standing.chat_orgs, pk__in=standing.project_ids) | Q(org__in=managed))


def chat_project(*, user: Any) -> Project:
    """Return the project that a user's chats count to.

    Without a choice it is the oldest of the user's own projects, else the oldest of an organisation in which the
    playground is open to the user, which gets one if it has none. Of a superuser without a role it is the oldest.
    """
    chosen: Project | None = chat_projects(user=user).filter(chosen_by__user=user).first()
    if chosen is not None:
        return chosen
    standing = standing_of(user)
    if not standing.chat_orgs:
        return default_project()
    open_projects = Project.objects.filter(org__in=standing.chat_orgs, archived_at=None).order_by("id")
    found: Project | None = open_projects.filter(pk__in=standing.project_ids).first() or open_projects.first()
    return found or _active_project(Org.objects.get(pk=min(standing.chat_orgs)))


def chat_project_choose(*, user: Any, project_id: int) -> Project:
    """Have a user's chats count to a project from now on. Raises ValidationError if the user may not choose it."""
    with transaction.atomic():
        project: Project | None = chat_projects(user=user).filter(pk=project_id).first()
        if project is None:
            raise ValidationError(_("Your chats cannot count to this project: choose one that the list has."))
        before = chat_project(user=user)
        ChatProject.objects.update_or_create(user=user, defaults={"project": project})
        audit_record(
            action="user.chat_project",
            on=user_subject(user),
            before={"project": str(before)},
            after={"project": str(project)},
        )
    return project
