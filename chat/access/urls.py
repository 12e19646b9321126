"""Routes of signing in and of one's own account. Pages are django-allauth's behind our addresses and templates.

Pages of django-allauth that have no address here do not exist: signing up, lists of e-mail addresses, codes by e-mail.
"""

from __future__ import annotations

from allauth.account import views as account_views
from allauth.mfa.base import views as factor_views
from allauth.mfa.recovery_codes import views as recovery_views
from allauth.mfa.totp import views as totp_views
from allauth.mfa.webauthn import views as passkey_views
from allauth.socialaccount.providers.openid_connect import views as provider_views
from django.contrib.auth.views import LogoutView
from django.urls import path, re_path
from django.views.generic import RedirectView

from chat.access import account_pages, invitation_pages

to_account = RedirectView.as_view(pattern_name="account")
sign_out = LogoutView.as_view(next_page="sign_in")

urlpatterns = [
    path("sign-in", account_pages.sign_in, name="sign_in"),
    path("sign-in", account_pages.sign_in, name="account_login"),
    path("sign-in/code", factor_views.authenticate, name="mfa_authenticate"),
    path("sign-in/passkey", passkey_views.login_webauthn, name="mfa_login_webauthn"),
    path("sign-in/confirm", account_views.reauthenticate, name="account_reauthenticate"),
    path("sign-in/confirm/code", factor_views.reauthenticate, name="mfa_reauthenticate"),
    path("sign-in/confirm/passkey", passkey_views.reauthenticate_webauthn, name="mfa_reauthenticate_webauthn"),
    path("sign-in/oidc/<slug:provider_id>/login/", account_pages.provider_begin, name="openid_connect_login"),
    path("sign-in/oidc/<slug:provider_id>/login/callback/", provider_views.callback, name="openid_connect_callback"),
    path("sign-out", sign_out, name="sign_out"),
    path("password-reset", account_pages.password_reset, name="account_reset_password"),
    path("password-reset/sent", account_views.password_reset_done, name="account_reset_password_done"),
    path(
        "password-reset/done", account_views.password_reset_from_key_done, name="account_reset_password_from_key_done"
    ),
    re_path(
        r"^password-reset/(?P<uidb36>[0-9A-Za-z]{1,20})-(?P<key>[0-9A-Za-z-]{1,100})\Z",
        account_views.password_reset_from_key,
        name="account_reset_password_from_key",
    ),
    re_path(r"^invitations/(?P<secret>[A-Za-z0-9_-]{1,64})\Z", invitation_pages.invitation, name="invitation"),
    path("account", account_pages.account, name="account"),
    path("account/details", account_pages.details, name="account_details"),
    path("account", to_account, name="mfa_index"),
    path("account", to_account, name="mfa_list_webauthn"),
    path("account/chat-project", account_pages.chat_project_change, name="account_chat_project"),
    path("account/password", account_pages.password_change, name="account_change_password"),
    path("account/password/first", account_views.password_set, name="account_set_password"),
    path("account/app", totp_views.activate_totp, name="mfa_activate_totp"),
    path("account/app/remove", totp_views.deactivate_totp, name="mfa_deactivate_totp"),
    path("account/recovery-codes", recovery_views.view_recovery_codes, name="mfa_view_recovery_codes"),
    path("account/recovery-codes/new", recovery_views.generate_recovery_codes, name="mfa_generate_recovery_codes"),
    path("account/recovery-codes/file", recovery_views.download_recovery_codes, name="mfa_download_recovery_codes"),
    path("account/passkeys/add", passkey_views.add_webauthn, name="mfa_add_webauthn"),
    path("account/passkeys/<int:pk>/remove", passkey_views.remove_webauthn, name="mfa_remove_webauthn"),
    path("account/passkeys/<int:pk>/rename", passkey_views.edit_webauthn, name="mfa_edit_webauthn"),
    path("account/browsers/<int:browser_id>/sign-out", account_pages.browser_end, name="browser_end"),
    path("account/browsers/sign-out", account_pages.browsers_end, name="browsers_end"),
    path("account/provider/remove", account_pages.provider_remove, name="provider_remove"),
]
