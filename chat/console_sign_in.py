"""The console's sign-in form: unfold's, with the bound on failures. Outside chat.admin, as the admin site imports it while it is made."""

from __future__ import annotations

from unfold.forms import AuthenticationForm

from chat.services.sign_in import ThrottledAuthenticationForm


class ConsoleSignInForm(ThrottledAuthenticationForm, AuthenticationForm):
    """Staff only, at most a few failures per account and address."""
