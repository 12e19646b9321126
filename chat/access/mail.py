"""Mail: whether it is set up, and sending a text. Links are secrets: they are in mails, never in logs.

Mails that people ask for without signing in are sent by a thread, as the time of the answer would tell which addresses
have an account.
"""

from __future__ import annotations

import logging
import queue
import smtplib
import threading

from django.conf import settings
from django.core.mail import EmailMessage

logger = logging.getLogger(__name__)
MAX_WAITING = 100


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


class _Sender:
    """One thread that sends mails in turn. It begins with the first one, and ends with its process."""

    def __init__(self) -> None:
        self.waiting: queue.Queue[EmailMessage] = queue.Queue(MAX_WAITING)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, mail: EmailMessage) -> None:
        try:
            self.waiting.put_nowait(mail)
        except queue.Full:
            logger.error("Mail cannot be sent: %s wait already", MAX_WAITING)
            return
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="mail", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            mail = self.waiting.get()
            try:
                mail.send()
            except Exception as error:  # noqa: BLE001 the thread must outlive any mail
                logger.error("Mail cannot be sent: %s", error)
            finally:
                self.waiting.task_done()


_sender = _Sender()


def mail_send_later(*, mail: EmailMessage) -> None:
    """Have a mail sent by a thread. A failure is logged, as is a mail too many."""
    _sender.put(mail)


def mails_wait() -> None:
    """Wait until no mail waits any more, for tests."""
    _sender.waiting.join()
