"""Conversations on PostgreSQL: the same search as on SQLite, NUL characters, and writers that wait for each other."""

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
from django.core.management import call_command
from django.db import connection
call_command("migrate", verbosity=0)
from chat.conversations import search, services, turns
from chat.models import ChatSpace, Conversation, SearchText, Turn
from tests.chat.conversations.searching import check_search

ann, bob = (User.objects.create_user(name) for name in ("ann", "bob"))
check_search(ann.pk, bob.pk)
search.NUM_LATEST = 1
check_search(*(User.objects.create_user(name).pk for name in ("cy", "di")))

def question(name, text):
    return turns.TurnSent(name, "", "user", "ended", {"content": text})

services.conversation_create(user_id=bob.pk, public_id="b", fields={"settings": {"system": "a\\0b"}})
turns.turn_put(user_id=bob.pk, conversation_id="b", sent=question("nul", "a\\0b"))
kept = turns.body_of(Turn.objects.get(public_id="nul"))["content"]

def write(number):
    turns.turn_put(user_id=bob.pk, conversation_id="b", sent=question(f"t{number}", "x" * 100))
    connection.close()

threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
row = Conversation.objects.get(public_id="b")
with connection.cursor() as cursor:
    cursor.execute("SET enable_seqscan = off")
    cursor.execute("EXPLAIN SELECT id FROM chat_searchtext WHERE vector @@ to_tsquery('simple', 'x')")
    plan = " ".join(line for (line,) in cursor.fetchall())
counts = [row.num_turns, row.num_bytes == ChatSpace.objects.get(user=bob).num_bytes]
ann.delete()
call_command("migrate", "chat", "0015", verbosity=0)
print(json.dumps({"kept": kept, "counts": counts, "is_indexed": "chat_search" in plan}))
"""


def test_conversations_are_kept_and_found_on_postgresql(database_url, tmp_path):  # noqa: F811
    environment = os.environ | {
        "DATABASE_URL": database_url,
        "LIGHTCONE_DATA_DIR": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "lightcone_site.settings",
    }
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"kept": "a\0b", "counts": [9, True], "is_indexed": True}
