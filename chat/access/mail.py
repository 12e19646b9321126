"""Mail: whether it is set up, and sending a text. Links are secrets: they are in mails, never in logs."""

from __future__ import annotations

import smtplib

from django.conf import settings
from django.core.mail import EmailMessage


class MailFailed(Exception):
    """The error for a mail that could not be handed to the mail server; the message is what the server said."""


def mail_is_set_up() -> bool:
    return bool(settings.LIGHTCONE_MAIL.is_set_up)


def mail_send(*, to: str, subject: str, text: str) -> None:
    """Send a mail. Raises MailFailed."""
    try:
        EmailMessage(subject, text, to=[to]).send()
    except (OSError, smtplib.SMTPException) as error:
        raise MailFailed(str(error)[:300] or type(error).__name__) from error
