"""Console pages of accounts. `chat.access.people` decides who may do what to whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from allauth.usersessions.models import UserSession
from django import forms
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import Prefetch, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.decorators import action, display
from unfold.enums import ActionVariant
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldBooleanSwitchWidget

from chat.access.factors import factors_remove
from chat.access.keys import keys_settle
from chat.access.mail_addresses import address_vouch
from chat.access.memberships import membership_create
from chat.access.models import Membership, Org
from chat.access.people import (
    account_change_check,
    account_deletion_problem,
    account_is_manageable,
    account_password_is_settable,
    accounts_delete,
    people_seen,
)
from chat.access.policy import orgs_reached, standing_of
from chat.access.reset_links import reset_link_create
from chat.access.roles import ROLES_HELP, Act, Role
from chat.console.acts import confirm_page, shown_once_page

ABOVE_YOU = _("It has a role that you may not give. Ask an owner of its organisation.")

ONLY_OWNERS = _("Only an owner of all organisations of an account sets its password.")

for table in (User, Group, Authenticator, EmailAddress, SocialAccount, SocialApp, SocialToken, UserSession):
    admin.site.unregister(table)


class AccountForm(UserChangeForm):
    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean()
        flags = {name: cleaned.get(name, getattr(self.instance, name)) for name in ("is_active", "is_superuser")}
        account_change_check(account=self.instance, **flags)
        return cleaned


class NewAccountForm(UserCreationForm):
    """A new account with its first role."""

    actor: Any

    org = forms.ModelChoiceField(queryset=Org.objects.none(), label=_("Organisation"), widget=UnfoldAdminSelectWidget)
    role = forms.ChoiceField(label=_("Role"), initial=Role.MEMBER, widget=UnfoldAdminSelectWidget, help_text=ROLES_HELP)
    may_chat = forms.BooleanField(
        label=_("May use the playground"), required=False, initial=True, widget=UnfoldBooleanSwitchWidget
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        orgs = orgs_reached(self.actor, Act.PEOPLE_MANAGE)
        self.fields["org"].queryset = orgs
        self.fields["org"].initial = orgs.order_by("id").first()
        given = {role for org in orgs for role in standing_of(self.actor).roles_given(org_id=org.pk)}
        self.fields["role"].choices = [(value, label) for value, label in Role.choices if value in given]

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean()
        org, role = cleaned.get("org"), cleaned.get("role")
        if org and role and Role(role) not in standing_of(self.actor).roles_given(org_id=org.pk):
            self.add_error(
                "role",
                _("Your role in %(org)s does not let you give the role %(role)s.")
                % {"org": org, "role": Role(role).label},
            )
        return cleaned


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ModelAdmin):
    """A page of Django in unfold's forms.

    It refuses roles above the editor's own, and keeps one superuser and the last owner of each organisation.
    """

    form = AccountForm
    add_form = NewAccountForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "email", "show_roles", "is_active", "last_login")
    list_filter = ("is_active",)
    filter_horizontal = ()
    actions_detail = ("reset_link", "remove_factors")
    readonly_fields = ("last_login", "date_joined", "show_roles")
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        (_("Person"), {"fields": ("first_name", "last_name", "email")}),
        (_("Access"), {"fields": ("is_active", "is_superuser", "show_roles")}),
        (_("Dates"), {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = (
        (None, {"fields": ("username", "email", "usable_password", "password1", "password2")}),
        (_("Access"), {"fields": ("org", "role", "may_chat")}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        """Return the people of the organisations that one sees, with their roles there as `roles_seen`."""
        people = people_seen(actor=request.user, people=super().get_queryset(request))
        seen = Membership.objects.filter(org__in=orgs_reached(request.user, Act.PEOPLE_SEE)).select_related("org")
        return people.prefetch_related(Prefetch("memberships", seen, to_attr="roles_seen"))

    @display(description=_("Roles"))
    def show_roles(self, user: Any) -> str:
        roles = [
            gettext("%(role)s in %(org)s") % {"role": one.get_role_display(), "org": one.org} for one in user.roles_seen
        ]
        return ", ".join([gettext("Superuser")] * user.is_superuser + roles) or "–"

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> tuple[str, ...]:
        """Return the fields that a form only shows.

        The address of others is one of them unless the editor may set their password: links for one go there.
        """
        is_settable = obj in (None, request.user) or account_password_is_settable(actor=request.user, account=obj)
        shown = (*(() if is_settable else ("email",)), *(() if request.user.is_superuser else ("is_superuser",)))
        return (*self.readonly_fields, *shown)

    def get_form(self, request: HttpRequest, obj: User | None = None, *args: Any, **options: Any) -> Any:
        form = super().get_form(request, obj, **options)
        form.actor = request.user
        return form

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_change_permission(request, obj) and (
            not isinstance(obj, User) or account_is_manageable(actor=request.user, account=obj)
        )

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        if not isinstance(obj, User):
            return super().has_delete_permission(request)
        return (
            super().has_delete_permission(request, obj)
            and account_is_manageable(actor=request.user, account=obj)
            and not account_deletion_problem(actor=request.user, account=obj)
        )

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        account = self.get_object(request, id)
        if account is not None and not account_password_is_settable(actor=request.user, account=account):
            raise PermissionDenied(ONLY_OWNERS)
        with transaction.atomic():  # with its audit entry
            answer: HttpResponse = super().user_change_password(request, id, form_url)
        return answer

    def has_password_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Require what setting the password of this account does. django-unfold asks with its id."""
        if object_id is None:
            return super().has_change_permission(request)
        account = self.get_object(request, unquote(str(object_id)))
        return account is not None and account_password_is_settable(actor=request.user, account=account)

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        """Return the acts on sign-in. An account without second factors has none to remove."""
        account = self.get_object(request, unquote(str(object_id)))
        has_factors = account is not None and Authenticator.objects.filter(user=account).exists()
        acts = super().get_actions_detail(request, object_id)
        return [act for act in acts if has_factors or not act.action_name.endswith("_remove_factors")]

    def _settable(self, request: HttpRequest, object_id: str) -> User:
        account: User | None = self.get_object(request, unquote(object_id))
        if account is None:
            raise Http404(gettext("There is no such account."))
        if not account_password_is_settable(actor=request.user, account=account):
            raise PermissionDenied(ONLY_OWNERS)
        return account

    @action(description=_("Link for a new password"), url_path="reset-link", permissions=["password"], icon="link")
    def reset_link(self, request: HttpRequest, object_id: str) -> HttpResponse:
        account = self._settable(request, object_id)
        if request.method != "POST":
            effect = gettext(
                "The person who opens the link sets the password of this account. It works once, for three days."
            )
            return self._confirm(request, account, gettext("Make a link for"), effect)
        with transaction.atomic():
            path = reset_link_create(user=account)
        context = {
            "title": gettext("Link for a new password"),
            "subject": account.get_username(),
            "effect": gettext("It works once, for three days, and ends with the next sign-in of the account."),
            "link": request.build_absolute_uri(path),
            "back": reverse("admin:auth_user_change", args=[account.pk]),
        }
        return shown_once_page(request, "admin/link_shown_once.html", context)

    @action(
        description=_("Remove second factors"),
        url_path="remove-factors",
        permissions=["password"],
        icon="phonelink_erase",
        variant=ActionVariant.WARNING,
    )
    def remove_factors(self, request: HttpRequest, object_id: str) -> HttpResponse:
        account = self._settable(request, object_id)
        if request.method != "POST":
            effect = gettext(
                "Its authenticator app, passkeys and recovery codes stop working. The password alone signs it in."
            )
            return self._confirm(request, account, gettext("Remove second factors of"), effect)
        number = factors_remove(user=account)
        said = ngettext(
            "%(number)s second factor of %(account)s is removed.",
            "%(number)s second factors of %(account)s are removed.",
            number,
        )
        if not number:
            said = gettext("%(account)s has no second factors.")
        self.message_user(request, said % {"number": number, "account": account})
        return redirect("admin:auth_user_change", account.pk)

    def _confirm(self, request: HttpRequest, account: User, act: str, effect: str) -> HttpResponse:
        back = reverse("admin:auth_user_change", args=[account.pk])
        name = account.get_username()
        return confirm_page(request, act=act, subject=name, effect=effect, back=back, is_dangerous=True)

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if "email" in form.changed_data and obj != request.user:
            address_vouch(user=obj)
        if change:
            keys_settle(owner=obj)
            return
        chosen = form.cleaned_data
        membership_create(
            user=obj, org=chosen["org"], role=Role(chosen["role"]), may_chat=chosen["may_chat"], actor=request.user
        )

    def get_deleted_objects(
        self, objs: Sequence[User], request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """Return what is deleted, the accounts alone, and what prevents it."""
        accounts, actor = list(objs), request.user
        problems = []
        for account in accounts:
            problem = account_deletion_problem(actor=actor, account=account)
            if not problem and not account_is_manageable(actor=actor, account=account):
                problem = str(ABOVE_YOU)
            if problem:
                problems.append(f"{account}: {problem}")
        return [str(account) for account in accounts], {gettext("users"): len(accounts)}, set(), problems

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        self._delete(request, [obj])

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        self._delete(request, list(queryset))

    def _delete(self, request: HttpRequest, accounts: list[User]) -> None:
        try:
            accounts_delete(actor=request.user, accounts=accounts)
        except ValidationError as error:  # another administrator went since the page was shown
            raise PermissionDenied from error
