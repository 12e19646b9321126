"""Console pages of invitations: make one, send or copy its link, revoke it. The link is shown once."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.decorators import action, display
from unfold.enums import ActionVariant
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
)

from chat.access.admin.scoped import ScopedPage
from chat.access.invitations import (
    DEFAULT_DAYS,
    MAX_DAYS,
    Invited,
    gives_role_of,
    invitation_create,
    invitation_revoke,
    invitation_send,
    revocable,
)
from chat.access.mail import MailFailed, mail_is_set_up
from chat.access.models import Invitation, Project
from chat.access.policy import orgs_reached, standing_of
from chat.access.roles import ROLES_HELP, Act, Role
from chat.console.acts import confirm_page, shown_once_page
from chat.console.pages import Labelled, column, instant


class InvitationForm(forms.ModelForm):
    """A form of an invitation: the organisation, a role that its maker may give, the projects."""

    actor: Any

    days = forms.IntegerField(
        label=gettext_lazy("Valid for (days)"),
        initial=DEFAULT_DAYS,
        min_value=1,
        max_value=MAX_DAYS,
        widget=UnfoldAdminIntegerFieldWidget,
    )
    projects = forms.ModelMultipleChoiceField(
        label=gettext_lazy("Projects"),
        queryset=Project.objects.none(),
        required=False,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text=gettext_lazy("The person may make personal keys in these."),
    )

    class Meta:
        model = Invitation
        fields = ("email", "org", "role", "may_chat", "projects")
        widgets = {"role": UnfoldAdminSelectWidget, "org": UnfoldAdminSelectWidget}

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if "org" not in self.fields:
            return
        orgs = orgs_reached(self.actor, Act.PEOPLE_MANAGE)
        self.fields["org"].queryset = orgs
        self.fields["org"].initial = orgs.order_by("id").first()
        self.fields["projects"].queryset = Project.objects.filter(org__in=orgs, archived_at=None).order_by(
            "org__name", "name"
        )
        given = {role for org in orgs for role in standing_of(self.actor).roles_given(org_id=org.pk)}
        self.fields["role"].choices = [(value, label) for value, label in Role.choices if value in given]
        self.fields["role"].help_text = ROLES_HELP
        self.fields["email"].help_text = (
            _("The link is sent to this address and shown to you once.")
            if mail_is_set_up()
            else _("This server sends no mail. Copy the link, which is shown once. The new account gets this address.")
        )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean()
        org, role = cleaned.get("org"), cleaned.get("role")
        if org and role and Role(role) not in standing_of(self.actor).roles_given(org_id=org.pk):
            self.add_error(
                "role",
                _("Your role in %(org)s does not let you give the role %(role)s.")
                % {"org": org, "role": Role(role).label},
            )
        if org and any(project.org_id != org.pk for project in cleaned.get("projects", ())):
            self.add_error("projects", _("Choose only projects of %(org)s.") % {"org": org})
        return cleaned


@admin.register(Invitation)
class InvitationAdmin(ScopedPage):
    see, manage = Act.PEOPLE_SEE, Act.PEOPLE_MANAGE
    form = InvitationForm
    list_display = ("__str__", "org", "role", "created_by", "show_state", "show_expiry")
    list_select_related = ("org", "created_by")
    list_filter = ("role",)
    search_fields = ("email",)
    list_per_page = 50
    show_full_result_count = False
    sortable_by = ()
    actions = None
    only_saves = True
    actions_detail = ("revoke",)
    add_fields = ("email", "org", "role", "may_chat", "projects", "days")
    shown_fields = (
        "email",
        "org",
        "role",
        "may_chat",
        "projects",
        "created_by",
        "show_state",
        "show_expiry",
        "accepted_by",
    )

    show_expiry = column(gettext_lazy("Expires"), "expires_at", instant)

    @display(
        description=gettext_lazy("State"),
        label={"open": "info", "used": "success", "revoked": "warning", "expired": "danger"},
    )
    def show_state(self, invitation: Invitation) -> Labelled:
        if invitation.accepted_at:
            return Labelled("used", _("Used"))
        if invitation.revoked_at:
            return Labelled("revoked", _("Revoked"))
        is_over = invitation.expires_at <= timezone.now()
        return Labelled("expired", _("Expired")) if is_over else Labelled("open", _("Open"))

    def get_fields(self, request: HttpRequest, obj: Invitation | None = None) -> tuple[str, ...]:
        return self.add_fields if obj is None else self.shown_fields

    def get_form(
        self, request: HttpRequest, obj: Invitation | None = None, change: bool = False, **options: Any
    ) -> Any:
        if obj is None:
            options["fields"] = InvitationForm.Meta.fields
        form = super().get_form(request, obj, change, **options)
        form.actor = request.user
        return form

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_revoke_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Require a role that gives the invitation's, in its organisation."""
        if not request.user.has_perm("chat.change_invitation"):
            return False
        if object_id is None:
            return True
        invitation = self.get_object(request, unquote(str(object_id)))
        return invitation is not None and gives_role_of(invitation, actor=request.user)

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        """Return the revocation of an open invitation."""
        invitation = self.get_object(request, unquote(str(object_id)))
        is_open = invitation is not None and revocable([invitation], actor=request.user)
        return super().get_actions_detail(request, object_id) if is_open else []

    def save_model(self, request: HttpRequest, obj: Invitation, form: Any, change: bool) -> None:
        chosen = form.cleaned_data
        made, secret = invitation_create(
            actor=request.user,
            to=Invited(
                org=chosen["org"],
                role=Role(chosen["role"]),
                may_chat=chosen["may_chat"],
                email=chosen["email"],
                projects=tuple(chosen["projects"]),
                days=chosen["days"],
            ),
        )
        obj.pk, obj.expires_at, obj.created_by = made.pk, made.expires_at, made.created_by
        request.new_link = request.build_absolute_uri(reverse("invitation", args=[secret]))

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Do nothing: the service has stored the projects."""

    def response_add(self, request: HttpRequest, obj: Invitation, post_url_continue: str | None = None) -> HttpResponse:
        """Send the link if that can be done, and show it once in any case."""
        note, is_bad = self._sent(obj, request.new_link)
        context = {
            "title": _("Invitation made"),
            "subject": str(obj),
            "note": note,
            "is_note_bad": is_bad,
            "effect": _("The link makes one account. It works once, until %(end)s.") % {"end": instant(obj.expires_at)},
            "link": request.new_link,
            "back": reverse("admin:chat_invitation_changelist"),
        }
        return shown_once_page(request, "admin/link_shown_once.html", context)

    def _sent(self, invitation: Invitation, link: str) -> tuple[str, bool]:
        """Send the link. Return the note for its maker, and True if it reports a failure."""
        if not invitation.email or not mail_is_set_up():
            return "", False
        try:
            invitation_send(invitation=invitation, link=link)
        except MailFailed as error:
            return _("The mail could not be sent: %(error)s") % {"error": error}, True
        return _("The link was sent to %(email)s.") % {"email": invitation.email}, False

    @action(
        description=gettext_lazy("Revoke"),
        url_path="revoke",
        permissions=["revoke"],
        icon="block",
        variant=ActionVariant.WARNING,
    )
    def revoke(self, request: HttpRequest, object_id: str) -> HttpResponse:
        invitation = self.get_object(request, unquote(object_id))
        if invitation is None:
            raise Http404(_("There is no such invitation."))
        if not gives_role_of(invitation, actor=request.user):
            raise PermissionDenied
        if request.method != "POST":
            return confirm_page(
                request,
                act=_("Revoke"),
                subject=_("the invitation %(invitation)s") % {"invitation": invitation},
                effect=_("Its link stops working. This cannot be undone; make a new invitation instead."),
                back=reverse("admin:chat_invitation_changelist"),
            )
        invitation_revoke(invitation=invitation)
        self.message_user(request, _("The invitation %(invitation)s is revoked.") % {"invitation": invitation})
        return redirect("admin:chat_invitation_changelist")
