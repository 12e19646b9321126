"""Console pages of memberships: who is what in an organisation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from chat.access.admin.limit_fields import LIMITS, LimitFields
from chat.access.admin.scoped import ScopedPage
from chat.access.limit_columns import LIMIT_COLUMNS
from chat.access.memberships import (
    LAST_OWNER,
    is_last_owner,
    membership_change,
    membership_create,
    membership_delete,
)
from chat.access.models import Membership
from chat.access.people import people_seen
from chat.access.policy import orgs_reached, standing_of
from chat.access.roles import ROLES_HELP, Act, Role
from chat.console.fresh_form import FreshForm, FreshPage


class MembershipForm(FreshForm, LimitFields):
    """The role of a person. A new membership names the account."""

    actor: Any

    username = forms.CharField(
        label=gettext_lazy("Account"),
        max_length=150,
        widget=UnfoldAdminTextInputWidget,
        help_text=gettext_lazy(
            "The user name of an account that you see in another organisation. Users, Add makes a new one."
        ),
    )

    class Meta:
        model = Membership
        fields = ("org", "role", "may_chat", *LIMIT_COLUMNS)
        widgets = {"role": UnfoldAdminSelectWidget}

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.instance.pk:
            self.fields.pop("username", None)
        if "org" in self.fields:
            orgs = orgs_reached(self.actor, Act.PEOPLE_MANAGE)
            self.fields["org"].queryset = orgs
            self.fields["org"].initial = orgs.order_by("id").first()
        if "role" in self.fields:  # a form that only shows a membership has no fields
            self.fields["role"].help_text = ROLES_HELP

    def clean_username(self) -> User:
        """Return the account. Whoever could add any account could let its chats count to a project of another."""
        people = people_seen(actor=self.actor, people=User.objects.all())
        user: User | None = people.filter(username=self.cleaned_data["username"]).first()
        if user is None:
            raise ValidationError(
                _("You see no account of this name. Make a new one under Users; a superuser adds accounts of others.")
            )
        return user

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean()
        org = cleaned.get("org") or getattr(self.instance, "org", None)
        role = cleaned.get("role")
        if org and role and Role(role) not in standing_of(self.actor).roles_given(org_id=org.pk):
            refusal = _("Your role in %(org)s does not let you give the role %(role)s.")
            self.add_error("role", refusal % {"org": org, "role": Role(role).label})
        if (
            self.instance.pk
            and role != Role.OWNER
            and is_last_owner(membership=Membership.objects.get(pk=self.instance.pk))
        ):
            self.add_error("role", LAST_OWNER % {"org": org})
        if (user := cleaned.get("username")) and org and user.memberships.filter(org=org).exists():
            taken = _("%(user)s is a member of %(org)s already.")
            self.add_error("username", taken % {"user": user, "org": org})
        return cleaned


@admin.register(Membership)
class MembershipAdmin(FreshPage, ScopedPage):
    see, manage = Act.PEOPLE_SEE, Act.PEOPLE_MANAGE
    form = MembershipForm
    list_display = ("user", "org", "role", "may_chat", "created_at")
    list_select_related = ("user", "org")
    list_filter = ("role",)
    search_fields = ("user__username", "user__email")
    actions = None

    def get_fieldsets(self, request: HttpRequest, obj: Membership | None = None) -> Any:
        named = ("user" if obj else "username", "org", "role", "may_chat")
        return self.with_fresh(request, obj, ((None, {"fields": named}), LIMITS))

    def get_readonly_fields(self, request: HttpRequest, obj: Membership | None = None) -> tuple[str, ...]:
        return ("user", "org") if obj else ()

    def get_form(
        self, request: HttpRequest, obj: Membership | None = None, change: bool = False, **options: Any
    ) -> Any:
        form = super().get_form(request, obj, change, **options)
        form.actor = request.user
        return form

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and self._may_give_what_is(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        is_needed = isinstance(obj, Membership) and is_last_owner(membership=obj)
        return super().has_delete_permission(request, obj) and self._may_give_what_is(request, obj) and not is_needed

    def save_model(self, request: HttpRequest, obj: Membership, form: Any, change: bool) -> None:
        chosen = form.cleaned_data
        role, may_chat = Role(chosen["role"]), chosen["may_chat"]
        limits = {name: chosen.get(name) for name in LIMIT_COLUMNS}
        if change:
            with _refused_if_late():
                membership_change(membership=obj, role=role, may_chat=may_chat, limits=limits, actor=request.user)
            return
        made = membership_create(
            user=chosen["username"],
            org=chosen["org"],
            role=role,
            may_chat=may_chat,
            limits=limits,
            actor=request.user,
        )
        obj.pk, obj.user = made.pk, made.user

    def delete_model(self, request: HttpRequest, obj: Membership) -> None:
        with _refused_if_late():
            membership_delete(membership=obj, actor=request.user)

    def _may_give_what_is(self, request: HttpRequest, obj: Any) -> bool:
        """Return True if the actor could give the role that the member has."""
        return not isinstance(obj, Membership) or obj.role in standing_of(request.user).roles_given(org_id=obj.org_id)


@contextmanager
def _refused_if_late() -> Iterator[None]:
    """Refuse what somebody else has made impossible since the form was checked."""
    try:
        yield
    except ValidationError as error:
        raise PermissionDenied(" ".join(error.messages)) from error
    except Membership.DoesNotExist as error:
        raise PermissionDenied(_("Somebody else has taken this person out of the organisation.")) from error
