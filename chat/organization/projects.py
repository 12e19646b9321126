"""The routes of projects and of the people in them."""

from __future__ import annotations

from typing import Any

from chat.access.active_projects import check_active
from chat.access.models import Membership, Project
from chat.access.projects import project_archive, project_create, project_join, project_leave, project_rename
from chat.access.roles import Act, Reach, Role, role_reach
from chat.api.queries import query_boolean
from chat.api.request.fields import bad_value
from chat.errors import ApiError
from chat.organization.bodies import ProjectCreate, ProjectModify, ProjectUserAdd, ProjectUserModify
from chat.organization.frame import (
    PAGING,
    PROJECT,
    USER,
    Asked,
    Does,
    admin_view,
    deleted,
    each,
    id_read,
    missing,
    page_answer,
    unix_seconds,
)

USER_KIND = "organization.project.user"


def projects_list(asked: Asked) -> dict[str, Any]:
    rows = Project.objects.filter(org=asked.org)
    if not query_boolean(asked.request, "include_archived"):
        rows = rows.filter(archived_at=None)
    return page_answer(asked, rows, each(project_object), prefix=PROJECT)


def project_make(asked: Asked) -> dict[str, Any]:
    return project_object(project_create(org=asked.org, name=asked.values["name"], actor=asked.person))


def project_retrieve(asked: Asked, project_id: str) -> dict[str, Any]:
    return project_object(project_found(asked, project_id))


def project_modify(asked: Asked, project_id: str) -> dict[str, Any]:
    project = project_found(asked, project_id)
    project_rename(project=project, name=asked.values["name"], actor=asked.person)
    return project_object(project)


def project_put_away(asked: Asked, project_id: str) -> dict[str, Any]:
    project = project_found(asked, project_id)
    project_archive(project=project, actor=asked.person)
    return project_object(project)


def project_found(asked: Asked, project_id: str) -> Project:
    """Return a project of the organisation. Raises ApiError 404."""
    found: Project | None = Project.objects.filter(org=asked.org, pk=id_read(PROJECT, project_id)).first()
    if found is None:
        raise missing("project", project_id, "projects")
    found.org = asked.org
    return found


def project_object(project: Project) -> dict[str, Any]:
    return {
        "id": f"{PROJECT}{project.pk}",
        "object": "organization.project",
        "name": project.name,
        "created_at": unix_seconds(project.created_at),
        "archived_at": unix_seconds(project.archived_at),
        "status": "archived" if project.archived_at else "active",
    }


# The people of a project.


def users_list(asked: Asked, project_id: str) -> dict[str, Any]:
    rows = _members(asked, project_found(asked, project_id))
    return page_answer(asked, rows, each(user_object), prefix=USER, column="user_id")


def user_add(asked: Asked, project_id: str) -> dict[str, Any]:
    project = project_found(asked, project_id)
    check_active(project)
    membership = _named(asked)
    _role_check(membership, asked.values["role"])
    project_join(project=project, user=membership.user)
    return user_object(membership)


def user_retrieve(asked: Asked, project_id: str, user_id: str) -> dict[str, Any]:
    return user_object(_member(asked, project_found(asked, project_id), user_id))


def user_modify(asked: Asked, project_id: str, user_id: str) -> dict[str, Any]:
    """Answer as OpenAI does where the role is the one that the person has: projects have no roles of their own."""
    membership = _member(asked, project_found(asked, project_id), user_id)
    _role_check(membership, asked.values["role"])
    return user_object(membership)


def user_remove(asked: Asked, project_id: str, user_id: str) -> dict[str, Any]:
    project = project_found(asked, project_id)
    project_leave(project=project, user=_member(asked, project, user_id).user)
    return deleted(USER_KIND, user_id)


def _members(asked: Asked, project: Project) -> Any:
    people = project.members.values("pk")
    return Membership.objects.filter(org=asked.org, user__in=people).select_related("user")


def _member(asked: Asked, project: Project, user_id: str) -> Membership:
    found: Membership | None = _members(asked, project).filter(user=id_read(USER, user_id)).first()
    if found is None:
        raise missing("member of this project", user_id, f"projects/{PROJECT}{project.pk}/users")
    return found


def _named(asked: Asked) -> Membership:
    """Return the member of the organisation whom a body names."""
    user_id, email = asked.values.get("user_id"), asked.values.get("email")
    if bool(user_id) == bool(email):
        raise ApiError("missing_required_parameter", "user_id or email is required, one of the two.", "user_id")
    people = Membership.objects.filter(org=asked.org).select_related("user")
    if user_id:
        found = people.filter(user=id_read(USER, user_id)).first()
    else:
        some = list(people.filter(user__email__iexact=email)[:2])
        if len(some) > 1:
            raise bad_value("email", "is that of several people: send user_id")
        found = some[0] if some else None
    if found is None:
        name = "user_id" if user_id else "email"
        text = "is no member of the organisation: invite the person first (POST /v1/organization/invites)"
        raise bad_value(name, text)
    return found


def project_role(role: str) -> str:
    """Return the role in each project that a role in the organisation comes to."""
    return "owner" if role_reach(Role(role), Act.PROJECTS_MANAGE) == Reach.ORG else "member"


def _role_check(membership: Membership, role: str) -> None:
    if role != project_role(membership.role):
        text = (
            f"cannot be {role} for somebody who is {membership.role} in the organisation: owners and admins manage "
            f"every project, others none; POST /v1/organization/users/{USER}{membership.user_id} changes the role"
        )
        raise bad_value("role", text)


def user_object(membership: Membership) -> dict[str, Any]:
    """Return a member of a project. `added_at`: since when the person is in the organisation."""
    user = membership.user
    return {
        "id": f"{USER}{user.pk}",
        "object": USER_KIND,
        "name": user.get_full_name() or user.get_username(),
        "email": user.email,
        "role": project_role(membership.role),
        "added_at": unix_seconds(membership.created_at),
    }


SEE, MANAGE = Act.PROJECTS_SEE, Act.PROJECTS_MANAGE
projects = admin_view(
    get=Does(projects_list, SEE, query=(*PAGING, "include_archived")), post=Does(project_make, MANAGE, ProjectCreate())
)
project = admin_view(get=Does(project_retrieve, SEE), post=Does(project_modify, MANAGE, ProjectModify()))
archive = admin_view(post=Does(project_put_away, MANAGE))
users = admin_view(get=Does(users_list, Act.PEOPLE_SEE, query=PAGING), post=Does(user_add, MANAGE, ProjectUserAdd()))
user = admin_view(
    get=Does(user_retrieve, Act.PEOPLE_SEE),
    post=Does(user_modify, MANAGE, ProjectUserModify()),
    delete=Does(user_remove, MANAGE),
)
