"""What test_usage_on_postgres.py runs in a process of its own: `python -m tests.site.serve.usage_on_postgres STEP`.

Each step prints what it has found as JSON. They share one database.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import threading
import time
from decimal import Decimal
from typing import Any

import django

django.setup()

from django.core.exceptions import ValidationError  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import close_old_connections, connection, transaction  # noqa: E402
from django.db.migrations.executor import MigrationExecutor  # noqa: E402

from chat.budgets.services import budget_save, budget_spent  # noqa: E402
from chat.models import AuditEntry, Budget, BudgetSpend, ModelPrice, Org, Project, RequestLog, UsageSum  # noqa: E402
from chat.relay.state.keys import run_id_create  # noqa: E402
from chat.usage.log_search import logs_with_prefix  # noqa: E402
from chat.usage.models import TTFT_COLUMNS  # noqa: E402
from chat.usage.services import usage_records_write  # noqa: E402
from chat.usage.sums import usage_rebuild  # noqa: E402
from tests.chat.records import NOON, price_from, record  # noqa: E402
from tests.chat.usage.reference import expected, plain, stored  # noqa: E402

DAY = dt.date(2026, 1, 1)
DEADLINE_S = 60.0
NUM_ROWS = 20_000


def sums_are_right() -> bool:
    facts, totals = expected(RequestLog.objects.all())
    return stored() == (plain(facts), plain(totals))


def upgrade() -> dict[str, Any]:
    """Migrate from before the console of usage to the newest, with rows of each table that changes."""
    call_command("migrate", "chat", "0023", verbosity=0)
    executor = MigrationExecutor(connection)
    apps = executor.loader.project_state([("chat", "0023_audit")]).apps
    old = {name: apps.get_model("chat", name) for name in ("Org", "Project", "ApiKey", "ServedModel", "RequestLog")}
    hours = apps.get_model("chat", "UsageHour")
    user = apps.get_model("auth", "User").objects.create(username="ann")
    project = old["Project"].objects.create(org=old["Org"].objects.create(name="one"), name="first")
    old["ApiKey"].objects.create(project=project, name="hers", public_id="accept0001", owner=user)
    old["ServedModel"].objects.create(name="small", path="/models/small.gguf", input_price=1, output_price=2)
    for number in range(3):
        arrived = dt.datetime.fromtimestamp(NOON + number * 60, dt.UTC)
        run_id = run_id_create(at_s=arrived.timestamp())
        rest = {"project_id": project.pk, "key_public_id": "accept0001", "model": "small", "prompt_tokens": 5}
        old["RequestLog"].objects.create(run_id=run_id, arrived_at=arrived, status=200, outcome="finished", **rest)
    where = {"project_id": project.pk, "key_public_id": "accept0001", "model": "small", "status_class": 2}
    start = dt.datetime.fromtimestamp(NOON, dt.UTC)
    hours.objects.create(period_start=start, num_requests=5, prompt_tokens=40, **{TTFT_COLUMNS[0]: 1}, **where)
    call_command("migrate", verbosity=0)
    price = ModelPrice.objects.get()
    return {
        "accounts": sorted({row == user.pk for row in RequestLog.objects.values_list("account_id", flat=True)}),
        "hours": sorted(UsageSum.objects.filter(length_h=1).values_list("num_requests", "prompt_tokens")),
        "price": [str(price.input), str(price.output), price.starts_at == price.model.created_at],
    }


def fresh() -> dict[str, Any]:
    """Migrate from nothing."""
    call_command("migrate", verbosity=0)
    call_command("makemigrations", "chat", check=True, dry_run=True, verbosity=0)
    return {"tables": {"chat_usagesum", "chat_budget"} <= set(connection.introspection.table_names())}


def sums() -> dict[str, Any]:
    """Write records, some twice; break a day's sums and make them anew while another process writes."""
    records = [record(at_s=NOON + number * 600, project_id=number % 3) for number in range(60)]
    usage_records_write(records)
    usage_records_write(records[:20])
    found = {"upsert": sums_are_right()}
    UsageSum.objects.filter(length_h=24).update(prompt_tokens=1)
    done: list[int] = []

    def rebuild() -> None:
        try:
            done.append(usage_rebuild(first=DAY, last=DAY).num_requests)
        finally:
            connection.close()

    thread = threading.Thread(target=rebuild)
    with transaction.atomic():
        usage_records_write([record(at_s=NOON)])
        thread.start()
        found["waits"] = wait_for_lock()
    thread.join()
    found |= {"rebuilt": done[0] > 0, "right": sums_are_right()}
    found["audited"] = AuditEntry.objects.filter(action="usage.rebuild").count()
    return found


