"""The routes of invitations. A server without mail invites by the link, which the answer of the first request shows."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.urls import reverse
from django.utils import timezone

from chat.access.invitations import Invited, invitation_create, invitation_revoke, invitation_send, revocable
from chat.access.mail import MailFailed, mail_is_set_up
from chat.access.models import Invitation, Project
from chat.access.roles import Act
from chat.api.request.fields import bad_value, echo
from chat.errors import ApiError
from chat.organization.bodies import ROLES, InviteCreate
from chat.organization.frame import (
    INVITE,
    PAGING,
    PROJECT,
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
from chat.organization.projects import project_role

KIND = "organization.invite"


def invites_list(asked: Asked) -> dict[str, Any]:
    return page_answer(asked, _invitations(asked), each(invite_object), prefix=INVITE)


def invite_create(asked: Asked) -> dict[str, Any]:
    """Make an invitation, and send it if the server sends mail. Its link is in this answer alone."""
    email, role = asked.values["email"], ROLES[asked.values["role"]]
    try:
        validate_email(email)
    except ValidationError:
        raise bad_value("email", f"must be an e-mail address, got {echo(email)}") from None
    to = Invited(org=asked.org, role=role, email=email, projects=_projects(asked, role))
    invitation, secret = invitation_create(actor=asked.person, to=to)
    link = asked.request.build_absolute_uri(reverse("invitation", args=[secret]))
    return invite_object(invitation) | {"link": link, "mail_error": _sent(invitation, link)}


def _sent(invitation: Invitation, link: str) -> str | None:
    """Send the link, and return why it was not sent; None if it was."""
    if not mail_is_set_up():
        return "This server sends no mail: hand the link over."
    try:
        invitation_send(invitation=invitation, link=link)
    except MailFailed as error:
        return f"The mail could not be sent: {error}"
    return None


def _projects(asked: Asked, role: str) -> tuple[Project, ...]:
    found, sent = [], asked.values.get("projects") or ()
    ids = [id_ for one in sent if (id_ := id_read(PROJECT, one["id"])) is not None]
    projects = Project.objects.filter(org=asked.org, archived_at=None).in_bulk(ids)
    for index, one in enumerate(sent):
        project = projects.get(id_read(PROJECT, one["id"]))
        if project is None:
            raise bad_value(f"projects.{index}.id", f"is no active project here, got {echo(one['id'])}")
        if one["role"] != project_role(role):
            text = f"must be {project_role(role)} for somebody who is {role} in the organisation"
            raise bad_value(f"projects.{index}.role", text)
        found.append(project)
    return tuple(found)


def invite_retrieve(asked: Asked, invite_id: str) -> dict[str, Any]:
    return invite_object(_invitation(asked, invite_id))


def invite_delete(asked: Asked, invite_id: str) -> dict[str, Any]:
    invitation = _invitation(asked, invite_id)
    if invitation.accepted_at:
        raise ApiError("conflict", f"{invite_id} has been accepted: take the person out of the organisation instead.")
    if invitation.is_open and not revocable([invitation], actor=asked.person):
        raise ApiError("permission_denied", f"The role of {asked.person.get_username()} does not give this one's.")
    invitation_revoke(invitation=invitation)
    return deleted(KIND, invite_id)


def _invitations(asked: Asked) -> Any:
    rows = Invitation.objects.filter(org=asked.org, revoked_at=None)
    return rows.select_related("org", "created_by").prefetch_related("projects")


def _invitation(asked: Asked, invite_id: str) -> Invitation:
    found: Invitation | None = _invitations(asked).filter(pk=id_read(INVITE, invite_id)).first()
    if found is None:
        raise missing("invitation", invite_id, "invites")
    return found


def invite_object(invitation: Invitation) -> dict[str, Any]:
    status = "expired" if invitation.expires_at <= timezone.now() else "pending"
    role = project_role(invitation.role)
    return {
        "id": f"{INVITE}{invitation.pk}",
        "object": KIND,
        "email": invitation.email,
        "role": invitation.role,
        "status": "accepted" if invitation.accepted_at else status,
        "created_at": unix_seconds(invitation.created_at),
        "expires_at": unix_seconds(invitation.expires_at),
        "accepted_at": unix_seconds(invitation.accepted_at),
        "projects": [{"id": f"{PROJECT}{project.pk}", "role": role} for project in invitation.projects.all()],
    }


invites = admin_view(
    get=Does(invites_list, Act.PEOPLE_SEE, query=PAGING),
    post=Does(invite_create, Act.PEOPLE_MANAGE, InviteCreate(), is_slow=True),
)
invite = admin_view(get=Does(invite_retrieve, Act.PEOPLE_SEE), delete=Does(invite_delete, Act.PEOPLE_MANAGE))
