"""What a person may do, by the policy of roles: the one answer for console, playground, API and commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q, QuerySet

from chat.access.models import Membership, Org, Project
from chat.access.roles import Act, Reach, Role, role_reach, roles_given_by

NOTHING = Q(pk__in=())


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a person stands: the role in each organisation and the projects, as they were read."""

    user_id: int | None = None
    owns_installation: bool = False
    roles: Mapping[int, Role] = field(default_factory=dict)
    """By id of the organisation."""
    operator_id: int | None = None
    """The organisation in which a role is a role in the installation too."""
    chat_orgs: frozenset[int] = frozenset()
    """Where the playground is open to the person."""
    project_ids: frozenset[int] = frozenset()
    """The projects that the person is a member of."""

    def reach(self, act: Act, *, org_id: int | None = None) -> Reach:
        """Return how far an act goes in an organisation. None: the farthest in any of them."""
        if self.owns_installation:
            return Reach.ORG
        return max((self._reach_in(other, act) for other in self._places(act, org_id)), default=Reach.NONE)

    def orgs(self, act: Act, reach: Reach) -> list[int]:
        """Return the organisations in which an act goes exactly so far, for a person who owns no installation."""
        return sorted(org_id for org_id in self.roles if self._reach_in(org_id, act) == reach)

    def roles_given(self, *, org_id: int) -> tuple[Role, ...]:
        """Return the roles that the person gives, changes and takes away in an organisation."""
        if self.owns_installation:
            return tuple(Role)
        role = self.roles.get(org_id)
        return roles_given_by(role) if role else ()

    def _places(self, act: Act, org_id: int | None) -> list[int | None]:
        if act.is_of_installation:
            return [self.operator_id]
        return list(self.roles) if org_id is None else [org_id]

    def _reach_in(self, org_id: int | None, act: Act) -> Reach:
        role = None if org_id is None else self.roles.get(org_id)
        if role is None or (act == Act.CHAT and org_id not in self.chat_orgs):
            return Reach.NONE
        return role_reach(role, act)


def standing_of(user: Any) -> Standing:
    """Return the standing of a user. It is read once and kept with the user object, as Django keeps permissions."""
    if not user.is_active:
        return Standing()
    kept = getattr(user, "lightcone_standing", None)
    if kept is None:
        kept = user.lightcone_standing = _standing_read(user)
    return kept


def _standing_read(user: Any) -> Standing:
    if user.pk is None:
        return Standing()
    rows = list(Membership.objects.filter(user=user).values_list("org_id", "role", "may_chat", "org__is_operator"))
    return Standing(
        user_id=user.pk,
        owns_installation=user.is_superuser,
        roles={org_id: Role(role) for org_id, role, _, _ in rows},
        operator_id=next((org_id for org_id, _, _, is_operator in rows if is_operator), None),
        chat_orgs=frozenset(org_id for org_id, _, may_chat, _ in rows if may_chat),
        project_ids=frozenset(Project.objects.filter(members=user).values_list("pk", flat=True)),
    )


def may(user: Any, act: Act, *, org_id: int | None = None, least: Reach = Reach.OWN) -> bool:
    """Return True if an act goes at least so far. Without an organisation: in any."""
    return standing_of(user).reach(act, org_id=org_id) >= least


def visible(
    queryset: QuerySet[Any],
    user: Any,
    act: Act,
    *,
    org: str = "org_id",
    project: str = "project_id",
    own: Q | None = None,
) -> QuerySet[Any]:
    """Return the rows that a user's act reaches.

    `org` and `project` name the columns of both, `own` selects what is the user's own; without it nothing is.
    """
    standing = standing_of(user)
    if standing.owns_installation:
        return queryset
    if act.is_of_installation:
        return queryset if standing.reach(act) == Reach.ORG else queryset.none()
    reached = NOTHING
    if whole := standing.orgs(act, Reach.ORG):
        reached |= Q(**{f"{org}__in": whole})
    if some := standing.orgs(act, Reach.PROJECTS):
        reached |= Q(**{f"{org}__in": some, f"{project}__in": standing.project_ids})
    if few := standing.orgs(act, Reach.OWN):
        reached |= Q(**{f"{org}__in": few}) & (NOTHING if own is None else own)
    return queryset.filter(reached)


def orgs_reached(user: Any, act: Act) -> QuerySet[Org]:
    """Return the organisations in which an act reaches everything."""
    standing = standing_of(user)
    every = Org.objects.all()
    return every if standing.owns_installation else every.filter(pk__in=standing.orgs(act, Reach.ORG))
