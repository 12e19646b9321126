"""A small SMTP server for tests, on loopback: it keeps what it is given, or refuses it."""

from __future__ import annotations

import email
import email.policy
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any

from chat.access.mail import mails_wait
from lightcone_site.sign_in import MailSettings


@dataclass
class MailServer:
    port: int = 0
    refuses: bool = False
    is_open: threading.Event = field(default_factory=threading.Event)
    taken: list[EmailMessage] = field(default_factory=list)

    @property
    def mails(self) -> list[EmailMessage]:
        """What has been sent, once nothing waits to be sent any more."""
        mails_wait()
        return self.taken

    def use(self, settings: Any) -> None:
        """Let Django send by this server."""
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", self.port
        settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
        settings.DEFAULT_FROM_EMAIL = "lightcone@example.com"
        settings.LIGHTCONE_MAIL = MailSettings(
            host="127.0.0.1", port=self.port, security="none", password="of-the-mail", sender="lightcone@example.com"
        )

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let nobody in for a while, who then wait."""
        self.is_open.clear()
        try:
            yield
        finally:
            self.is_open.set()

    def text(self) -> str:
        """Return the body of the last mail."""
        return str(self.mails[-1].get_content())


@contextmanager
def mail_server() -> Iterator[MailServer]:
    kept = MailServer()
    kept.is_open.set()

    class Conversation(socketserver.StreamRequestHandler):
        def say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

        def handle(self) -> None:
            kept.is_open.wait()
            self.say("220 tests")
            while line := self.rfile.readline():
                verb = line[:4].upper().strip()
                if verb == b"DATA":
                    self.say("354 go on")
                    self.take()
                elif verb == b"QUIT":
                    self.say("221 bye")
                    return
                elif verb == b"RCPT" and kept.refuses:
                    self.say("550 no such person here")
                else:
                    self.say("250 ok")

        def take(self) -> None:
            lines = []
            while (line := self.rfile.readline()) not in (b".\r\n", b""):
                lines.append(line)
            mail = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
            assert isinstance(mail, EmailMessage)
            kept.taken.append(mail)
            self.say("250 taken")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Conversation) as server:
        server.daemon_threads = True
        kept.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield kept
        mails_wait()
        server.shutdown()
        thread.join()
