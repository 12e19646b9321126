"""Invitations: a link with which somebody makes an account, with the role and the projects that were chosen for it.

A link works once, until it expires or is revoked, and as long as who has made it may give the role. Its text is not
stored, only a digest.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.translation import gettext as _

from chat.access.mail import mail_send
from chat.access.memberships import membership_create
from chat.access.models import Invitation, Org, Project
from chat.access.policy import standing_of
from chat.access.projects import project_join
from chat.access.roles import Role
from chat.audit.services import Subject, audit_record
from chat.console.pages import instant

MAX_DAYS = 90
DEFAULT_DAYS = 7


class InvitationEnded(Exception):
    """The error for a link that invites nobody any more; the message says why."""


@dataclass(frozen=True, slots=True)
class Invited:
    """To what somebody is invited."""

    org: Org
    role: Role
    may_chat: bool = True
    email: str = ""
    projects: tuple[Project, ...] = ()
    days: int = DEFAULT_DAYS


def invitation_create(*, actor: User, to: Invited) -> tuple[Invitation, str]:
    """Make an invitation, and return it with the secret of its link, which is not stored.

    Raises PermissionDenied for a role that `actor` may not give, ValidationError for projects of others.
    """
    if to.role not in standing_of(actor).roles_given(org_id=to.org.pk):
        refusal = _("Your role in %(org)s does not let you give the role %(role)s.")
        raise PermissionDenied(refusal % {"org": to.org, "role": to.role.label})
    if any(project.org_id != to.org.pk for project in to.projects):
        raise ValidationError(_("Projects must be of the organisation."))
    if not 1 <= to.days <= MAX_DAYS:
        raise ValidationError(_("An invitation holds from 1 to %(days)s days.") % {"days": MAX_DAYS})
    secret = secrets.token_urlsafe(24)
    invitation = Invitation(
        digest=_digest(secret),
        email=to.email,
        org=to.org,
        role=to.role,
        may_chat=to.may_chat,
        created_by=actor,
        expires_at=timezone.now() + timedelta(days=to.days),
    )
    with transaction.atomic():
        invitation.save()
        invitation.projects.set(to.projects)
        audit_record(
            action="invite.create",
            on=invitation_subject(invitation),
            after={"role": to.role.value, "projects": [project.name for project in to.projects], "days": to.days},
        )
    return invitation, secret


def invitation_send(*, invitation: Invitation, link: str) -> None:
    """Send the link to the invitation's address, in the name of who has made it. Raises MailFailed."""
    by = invitation.created_by
    name = by.get_full_name() or by.get_username()
    words = {"name": name, "org": invitation.org, "link": link, "end": instant(invitation.expires_at)}
    text = render_to_string("account/email/invitation.txt", words)
    mail_send(to=invitation.email, subject=_("Lightcone: an invitation"), text=text)


def invitation_revoke(*, invitation: Invitation) -> None:
    """End an invitation that nobody has used."""
    with transaction.atomic():
        changed = Invitation.objects.filter(pk=invitation.pk, accepted_at=None, revoked_at=None)
        if changed.update(revoked_at=timezone.now()):
            audit_record(action="invite.revoke", on=invitation_subject(invitation))


def invitation_find(*, secret: str) -> Invitation:
    """Return the invitation of a link. Raises InvitationEnded."""
    return _open(Invitation.objects.filter(digest=_digest(secret)))


def invitation_open(*, invitation_id: int) -> Invitation:
    """Return an invitation whose link somebody had. Raises InvitationEnded."""
    return _open(Invitation.objects.filter(pk=invitation_id))


def invitation_accept(*, invitation: Invitation, user: User) -> Invitation:
    """Make somebody a member, as they are invited to, but of no project that is archived by now.

    `user` may be new, and is saved by the caller's transaction.

    Raises InvitationEnded, and ValidationError for who is a member already.
    """
    with transaction.atomic():
        invitation = _open(Invitation.objects.select_for_update(of=("self",)).filter(pk=invitation.pk))
        try:
            membership_create(
                user=user,
                org=invitation.org,
                role=Role(invitation.role),
                may_chat=invitation.may_chat,
                actor=invitation.created_by,
            )
        except PermissionDenied:
            raise InvitationEnded(
                _("Who has invited you may not give this role any more. Ask for a new link.")
            ) from None
        for project in invitation.projects.filter(archived_at=None):
            project_join(project=project, user=user)
        invitation.accepted_at, invitation.accepted_by = timezone.now(), user
        invitation.save(update_fields=["accepted_at", "accepted_by"])
        audit_record(action="invite.accept", on=invitation_subject(invitation), after={"account": user.get_username()})
    return invitation


def invitation_subject(invitation: Invitation) -> Subject:
    return Subject(invitation.pk, invitation.email or f"link {invitation.pk}", invitation.org_id)


def revocable(invitations: Iterable[Invitation], *, actor: Any) -> list[Invitation]:
    """Return the open ones whose role `actor` gives."""
    return [one for one in invitations if one.is_open and gives_role_of(one, actor=actor)]


def gives_role_of(invitation: Invitation, *, actor: Any) -> bool:
    """Return True if `actor` gives the role of an invitation, and so revokes it."""
    return invitation.role in standing_of(actor).roles_given(org_id=invitation.org_id)


def _open(found: Any) -> Invitation:
    invitation: Invitation | None = found.select_related("org", "created_by").first()
    if invitation is None:
        raise InvitationEnded(_("This link invites nobody: it is wrong, or was deleted."))
    if invitation.revoked_at:
        raise InvitationEnded(_("This invitation was revoked. Ask for a new link."))
    if invitation.accepted_at:
        raise InvitationEnded(_("This invitation has been used. Sign in with the account that it made."))
    if invitation.expires_at <= timezone.now():
        raise InvitationEnded(_("This invitation has expired. Ask for a new link."))
    if not gives_role_of(invitation, actor=invitation.created_by):
        raise InvitationEnded(_("Who has invited you may not give this role any more. Ask for a new link."))
    return invitation


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
