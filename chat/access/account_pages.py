"""Pages of one's own account, and the sign-in page.

What django-allauth asks and stores is its; addresses, templates and what stands beside the forms are ours.
"""

from __future__ import annotations

from typing import Any

import requests
from allauth.account.decorators import reauthentication_required
from allauth.account.views import LoginView, PasswordChangeView, PasswordResetView
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.models import Authenticator
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.models import SocialAccount
from allauth.socialaccount.providers.openid_connect import views as provider_views
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from chat.access.addresses import is_loopback
from chat.access.browsers import browser_name, browser_sign_out, browsers_of, browsers_sign_out
from chat.access.chat_projects import chat_project, chat_project_choose, chat_projects
from chat.access.models import Membership
from chat.access.people import playground_is_open_to
from chat.access.policy import may
from chat.access.roles import Act
from chat.access.subjects import user_subject
from chat.audit.services import audit_record


class SignIn(LoginView):
    """The one sign-in page of console, playground and documentation."""

    def get_context_data(self, **context: Any) -> dict[str, Any]:
        more = {"provider": provider_login(self.request), "can_mail": settings.LIGHTCONE_MAIL.is_set_up}
        return super().get_context_data(**context) | more | {"can_use_passkeys": passkeys_work(self.request)}


class PasswordReset(PasswordResetView):
    """The request for a link by e-mail. Without mail the page says whom to ask."""

    def get_context_data(self, **context: Any) -> dict[str, Any]:
        return super().get_context_data(**context) | {"can_mail": settings.LIGHTCONE_MAIL.is_set_up}

    def post(self, request: HttpRequest, *args: Any, **options: Any) -> HttpResponse:
        if not settings.LIGHTCONE_MAIL.is_set_up:
            return redirect("account_reset_password")
        answer: HttpResponse = super().post(request, *args, **options)
        return answer


sign_in = SignIn.as_view()
password_reset = PasswordReset.as_view()
password_change = PasswordChangeView.as_view()