def wait_for_lock() -> bool:
    """Wait until another transaction waits for the table of sums."""
    deadline = time.monotonic() + DEADLINE_S
    statement = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'chat_usagesum'::regclass"
    while time.monotonic() < deadline:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            if cursor.fetchone():
                return True
        time.sleep(0.02)
    return False


def prices() -> dict[str, Any]:
    """Charge each request by the price that was in force as it ended."""
    for start, amount in ((NOON, 1), (NOON + 3600, 3)):
        price_from(start, name="dated", input=Decimal(amount), output=Decimal(0))
    fields = {"model": "dated", "prompt_tokens": 1000, "cached_tokens": 0}
    records = [record(at_s=NOON + second, **fields) for second in (-60, 60, 3660)]
    usage_records_write(records)
    rows = RequestLog.objects.filter(model="dated").order_by("arrived_at")
    return {"costs": list(rows.values_list("cost_nanos", flat=True)), "right": sums_are_right()}


def search() -> dict[str, Any]:
    """Search the beginnings of ids and labels among many rows."""
    at = dt.datetime.fromtimestamp(NOON, dt.UTC)
    RequestLog.objects.bulk_create(
        (
            RequestLog(
                run_id=run_id_create(at_s=NOON + number),
                arrived_at=at,
                status=200,
                outcome="finished",
                client_request_id=f"job-{number:06}",
                user_label=f"{number:06}-user",
                batch_id=f"batch_{number:06}" if number % 10 == 0 else "",
            )
            for number in range(NUM_ROWS)
        ),
        batch_size=2000,
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE chat_requestlog")
    columns = {"client_request_id": "job-00012", "user_label": "00012", "batch_id": "batch_00012"}
    plans = {
        name: RequestLog.objects.filter(**{f"{name}__startswith": term}).order_by().values_list("pk").explain()
        for name, term in columns.items()
    }
    found = {term: logs_with_prefix(RequestLog.objects.all(), term) for term in columns.values()}
    return {
        "indexes": {
            name: next((index for index in INDEXES if index in plan), plan) for name, plan in sorted(plans.items())
        },
        "found": {term: [rows.count(), is_few] for term, (rows, is_few) in found.items()},
        "many": [logs_with_prefix(RequestLog.objects.all(), "job-")[0].count()],
    }


INDEXES = ("log_client_request", "log_label", "log_batch_run")


def budgets() -> dict[str, Any]:
    """Store budgets at once that contradict each other, and write what is spent of one."""
    project = Project.objects.create(org=Org.objects.create(name="spends"), name="first")
    fields = {"scope": "project", "project": project, "amount": 100, "is_hard": True}
    answers: list[str] = []

    def second() -> None:
        try:
            budget_save(budget=Budget(name="second", **fields))
            answers.append("stored")
        except ValidationError:
            answers.append("refused")
        finally:
            close_old_connections()
            connection.close()

    budget = Budget(name="first", **fields)
    thread = threading.Thread(target=second)
    with transaction.atomic():
        budget_save(budget=budget)
        thread.start()
    thread.join()
    one = record(budgets={str(budget.pk): "2026-01"}, project_id=project.pk, prompt_tokens=30, completion_tokens=20)
    for _ in range(2):
        usage_records_write([one])
    return {
        "answers": answers,
        "spent": budget_spent(budget_id=budget.pk, window="2026-01"),
        "level": BudgetSpend.objects.get(budget=budget).level,
    }


if __name__ == "__main__":
    steps = {step.__name__: step for step in (upgrade, fresh, sums, prices, search, budgets)}
    sys.stdout.write(json.dumps({name: steps[name]() for name in sys.argv[1:]}))
