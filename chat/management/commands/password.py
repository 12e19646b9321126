"""`manage.py password [NAME]`: give a user a new password and print it, for those who have lost theirs."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseError

from chat.access.accounts import ADMIN_NAME, UserUnknown, password_renew
from chat.access.factors import factors_remove


class Command(BaseCommand):
    help = "Give a user a new random password and print it, once. Their sessions end."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", default=ADMIN_NAME, help=f"the user's name (default: {ADMIN_NAME})")

        parser.add_argument(
            "--remove-factors",
            action="store_true",
            help="also remove the authenticator app, passkeys and recovery codes, for who has lost them",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            password = password_renew(name=options["name"])
            if options["remove_factors"]:
                factors_remove(user=User.objects.get(username=options["name"]))
        except UserUnknown as error:
            raise CommandError(str(error)) from None
        except DatabaseError as error:
            raise CommandError(
                f"the database cannot be used ({error}); start Lightcone once, which prepares it"
            ) from error
        self.stdout.write(password)
        self.stderr.write(f"This is the only time that the new password of {options['name']} is shown.")