def provider_login(request: HttpRequest, *, process: str = "login") -> dict[str, str] | None:
    """Return what the form that leads to the OpenID provider needs, None where there is no provider."""
    if not settings.LIGHTCONE_OIDC.issuer:
        return None
    address = reverse("openid_connect_login", kwargs={"provider_id": settings.LIGHTCONE_OIDC.provider_id})
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    return {"name": settings.LIGHTCONE_OIDC.name, "url": address, "process": process, "next": wanted}


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def provider_begin(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Send the browser to the OpenID provider, on a POST alone: a link of anybody could end a session and begin one.

    The way there is a page that leads on, as the content policy lets no form be redirected to another host. A GET
    leads to the sign-in page, as does a provider that is away. Raises Http404.
    """
    if not settings.LIGHTCONE_OIDC.issuer or provider_id != settings.LIGHTCONE_OIDC.provider_id:
        raise Http404
    if request.method != "POST":
        return redirect("sign_in")
    answer = _provider_answer(request, provider_id)
    address = answer.headers.get("Location", "")
    if url_has_allowed_host_and_scheme(address, allowed_hosts={request.get_host()}):
        return answer
    return render(request, "account/provider_leave.html", {"address": address, "name": settings.LIGHTCONE_OIDC.name})


def _provider_answer(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Return django-allauth's redirect to the provider, or to the sign-in page if the provider is away."""
    try:
        answer: HttpResponse = provider_views.login(request, provider_id)
    except (requests.RequestException, KeyError) as error:
        try:
            get_adapter().on_authentication_error(request, provider_id, exception=error)
        except ImmediateHttpResponse as back:
            return back.response
        raise
    return answer


def passkeys_work(request: HttpRequest) -> bool:
    """Return True where browsers offer passkeys: over HTTPS, and at the name `localhost`, not at a bare address."""
    name = request.get_host().rpartition(":")[0] or request.get_host()
    return request.is_secure() or (name == "localhost" and is_loopback(name))


class DetailsForm(forms.ModelForm):
    """Name and e-mail address of one's own account."""

    class Meta:
        model = User
        fields = ("first_name", "last_name", "email")
        labels = {"first_name": _("First name"), "last_name": _("Last name"), "email": _("E-mail address")}

    def clean_email(self) -> str:
        """Refuse the address of somebody else: links for new passwords and the OpenID provider go by it."""
        email: str = self.cleaned_data["email"]
        if email and User.objects.filter(email__iexact=email).exclude(pk=self.instance.pk).exists():
            raise forms.ValidationError(gettext("Another account has this address."))
        return email


@never_cache
@require_safe
@login_required
def account(request: HttpRequest) -> HttpResponse:
    """Show what belongs to the person: sign-in, browsers, roles, and where the rest is."""
    user = request.user
    factors = list(Authenticator.objects.filter(user=user).order_by("created_at"))
    codes = next((one.wrap() for one in factors if one.type == Authenticator.Type.RECOVERY_CODES), None)
    browsers = [
        {
            "id": one.pk,
            "name": browser_name(one.user_agent),
            "ip": one.ip,
            "seen": one.last_seen_at,
            "since": one.created_at,
            "is_this": one.session_key == request.session.session_key,
        }
        for one in browsers_of(user)
    ]
    context = {
        "app": next((one for one in factors if one.type == Authenticator.Type.TOTP), None),
        "passkeys": [one for one in factors if one.type == Authenticator.Type.WEBAUTHN],
        "codes_left": None if codes is None else len(codes.get_unused_codes()),
        "can_use_passkeys": passkeys_work(request),
        "provider": provider_login(request, process="connect"),
        "connected": SocialAccount.objects.filter(user=user).first(),
        "browsers": browsers,
        "idle_hours": round(settings.LIGHTCONE_SESSION_IDLE_MINUTES / 60, 1),
        "memberships": Membership.objects.filter(user=user).select_related("org"),
        "projects": user.projects.select_related("org").order_by("org__name", "name"),
        "chat_projects": _chat_projects(user),
        "sees_keys": may(user, Act.KEYS_SEE),
        "sees_usage": may(user, Act.USAGE_SEE),
        "sees_requests": may(user, Act.LOGS_SEE),
    }
    return render(request, "account/account.html", context)


@never_cache
@login_required
@reauthentication_required(app="allauth.account", allow_get=True)
@require_http_methods(["GET", "HEAD", "POST"])
def details(request: HttpRequest) -> HttpResponse:
    """Change name and e-mail address. The change of the address has to be confirmed, as it receives new passwords."""
    form = DetailsForm(request.POST or None, instance=User.objects.get(pk=request.user.pk))
    if request.method == "POST" and form.is_valid():
        with transaction.atomic():
            form.save()
        messages.success(request, gettext("Saved."))
        return redirect("account")
    return render(request, "account/details.html", {"form": form})


def _chat_projects(user: Any) -> dict[str, Any] | None:
    """Return the project that the person's chats count to, and all that they may; None without the playground."""
    if not playground_is_open_to(user):
        return None
    now = chat_project(user=user)
    return {"now": now, "choices": list(chat_projects(user=user).select_related("org").order_by("org__name", "name"))}


@require_POST
@login_required
def chat_project_change(request: HttpRequest) -> HttpResponse:
    """Have the person's chats count to another project, with its models, limits and budgets."""
    number = request.POST.get("project", "")
    try:
        project = chat_project_choose(user=request.user, project_id=int(number) if number.isdecimal() else 0)
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
    else:
        messages.success(request, gettext("Your chats count to %(project)s from now on.") % {"project": project})
    return redirect("account")


@require_POST
@login_required
def browser_end(request: HttpRequest, browser_id: int) -> HttpResponse:
    """Sign one browser out. Raises Http404 for that of somebody else."""
    with transaction.atomic():
        if not browser_sign_out(user=request.user, browser_id=browser_id):
            raise Http404
    messages.success(request, gettext("The browser is signed out."))
    return redirect("account")


@require_POST
@login_required
def browsers_end(request: HttpRequest) -> HttpResponse:
    """Sign all browsers out but this one."""
    with transaction.atomic():
        browsers_sign_out(user=request.user, except_key=request.session.session_key)
    messages.success(request, gettext("All other browsers are signed out."))
    return redirect("account")


@require_POST
@login_required
@reauthentication_required(app="allauth.account")
def provider_remove(request: HttpRequest) -> HttpResponse:
    """Disconnect the OpenID provider's account, unless it is the only way to sign in."""
    user = request.user
    connected = SocialAccount.objects.filter(user=user).first()
    if connected is None:
        raise Http404
    if not user.has_usable_password():
        messages.error(request, gettext("Set a password first: without one this is your only way to sign in."))
        return redirect("account")
    with transaction.atomic():
        audit_record(action="user.provider_remove", on=user_subject(user), before={"id": connected.uid})
        connected.delete()
    messages.success(request, gettext("Disconnected."))
    return redirect("account")
