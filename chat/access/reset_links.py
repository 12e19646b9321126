"""Links for a new password: they work once, for three days, and end with the next sign-in of their account.

They are of the kind that django-allauth sends by e-mail, and its page takes both.
"""

from __future__ import annotations

from allauth.account.forms import default_token_generator
from allauth.account.utils import user_pk_to_url_str
from django.contrib.auth.models import User
from django.urls import reverse

from chat.access.subjects import user_subject
from chat.audit.services import audit_record


def reset_link_create(*, user: User) -> str:
    """Return the path of a new link. It is not stored; who has it sets the password."""
    key = default_token_generator.make_token(user)
    audit_record(action="user.reset_link", on=user_subject(user))
    return reverse("account_reset_password_from_key", kwargs={"uidb36": user_pk_to_url_str(user), "key": key})
