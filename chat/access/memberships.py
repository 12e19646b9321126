"""Memberships: give, change and take away the role of a person in an organisation.

Nobody gives or takes a role that may more than the own one. An organisation keeps its last owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from chat.access.configuration import configuration_touch
from chat.access.keys import keys_settle
from chat.access.limit_columns import LIMIT_COLUMNS
from chat.access.models import Membership, Org
from chat.access.policy import standing_of
from chat.access.roles import Role
from chat.access.subjects import member_subject
from chat.audit.services import audit_record
from chat.audit.values import row_values

AUDITED = ("role", "may_chat", *LIMIT_COLUMNS)
LAST_OWNER = gettext_lazy("This is the only owner of %(org)s: make another active member its owner first.")


def membership_create(
    *,
    user: User,
    org: Org,
    role: Role,
    may_chat: bool = True,
    limits: Mapping[str, int | None] | None = None,
    actor: Any | None = None,
) -> Membership:
    """Make a person a member. `actor`: who does it; None for commands and the first start.

    Raises PermissionDenied, or ValidationError if the person is a member already.
    """
    _check_may_give(actor, org, role)
    membership = Membership(user=user, org=org, role=role, may_chat=may_chat, **(limits or {}))
    membership.full_clean()
    with transaction.atomic():
        membership.save()
        audit_record(action="member.create", on=member_subject(membership), after=row_values(membership, AUDITED))
    return membership


def membership_change(
    *,
    membership: Membership,
    role: Role,
    may_chat: bool | None = None,
    limits: Mapping[str, int | None] | None = None,
    actor: Any | None = None,
) -> None:
    """Give a member another role, or limits. Keys that the person may no longer have are disabled.

    `may_chat` and `limits`: None leaves what there is.
    Raises PermissionDenied, or ValidationError for the last owner.
    """
    with transaction.atomic():
        orgs_lock(org_ids=[membership.org_id])
        kept = Membership.objects.select_related("org", "user").get(pk=membership.pk)
        _check_may_give(actor, kept.org, Role(kept.role))
        _check_may_give(actor, kept.org, role)
        if role != Role.OWNER:
            _check_owner_remains(kept)
        before = row_values(kept, AUDITED)
        kept.role, kept.may_chat = role, kept.may_chat if may_chat is None else may_chat
        for name in LIMIT_COLUMNS:
            setattr(kept, name, getattr(kept, name) if limits is None else limits.get(name))
        kept.full_clean()
        kept.save(update_fields=AUDITED)
        audit_record(action="member.change", on=member_subject(kept), before=before, after=row_values(kept, AUDITED))
        keys_settle(owner=kept.user)
        configuration_touch()
    membership.role, membership.may_chat = kept.role, kept.may_chat


def membership_delete(*, membership: Membership, actor: Any | None = None) -> None:
    """Take a person out of an organisation and its projects; the person's keys there are disabled.

    Raises PermissionDenied, or ValidationError for the last owner.
    """
    with transaction.atomic():
        orgs_lock(org_ids=[membership.org_id])
        kept = Membership.objects.select_related("org", "user").get(pk=membership.pk)
        _check_may_give(actor, kept.org, Role(kept.role))
        _check_owner_remains(kept)
        projects = list(kept.user.projects.filter(org=kept.org))
        kept.user.projects.remove(*projects)
        before = row_values(kept, AUDITED) | {"projects": [project.name for project in projects]}
        audit_record(action="member.delete", on=member_subject(kept), before=before)
        kept.delete()
        keys_settle(owner=kept.user)
        configuration_touch()


def orgs_lock(*, org_ids: Iterable[int]) -> None:
    """Lock organisations until the transaction ends, so that two of their owners cannot remove each other.

    Rows that point at them can still be made.
    """
    list(Org.objects.select_for_update(no_key=True).filter(pk__in=org_ids).order_by("pk").values_list("pk"))


def is_last_owner(*, membership: Membership) -> bool:
    """Return True if nobody else who can sign in owns the organisation."""
    if membership.role != Role.OWNER or not membership.user.is_active:
        return False
    owners = Membership.objects.filter(org=membership.org_id, role=Role.OWNER, user__is_active=True)
    return not owners.exclude(pk=membership.pk).exists()


def _check_may_give(actor: Any | None, org: Org, role: Role) -> None:
    if actor is not None and role not in standing_of(actor).roles_given(org_id=org.pk):
        refusal = _("Your role in %(org)s does not let you give or take the role %(role)s.")
        raise PermissionDenied(refusal % {"org": org, "role": role.label})


def _check_owner_remains(membership: Membership) -> None:
    if is_last_owner(membership=membership):
        raise ValidationError(LAST_OWNER % {"org": membership.org})
