"""The audit log on PostgreSQL: entries with odd characters are stored, and nobody changes, deletes or empties them."""

import json
import os
import subprocess
import sys

import pytest

from tests.site.serve.test_serving_on_postgres import database_url

pytestmark = [pytest.mark.slow, pytest.mark.postgres]
__all__ = ["database_url"]

SCRIPT = """
import json
from datetime import timedelta
import django
django.setup()
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.utils import timezone
call_command("migrate", verbosity=0)
from chat.audit.services import Subject, audit_prune, audit_record
from chat.models import AuditEntry

audit_record(action="key.create", on=Subject("1", "a\\0b"), after={"n\\0": ["x\\0", "\\ud800"]})
for days in (364, 366, 800):
    at = timezone.now() - timedelta(days=days)
    AuditEntry.objects.create(at=at, actor_kind="user", action="key.create", object_kind="key")
refused = []
for statement in ("UPDATE chat_auditentry SET action = ''", "DELETE FROM chat_auditentry", "TRUNCATE chat_auditentry"):
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
    except DatabaseError as error:
        refused.append("neither changed nor deleted" in str(error))
pruned = audit_prune(before=timezone.now())
left = AuditEntry.objects.count()
stored = AuditEntry.objects.order_by("pk").first().after
call_command("migrate", "chat", "0022", verbosity=0)
call_command("migrate", verbosity=0)
print(json.dumps({"refused": refused, "pruned": pruned, "left": left, "stored": stored}))
"""


def test_the_audit_log_is_kept_on_postgresql(database_url, tmp_path):  # noqa: F811
    environment = os.environ | {
        "DATABASE_URL": database_url,
        "LIGHTCONE_DATA_DIR": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "lightcone_site.settings",
    }
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "refused": [True, True, True],
        "pruned": 2,
        "left": 3,
        "stored": {"n\ufffd": ["x\ufffd", "?"]},
    }
