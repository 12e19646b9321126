"""Owners on PostgreSQL: two who take each other's role away at once leave one, and nobody waits for ever."""

import json
import os
import subprocess
import sys

import pytest

from tests.site.serve.test_serving_on_postgres import database_url

pytestmark = [pytest.mark.slow, pytest.mark.postgres]
__all__ = ["database_url"]

SCRIPT = """
import json, threading
import django
django.setup()
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import connection, transaction
call_command("migrate", verbosity=0)
from chat.access.memberships import membership_change, membership_create, membership_delete
from chat.access.people import account_change_check, accounts_delete
from chat.access.roles import Role
from chat.models import Membership, Org

root = User.objects.create_superuser("root")

def demote(kept):
    membership_change(membership=kept, role=Role.MEMBER, may_chat=True)

def take_out(kept):
    membership_delete(membership=kept)

def put_to_sleep(kept):
    with transaction.atomic():
        account_change_check(account=kept.user, is_active=False, is_superuser=False)
        User.objects.filter(pk=kept.user_id).update(is_active=False)

def delete(kept):
    accounts_delete(actor=root, accounts=[kept.user])

def outcomes(name, *acts):
    org = Org.objects.create(name=name)
    ends, together = [], threading.Barrier(len(acts))

    def run(act, kept):
        together.wait()
        try:
            act(kept)
            ends.append("done")
        except ValidationError:
            ends.append("refused")
        except Exception as error:
            ends.append(repr(error))
        connection.close()

    users = [User.objects.create_user(f"{name} {number}") for number in range(len(acts))]
    owners = [membership_create(user=user, org=org, role=Role.OWNER) for user in users]
    threads = [threading.Thread(target=run, args=pair) for pair in zip(acts, owners)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left = Membership.objects.filter(org=org, role="owner", user__is_active=True).count()
    return [*sorted(ends), left]

acts = (demote, take_out, put_to_sleep, delete)
pairs = [(first, second) for first in acts for second in acts] * 2
found = [outcomes(f"{number} {first.__name__} {second.__name__}", first, second)
         for number, (first, second) in enumerate(pairs)]
print(json.dumps(found))
"""


def test_of_two_owners_who_remove_each_other_one_stays(database_url, tmp_path):  # noqa: F811
    environment = os.environ | {
        "DATABASE_URL": database_url,
        "LIGHTCONE_DATA_DIR": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "lightcone_site.settings",
    }
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [["done", "refused", 1]] * 32
