"""Projects that are not archived: only in them something new is made."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from chat.access.models import Project


def check_active(project: Project) -> None:
    """Raise ValidationError for an archived project."""
    if project.archived_at is not None:
        refusal = _("%(project)s is archived: restore it in the console, or choose another project.")
        raise ValidationError(refusal % {"project": project})


def active_lock(project: Project) -> None:
    """Keep a project from being archived until the transaction ends. Raises ValidationError if it is archived or gone.

    Rows that point at it can still be made.
    """
    stored = Project.objects.select_for_update(no_key=True).filter(pk=project.pk).first()
    if stored is None:
        raise ValidationError(_("%(project)s has been deleted: choose another project.") % {"project": project})
    check_active(stored)
