"""The console's page of mail: the settings that hold, and a test."""

from __future__ import annotations

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.widgets import UnfoldAdminTextInputWidget

from chat.access.mail import MailFailed, mail_is_set_up, mail_send
from chat.access.policy import may
from chat.access.roles import Act
from chat.audit.services import Subject, audit_record

MASKED = "••••••••"


class TestMailForm(forms.Form):
    to = forms.EmailField(label=gettext_lazy("Send a test to"), widget=UnfoldAdminTextInputWidget)


def mail(request: HttpRequest) -> HttpResponse:
    """Show how mail is sent, and send a test. Raises PermissionDenied."""
    if not may(request.user, Act.SYSTEM_SEE):
        raise PermissionDenied
    can_test = mail_is_set_up() and may(request.user, Act.SYSTEM_TRUST)
    form = TestMailForm(request.POST or None, initial={"to": request.user.email})
    if request.method == "POST":
        if not may(request.user, Act.SYSTEM_TRUST):
            raise PermissionDenied
        if can_test and form.is_valid():
            _test(request, form.cleaned_data["to"])
            return redirect("admin:mail")
    context = admin.site.each_context(request) | {
        "title": _("Mail"),
        "is_set_up": mail_is_set_up(),
        "facts": _facts(),
        "form": form if can_test else None,
    }
    return TemplateResponse(request, "admin/mail.html", context)


def _test(request: HttpRequest, to: str) -> None:
    audit_record(action="mail.test", on=Subject(name=to))
    try:
        mail_send(
            to=to, subject=_("Lightcone: a test"), text=_("Mail of Lightcone arrives. Somebody pressed “Send a test”.")
        )
    except MailFailed as error:
        messages.error(request, _("The mail server refused: %(error)s") % {"error": error})
    else:
        messages.success(request, _("The mail server has taken the mail to %(to)s.") % {"to": to})


def _facts() -> list[tuple[str, str]]:
    """Return the settings of mail by name. The password is masked."""
    mail = settings.LIGHTCONE_MAIL
    return [
        ("LIGHTCONE_SMTP_HOST", mail.host),
        ("LIGHTCONE_SMTP_PORT", str(mail.port)),
        ("LIGHTCONE_SMTP_SECURITY", mail.security),
        ("LIGHTCONE_SMTP_USER", mail.user),
        ("LIGHTCONE_SMTP_PASSWORD", MASKED if mail.password else ""),
        ("LIGHTCONE_SMTP_FROM", mail.sender),
    ]


admin.site.pages.append(path("mail/", admin.site.admin_view(mail), name="mail"))
