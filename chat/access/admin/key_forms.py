"""Forms of the key pages: scopes and limits, the overlap of a rotation, the confirmation of a deletion."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.apps import apps
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from chat.access.admin.limit_fields import LimitFields, limits_within
from chat.access.checks import Right
from chat.access.key_scope import KeyScope
from chat.access.keys import key_owner_check
from chat.access.limit_columns import LIMIT_COLUMNS
from chat.access.models import ApiKey, Project, default_rights
from chat.console.fresh_form import FreshForm
from chat.console.pages import LinesField

LIMIT_FIELDS = (*LIMIT_COLUMNS, "min_priority")


class ApiKeyForm(FreshForm, LimitFields):
    """The choices for a key, limited to the `scope` of the user. The secret is never a field."""

    scope: KeyScope

    is_own = forms.BooleanField(
        label=gettext_lazy("My own key"),
        required=False,
        widget=UnfoldBooleanSwitchWidget,
        help_text=gettext_lazy("It ends with your membership. A key of the project stays when people leave."),
    )
    rights = forms.MultipleChoiceField(
        label=gettext_lazy("Rights"),
        choices=Right.choices,
        initial=default_rights,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text=gettext_lazy(
            "Chat templates, logits processors and media options reach into the model's worker, and fetched media "
            "has this server connect to others: for trusted callers only."
        ),
    )
    model_names = forms.MultipleChoiceField(
        label=gettext_lazy("Allowed models"),
        required=False,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text=gettext_lazy("None ticked: every model, also later ones."),
    )
    networks = LinesField(
        label=gettext_lazy("Allowed networks"),
        help_text=gettext_lazy("Addresses or ranges such as 10.0.0.0/8, one a line. Empty: everywhere."),
    )
    origins = LinesField(
        label=gettext_lazy("Allowed browser origins"),
        help_text=gettext_lazy("Such as https://app.example.org, one a line. Empty: every origin."),
    )

    class Meta:
        model = ApiKey
        fields = ("name", "project", "rights", "model_names", "networks", "origins", "expires_at", *LIMIT_FIELDS)
        help_texts = {
            "min_priority": gettext_lazy(
                "The most urgent priority that its requests may have; a smaller number runs first. "
                "Below 0 also opens the service tier priority."
            ),
            "expires_at": gettext_lazy("UTC. Empty: never."),
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._keep_to_scope()
        if "model_names" in self.fields:
            self.fields["model_names"].choices = model_choices(self.instance.model_names)

    def _keep_to_scope(self) -> None:
        """Limit choices to the scope. A form that only shows a key may lack these fields."""
        if "rights" in self.fields:
            self.fields["rights"].choices = [
                (right, label) for right, label in Right.choices if self.scope.may_give([right])
            ]
        if "project" in self.fields:
            # That of a key stays one to choose, also if it has been archived since.
            own = Q(pk__in=self.scope.projects()) | Q(pk=self.instance.project_id)
            self.fields["project"].queryset = Project.objects.select_related("org").filter(own)
            self.fields["project"].help_text = _(
                "Projects in which you may make keys. Admins and owners choose who may."
            )

    def clean_min_priority(self) -> int:
        priority: int = self.cleaned_data["min_priority"]
        if not self.scope.may_hurry(priority):
            raise forms.ValidationError(
                _("The priority must be at least 0; admins of the installation may give a more urgent one.")
            )
        return priority

    def clean(self) -> dict[str, Any]:
        """Hold rights to what the person may give in the project's organisation, and name the owner."""
        cleaned: dict[str, Any] = super().clean()
        project = cleaned.get("project") or getattr(self.instance, "project", None)
        if project is None:
            return cleaned
        limits_within(self, project, cleaned)
        for right in cleaned.get("rights", ()):
            if not self.scope.may_give([right], org_id=project.org_id):
                refusal = _("Your role in %(org)s does not let you give “%(right)s”.")
                self.add_error("rights", refusal % {"org": project.org, "right": Right(right).label})
        if self.instance.pk is None:
            is_own = cleaned.pop("is_own", False) or self.scope.owns_only(org_id=project.org_id)
            cleaned["owner"] = self.scope.user if is_own else None
        elif self.instance.disabled_at is None and not self.errors:
            chosen = {name: cleaned[name] for name in ("rights", "min_priority") if name in cleaned}
            key_owner_check(key=ApiKey(owner=self.instance.owner, project=project, **chosen))
        return cleaned

    def clean_model_names(self) -> list[str] | None:
        return self.cleaned_data["model_names"] or None

    def clean_expires_at(self) -> Any:
        expires_at = self.cleaned_data["expires_at"]
        if expires_at is not None and "expires_at" in self.changed_data and expires_at <= timezone.now():
            raise forms.ValidationError(_("The expiry must be in the future; disable the key to stop it now."))
        return expires_at


def model_choices(chosen: list[str] | None) -> list[tuple[str, str]]:
    """Return the names of models and adapters to choose from, with those that are chosen and gone."""
    # The catalog is built on keys, so its tables are found by name.
    known = apps.get_model("chat", "ServedModel").objects.order_by("name").values_list("name", flat=True)
    adapters = apps.get_model("chat", "ModelAdapter").objects.select_related("model")
    names = dict.fromkeys([*known, *(adapter.full_name for adapter in adapters), *(chosen or [])])
    return [(name, name) for name in names]


class RotateForm(forms.Form):
    overlap_hours = forms.IntegerField(
        label=gettext_lazy("Hours that the old secret stays valid"),
        initial=24,
        min_value=0,
        max_value=24 * 90,
        widget=UnfoldAdminIntegerFieldWidget,
    )

    def overlap(self) -> timedelta:
        return timedelta(hours=self.cleaned_data["overlap_hours"])


class DeleteForm(forms.Form):
    """The confirmation of a deletion, in which the user types the name of the key."""

    name = forms.CharField(
        label=gettext_lazy("Type the name of the key"), widget=UnfoldAdminTextInputWidget, max_length=120
    )

    def __init__(self, *args: Any, expected: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self.expected = expected
        self.fields["name"].widget.attrs["autocomplete"] = "off"

    def clean_name(self) -> str:
        if self.cleaned_data["name"] != self.expected.strip():
            raise forms.ValidationError(_("This is not the name of the key."))
        return self.cleaned_data["name"]
