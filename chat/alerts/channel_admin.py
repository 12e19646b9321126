"""Console pages of channels: make one, see its secret once, rotate it, send a test."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.decorators import action, display
from unfold.enums import ActionVariant
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
)

from chat.access.mail import mail_is_set_up
from chat.alerts.admin import OfOrgOrInstallation
from chat.alerts.channels import (
    OVERLAP,
    channel_check,
    channel_delete,
    channel_place,
    channel_rotate,
    channel_save,
    channel_test,
)
from chat.alerts.models import CONDITIONS, AlertChannel, ChannelKind, DeliveryState
from chat.alerts.selectors import may_manage_installation, orgs_managed
from chat.console.acts import confirm_page, shown_once_page
from chat.console.fresh_form import FreshForm, FreshPage

FIXED = ("show_org", "kind")
"""Of a channel that is made."""
SHOWN = ("name", "show_org", "show_kind", "show_place", "is_on", "show_conditions")


class ChannelForm(FreshForm):
    """A channel. Whose it is and its kind stay as they are made."""

    actor: Any

    conditions = forms.MultipleChoiceField(
        label=gettext_lazy("Conditions"),
        required=False,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        choices=list(CONDITIONS.items()),
        help_text=gettext_lazy("Those that it gives notice of; none chosen: all."),
    )

    class Meta:
        model = AlertChannel
        fields = ("name", "org", "kind", "address", "is_on", "conditions")
        widgets = {
            "kind": UnfoldAdminSelectWidget,
            "org": UnfoldAdminSelectWidget,
            "address": UnfoldAdminTextInputWidget,
        }
        help_texts = {
            "org": gettext_lazy(
                "An organisation's channel gives notice of its budgets; that of the installation of all else, "
                "and of budgets on models."
            ),
            "address": gettext_lazy(
                "Of a webhook: https://hooks.example.com/lightcone. It gets a signed POST and answers within 10 s. "
                "Of e-mail: one address."
            ),
            "is_on": gettext_lazy("Off: what waits for it fails, and nothing more is sent."),
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if "org" in self.fields:
            is_operator = may_manage_installation(self.actor)
            self.fields["org"].queryset = orgs_managed(self.actor)
            self.fields["org"].required = not is_operator
            self.fields["org"].empty_label = str(_("The installation")) if is_operator else "---------"
        if "kind" in self.fields and not mail_is_set_up():
            self.fields["kind"].help_text = _("This server sends no mail; LIGHTCONE_SMTP_HOST sets it up.")

    def clean_address(self) -> str:
        return str(self.cleaned_data["address"]).strip()

    def _post_clean(self) -> None:
        super()._post_clean()
        if not self.errors:
            try:
                channel_check(channel=self.instance)
            except ValidationError as error:
                self.add_error(None, error)


@admin.register(AlertChannel)
class AlertChannelAdmin(FreshPage, OfOrgOrInstallation):
    form = ChannelForm
    list_display = ("name", "show_org", "show_kind", "show_place", "is_on", "show_conditions")
    list_per_page = 50
    search_fields = ("name",)
    show_full_result_count = False
    sortable_by = ()
    actions = None
    actions_detail = ("send_test", "rotate")

    def get_queryset(self, request: HttpRequest) -> QuerySet[AlertChannel]:
        return super().get_queryset(request).select_related("org").order_by("-pk")

    def get_fieldsets(self, request: HttpRequest, obj: AlertChannel | None = None) -> Any:
        fields: tuple[str, ...] = self.form.Meta.fields
        if obj is not None:
            may_change = self.has_change_permission(request, obj)
            fields = tuple("show_org" if name == "org" else name for name in fields) if may_change else SHOWN
        return self.with_fresh(request, obj, ((None, {"fields": fields}),))

    def get_readonly_fields(self, request: HttpRequest, obj: AlertChannel | None = None) -> tuple[str, ...]:
        if obj is None:
            return ()
        return FIXED if self.has_change_permission(request, obj) else SHOWN

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any) -> Any:
        form = super().get_form(request, obj, change, **options)
        form.actor = request.user
        return form

    def save_model(self, request: HttpRequest, obj: AlertChannel, form: Any, change: bool) -> None:
        request.new_secret = channel_save(channel=obj)

    def delete_model(self, request: HttpRequest, obj: AlertChannel) -> None:
        channel_delete(channel=obj)

    def response_add(
        self, request: HttpRequest, obj: AlertChannel, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Show the secret of a webhook, once."""
        if not request.new_secret:
            return super().response_add(request, obj, post_url_continue)
        return self._secret_page(request, obj, request.new_secret, _("Channel made"), "")

    def _secret_page(
        self, request: HttpRequest, channel: AlertChannel, secret: str, title: str, note: str
    ) -> HttpResponse:
        back = reverse("admin:chat_alertchannel_change", args=[channel.pk])
        context = {"title": title, "subject": channel.name, "note": note, "secret": secret, "back": back}
        return shown_once_page(request, "admin/chat/alertchannel/secret.html", context)

    def has_send_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return bool(request.user.has_perm("chat.change_alertchannel")) and self.reaches(request, object_id)

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        """Return the acts; e-mail has no secret to rotate."""
        channel = self.get_object(request, unquote(str(object_id)))
        if channel is None:
            return []
        acts = super().get_actions_detail(request, object_id)
        return [act for act in acts if channel.kind == ChannelKind.WEBHOOK or act.path != "rotate"]

    @action(description=gettext_lazy("Send a test"), url_path="test", permissions=["send"], icon="send")
    def send_test(self, request: HttpRequest, object_id: str) -> HttpResponse:
        channel = self._channel(request, object_id)
        if request.method != "POST":
            effect = _("It gets a notice that is marked as a test. The result shows here and under Deliveries.")
            back = reverse("admin:chat_alertchannel_change", args=[channel.pk])
            return confirm_page(request, act=_("Send a test to"), subject=channel.name, effect=effect, back=back)
        try:
            delivery = channel_test(channel=channel)
        except ValidationError as error:
            self.message_user(request, error.message, messages.ERROR)
            return redirect("admin:chat_alertchannel_change", channel.pk)
        said = " ".join(str(one) for one in (delivery.status, delivery.answer) if one)
        if delivery.state == DeliveryState.DELIVERED:
            text = _("The test was taken. %(answer)s") % {"answer": said}
            self.message_user(request, text, messages.SUCCESS)
        else:
            text = _("The test failed: %(error)s %(answer)s") % {"error": delivery.error, "answer": said}
            self.message_user(request, text, messages.ERROR)
        return redirect("admin:chat_alertchannel_change", channel.pk)

    @action(
        description=gettext_lazy("Rotate the secret"),
        url_path="rotate",
        permissions=["send"],
        icon="autorenew",
        variant=ActionVariant.WARNING,
    )
    def rotate(self, request: HttpRequest, object_id: str) -> HttpResponse:
        channel = self._channel(request, object_id)
        if channel.kind != ChannelKind.WEBHOOK:
            raise Http404("E-mail has no secret.")
        hours = OVERLAP.total_seconds() // 3600
        note = _("For %(hours)d hours messages are signed with both secrets, the old one and the new one.") % {
            "hours": hours
        }
        if request.method != "POST":
            back = reverse("admin:chat_alertchannel_change", args=[channel.pk])
            return confirm_page(request, act=_("Rotate the secret of"), subject=channel.name, effect=note, back=back)
        secret = channel_rotate(channel=channel)
        return self._secret_page(request, channel, secret, _("Secret rotated"), note)

    def _channel(self, request: HttpRequest, object_id: str) -> AlertChannel:
        channel = self.get_object(request, unquote(object_id))
        if channel is None:
            raise Http404("There is no such channel.")
        if not self.has_send_permission(request, channel):
            raise PermissionDenied
        return channel

    @display(description=gettext_lazy("Kind"))
    def show_kind(self, channel: AlertChannel) -> str:
        return str(channel.get_kind_display())

    @display(description=gettext_lazy("Where"))
    def show_place(self, channel: AlertChannel) -> str:
        return channel_place(channel)

    @display(description=gettext_lazy("Conditions"))
    def show_conditions(self, channel: AlertChannel) -> str:
        names = [str(CONDITIONS[name]) for name in channel.conditions if name in CONDITIONS]
        return ", ".join(names) or str(_("all"))
