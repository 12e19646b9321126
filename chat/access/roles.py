"""Who may do what: the one policy of console, playground, self-service pages, API and commands.

A person has one role in an organisation. What a role may do, and how far, is a row of `POLICY`. Acts on the
installation (models, workers, alerts, the system) go by the role in the organisation that operates it. A superuser owns
the installation: every act, everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum

from django.db import models
from django.utils.translation import gettext_lazy as _


class Role(models.TextChoices):
    """What a person is in an organisation."""

    OWNER = "owner", _("Owner")
    ADMIN = "admin", _("Admin")
    MEMBER = "member", _("Member")
    VIEWER = "viewer", _("Viewer")
    BILLING = "billing", _("Billing")
    AUDITOR = "auditor", _("Auditor")


ROLES_HELP = _(
    "Owner: everything. Admin: people, projects, keys and limits. Member: own keys in own projects, the playground. "
    "Viewer: sees people, keys, usage and requests. Billing: costs and budgets. Auditor: sees all, stored texts too."
)


class Reach(IntEnum):
    """How far an act goes. A greater reach includes the smaller ones."""

    NONE = 0
    OWN = 1
    """One's own keys and what was asked with them or in one's chats."""
    PROJECTS = 2
    """The projects that one is a member of."""
    ORG = 3
    """All of the organisation; of acts on the installation, all of that."""


class Act(StrEnum):
    """What somebody does. `see` includes the lists and exports of it."""

    CHAT = "chat.use"
    """To chat in the playground, if the membership allows it."""
    ORG_CHANGE = "org.change"
    PEOPLE_SEE = "people.see"
    PEOPLE_MANAGE = "people.manage"
    PROJECTS_SEE = "projects.see"
    PROJECTS_MANAGE = "projects.manage"
    KEYS_SEE = "keys.see"
    KEYS_MANAGE = "keys.manage"
    LIMITS_MANAGE = "limits.manage"
    BUDGETS_MANAGE = "budgets.manage"
    ADMIN_KEYS_SEE = "admin_keys.see"
    ADMIN_KEYS_MANAGE = "admin_keys.manage"
    """To make keys of /v1/organization, which may what their maker may, and to end those of others."""
    USAGE_SEE = "usage.see"
    LOGS_SEE = "logs.see"
    BODIES_SEE = "bodies.see"
    BATCHES_SEE = "batches.see"
    BATCHES_MANAGE = "batches.manage"
    AUDIT_SEE = "audit.see"
    MODELS_SEE = "models.see"
    MODELS_MANAGE = "models.manage"
    WORKERS_SEE = "workers.see"
    WORKERS_MANAGE = "workers.manage"
    ALERTS_SEE = "alerts.see"
    ALERTS_MANAGE = "alerts.manage"
    SYSTEM_SEE = "system.see"
    SYSTEM_TRUST = "system.trust"
    """To give keys what reaches into workers: templates, processors, media options and fetching, urgency."""

    @property
    def is_of_installation(self) -> bool:
        return self.value.startswith(("models.", "workers.", "alerts.", "system."))


_ROLES = tuple(Role)
_REACH = {"-": Reach.NONE, "own": Reach.OWN, "pro": Reach.PROJECTS, "org": Reach.ORG}


def _row(text: str) -> Mapping[Role, Reach]:
    return dict(zip(_ROLES, (_REACH[word] for word in text.split()), strict=True))


# fmt: off
POLICY: Mapping[Act, Mapping[Role, Reach]] = {
    #                          owner admin member viewer billing auditor
    Act.CHAT:            _row("  org   org   org    org    org     org "),
    Act.ORG_CHANGE:      _row("  org   org    -      -      -       -  "),
    Act.PEOPLE_SEE:      _row("  org   org    -     org     -      org "),
    Act.PEOPLE_MANAGE:   _row("  org   org    -      -      -       -  "),
    Act.PROJECTS_SEE:    _row("  org   org   pro    org    org     org "),
    Act.PROJECTS_MANAGE: _row("  org   org    -      -      -       -  "),
    Act.KEYS_SEE:        _row("  org   org   own    org     -      org "),
    Act.KEYS_MANAGE:     _row("  org   org   own     -      -       -  "),
    Act.ADMIN_KEYS_SEE:  _row("  org   org    -      -      -      org "),
    Act.ADMIN_KEYS_MANAGE: _row("org   org    -      -      -       -  "),
    Act.LIMITS_MANAGE:   _row("  org   org    -      -      -       -  "),
    Act.BUDGETS_MANAGE:  _row("  org   org    -      -     org      -  "),
    Act.USAGE_SEE:       _row("  org   org   own    org    org     org "),
    Act.LOGS_SEE:        _row("  org   org   own    org     -      org "),
    Act.BODIES_SEE:      _row("  org   own   own     -      -      org "),
    Act.BATCHES_SEE:     _row("  org   org   own    org     -      org "),
    Act.BATCHES_MANAGE:  _row("  org   org   own     -      -       -  "),
    Act.AUDIT_SEE:       _row("  org   org    -      -      -      org "),
    Act.MODELS_SEE:      _row("  org   org    -     org     -      org "),
    Act.MODELS_MANAGE:   _row("  org   org    -      -      -       -  "),
    Act.WORKERS_SEE:     _row("  org   org    -     org     -      org "),
    Act.WORKERS_MANAGE:  _row("  org   org    -      -      -       -  "),
    Act.ALERTS_SEE:      _row("  org   org    -     org     -      org "),
    Act.ALERTS_MANAGE:   _row("  org   org    -      -      -       -  "),
    Act.SYSTEM_SEE:      _row("  org   org    -      -      -      org "),
    Act.SYSTEM_TRUST:    _row("  org   org    -      -      -       -  "),
}
# fmt: on
"""The reach of each act by role."""


def role_reach(role: Role, act: Act) -> Reach:
    return POLICY[act][role]


def role_covers(role: Role, other: Role) -> bool:
    """Return True if `role` may do all that `other` may, as far. Only such roles are given to others."""
    return all(reaches[role] >= reaches[other] for reaches in POLICY.values())


def roles_given_by(role: Role) -> tuple[Role, ...]:
    """Return the roles that a person of this role gives, changes and takes away: none without PEOPLE_MANAGE."""
    if role_reach(role, Act.PEOPLE_MANAGE) < Reach.ORG:
        return ()
    return tuple(other for other in _ROLES if role_covers(role, other))
