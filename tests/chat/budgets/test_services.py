"""Budgets: what contradicts is refused, what is spent is written with the rows, and Valkey's counters come back."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db import connection, transaction

from chat.access.keys import key_caller, key_create
from chat.access.memberships import membership_delete
from chat.access.people import accounts_delete
from chat.audit.models import AuditEntry
from chat.budgets.counters import Rebuild, counter_fill
from chat.budgets.forecast import BudgetView
from chat.budgets.models import Budget, BudgetSpend, money_text
from chat.budgets.services import BudgetEntry, budget_delete, budget_save, budget_spent, budgets_cache_clear
from chat.budgets.windows import window_at
from chat.catalog.services import model_delete, model_register, model_resolve
from chat.generation.limits import LimitExceeded, admission_error
from chat.generation.metering import Metering, metering_of
from chat.models import ApiKey, Project
from chat.relay.state.keys import run_id_create
from chat.relay.state.meters import BudgetMeter, Cost
from chat.relay.state.runs import RunCompletion
from chat.relay.valkey import valkey_connect_blocking
from chat.usage.services import usage_records_write
from tests.chat.records import price_from
from tests.chat.relay.world import World

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


def budget_of(project: Project, /, **fields: Any) -> Budget:
    values = {"name": "month", "scope": "project", "project": project, "amount": 1_000, "is_hard": True}
    budget = Budget(**values | fields)
    budget_save(budget=budget)
    return budget


def record(stamps: dict[str, str], **fields: Any) -> dict[str, Any]:
    values = {"run_id": run_id_create(), "arrived_at": NOW.timestamp(), "status": 200, "outcome": "finished"}
    return values | {"budgets": stamps, "model": "large", "prompt_tokens": 30, "completion_tokens": 20} | fields


@pytest.fixture
def deployment(valkey: str, settings: Any) -> Iterator[str]:
    settings.LIGHTCONE_REDIS_URL = valkey
    settings.LIGHTCONE_DEPLOYMENT = f"test-{secrets.token_hex(4)}"
    return settings.LIGHTCONE_DEPLOYMENT


@pytest.mark.parametrize(
    ("fields", "place", "sentence"),
    [
        ({"amount": 0}, "amount", "greater than or equal to 1"),
        ({"amount": -5}, "amount", "greater than or equal to 1"),
        ({"amount": 10**16}, "amount", "less than or equal to"),
        ({"time_zone": "Europe/Atlantis"}, "time_zone", "is no time zone"),
        ({"time_zone": "../etc/passwd"}, "time_zone", "is no time zone"),
        ({"window": "fortnight"}, "window", "not a valid choice"),
        ({"project": None}, "project", "Choose what the budget is on"),
        ({"scope": "key"}, "key", "Choose what the budget is on"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(
    project: Project, fields: dict[str, Any], place: str, sentence: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        budget_of(project, **fields)
    assert sentence in " ".join(raised.value.message_dict[place])
    assert not Budget.objects.exists()


def test_windows_that_contradict_each_other_are_refused(project: Project) -> None:
    budget_of(project, window="month", amount=1_000)
    with pytest.raises(ValidationError, match="same window"):
        budget_of(project, window="month", amount=500)
    with pytest.raises(ValidationError, match="shorter window may not allow more"):
        budget_of(project, window="day", amount=1_001)
    with pytest.raises(ValidationError, match="shorter window may not allow more"):
        budget_of(project, window="lifetime", amount=999)
    budget_of(project, window="day", amount=100)
    budget_of(project, window="month", amount=500, is_hard=False)


@pytest.mark.django_db(transaction=True)
def test_two_budgets_made_at_once_cannot_contradict_each_other(project: Project) -> None:
    """Both were compared with those before either was stored."""
    answers: list[str] = []

    def second() -> None:
        try:
            budget_of(project, amount=500)
            answers.append("stored")
        except ValidationError as error:
            answers.append(str(error))
        finally:
            connection.close()

    with transaction.atomic():
        budget_of(project, amount=1_000)
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.3)  # it waits for this transaction
        assert not answers
    thread.join()
    assert "same window" in answers[0]
    assert Budget.objects.count() == 1


def test_a_deleted_key_gets_no_budget_and_acts_are_audited(project: Project) -> None:
    key, _ = key_create(project=project, name="k")
    ApiKey.objects.update(deleted_at=NOW)
    key.refresh_from_db()
    with pytest.raises(ValidationError, match="deleted"):
        budget_of(project, scope="key", key=key)
    budget = budget_of(project)
    budget.amount = 2_000
    budget_save(budget=budget)
    budget_delete(budget=budget)
    entries = AuditEntry.objects.filter(action__startswith="budget.").order_by("id")
    actions = list(entries.values_list("action", flat=True))
    assert actions == ["budget.create", "budget.change", "budget.delete"]


def test_budgets_that_go_with_what_they_are_on_are_audited(project: Project, admin_user: Any) -> None:
    """They went with a membership, a model or an account, and nothing said that they had been."""
    model = model_register(name="large", path="/models/large.gguf")
    member = project.org.memberships.create(user=get_user_model().objects.create_user("one"), role="member")
    other = get_user_model().objects.create_user("other")
    others = project.org.memberships.create(user=other, role="member")
    budget_of(project, name="of the member", scope="account", member=member)
    budget_of(project, name="of the account", scope="account", member=others)
    budget_of(project, name="of the model", scope="model", model=model)
    budget_of(project, name="of the project")
    membership_delete(membership=member)
    model_delete(model=model)
    accounts_delete(actor=admin_user, accounts=[other])
    project.delete()
    entries = AuditEntry.objects.filter(action="budget.delete").order_by("id")
    assert [(entry.object_name, entry.org_id > 0) for entry in entries] == [
        ("of the member", True),
        ("of the model", False),
        ("of the account", True),
        ("of the project", True),
    ]
    assert entries[0].before["amount"] == 1_000


def test_spending_is_written_once_with_the_rows_and_levels_are_noted(project: Project) -> None:
    price_from(0, name="large", input=Decimal(1), output=Decimal(2))
    tokens = budget_of(project, amount=100)
    money = budget_of(project, unit="money", amount=1_000)
    stamps = {str(tokens.pk): "2026-11", str(money.pk): "2026-11", "999": "2026-11"}
    one = record(stamps)
    for _ in range(2):
        usage_records_write([one])
    assert budget_spent(budget_id=tokens.pk, window="2026-11") == 50
    assert budget_spent(budget_id=money.pk, window="2026-11") == 30 * 1_000 + 20 * 2_000, "billionths"
    row = BudgetSpend.objects.get(budget=tokens)
    assert row.level == 50
    usage_records_write([record(stamps), record(stamps, outcome="rejected", status=400)])
    row.refresh_from_db()
    assert (row.spent, row.level) == (100, 100)


@pytest.mark.django_db(transaction=True)
def test_counters_are_filled_when_they_are_missing_and_rebuilt_on_demand(
    valkey: str, deployment: str, project: Project
) -> None:
    budget = budget_of(project, window="lifetime")
    usage_records_write([record({str(budget.pk): "all"})])
    with valkey_connect_blocking(valkey) as client:
        name = f"{deployment}:budget:{budget.pk}:all"
        assert Rebuild().turn() == 1
        assert client.hmget(name, "spent", "held") == [b"50", b"0"]
        client.hset(name, mapping={"spent": 7, "held": 40, "run:gone": 40})
        assert Rebuild().turn() == 1
        assert client.hgetall(name) == {b"spent": b"50", b"held": b"0"}, "a run that is gone holds nothing"
        client.xadd(f"{deployment}:usage", {"r": b"x"})
        client.hset(name, "spent", 90)
        assert Rebuild().turn() is None, "SQL lacks a run that has ended"
        assert client.hget(name, "spent") == b"90"


@pytest.mark.parametrize(
    ("nanos", "text"),
    [
        (0, "0.00 EUR"),
        (1_000, "0.000001 EUR"),
        (25_000_000, "0.025 EUR"),
        (1_234_500_000_000, "1,234.50 EUR"),
        (2_000_000_000, "2.00 EUR"),
    ],
)
def test_small_amounts_of_money_are_not_read_as_nothing(settings: Any, nanos: int, text: str) -> None:
    settings.LIGHTCONE_CURRENCY = "EUR"
    assert money_text(nanos) == text


def test_the_forecast_counts_from_the_creation_of_a_budget() -> None:
    """A budget of the month's last days was forecast by the share of the whole month."""
    window = window_at(NOW, kind="month", zone="UTC")
    entry = BudgetEntry(1, "b", "project", "tokens", 1_000, "month", "UTC", 0, True)
    views = [
        BudgetView(entry, window, 100, 0, created_at=created_at)
        for created_at in (datetime(2026, 1, 1, tzinfo=UTC), NOW - timedelta(days=1), NOW - timedelta(minutes=5))
    ]
    share = 25.5 / 30
    assert [view.forecast(NOW) for view in views] == [round(100 / share), 550, None]


@pytest.mark.django_db(transaction=True)
def test_a_budget_that_becomes_hard_again_forgets_what_valkey_counted_before(
    valkey: str, deployment: str, project: Project
) -> None:
    budget = budget_of(project, window="lifetime")
    meter = BudgetMeter(budget.pk, "all", 0, budget.amount)

    async def spend() -> list[bytes]:
        world = World(valkey, deployment)
        try:
            web = await world.web()
            await world.worker()
            await counter_fill(world.client, world.keys, meter)

            async def admit() -> tuple[str, str]:
                admission = world.admission(
                    scopes=(), cost=Cost(1, input_bound=100, output_bound=100), budgets=(meter,)
                )
                result = await world.runs.admit(admission, web_id=web.web_id, channel=web.channel)
                return admission.request.run_id, result.decision

            early, _ = await admit()
            lasting, _ = await admit()
            for is_hard in (False, True):
                budget.is_hard = is_hard
                await database_sync_to_async(budget_save)(budget=budget)
            await database_sync_to_async(usage_records_write)([record({str(budget.pk): "all"})])
            assert await world.runs.finish(RunCompletion(early, 1, "large", record={"prompt_tokens": 60})) == "ended"
            assert (await admit())[1] == "unknown", "the old figure admits nothing"
            await counter_fill(world.client, world.keys, meter)
            assert (await admit())[1] == "go"
            assert await world.runs.find(lasting) is not None
            return await world.client.hmget(f"{deployment}:budget:{budget.pk}:all", "spent", "held")
        finally:
            await world.close()

    assert asyncio.run(spend()) == [b"50", b"400"], "what the database has, and what runs that live reserve"


def test_a_budget_becomes_hard_while_valkey_is_away(project: Project, settings: Any) -> None:
    settings.LIGHTCONE_REDIS_URL = "unix:///nonexistent/valkey.sock"
    budget = budget_of(project, is_hard=False)
    budget.is_hard = True
    budget_save(budget=budget)
    assert Budget.objects.get().is_hard


@pytest.mark.django_db(transaction=True)
def test_counters_are_rebuilt_while_records_keep_coming(
    valkey: str, deployment: str, project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    """They waited for an instant without any record in the stream, which a steady load does not have."""
    quiet, busy = budget_of(project, window="lifetime"), budget_of(project, window="lifetime", unit="money")
    now = 0.0
    rebuild = Rebuild(clock=lambda: now)
    with valkey_connect_blocking(valkey) as client:
        names = [f"{deployment}:budget:{budget.pk}:all" for budget in (quiet, busy)]
        for name in names:
            client.hset(name, "spent", 90)
        stream = f"{deployment}:usage"
        first = client.xadd(stream, {"r": b"x"})
        assert rebuild.turn() is None
        client.xadd(stream, {"r": b"y"})
        now = 61.0
        assert rebuild.turn() is None, "SQL lacks the first record"
        assert "2 hard budgets" in caplog.text
        client.hset(names[1], "spent", 95)
        client.xdel(stream, first)
        assert rebuild.turn() == 1
        assert [client.hget(name, "spent") for name in names] == [b"0", b"95"], "what has changed since is left"
        client.delete(stream)
        assert rebuild.turn() == 2


@pytest.mark.django_db(transaction=True)
def test_a_request_obeys_every_budget_and_is_told_which_refuses(valkey: str, deployment: str, project: Project) -> None:
    model_register(name="large", path="/models/large.gguf")
    key, _ = key_create(project=project, name="k")
    day = budget_of(project, name="day", window="day", amount=100)
    soft = budget_of(project, name="soft", window="day", amount=10, is_hard=False)
    entry = model_resolve(name="large")
    assert entry is not None
    caller = key_caller(public_id=key.public_id)
    budgets_cache_clear()
    metering = asyncio.run(metering_of(caller=caller, model=entry, at=NOW))
    assert metering.stamps == {str(day.pk): "2026-11-26", str(soft.pk): "2026-11-26"}
    assert [meter.budget_id for meter in metering.budgets] == [day.pk]
    refused = asyncio.run(_spend_all(valkey, deployment, metering))
    assert refused.code == "insufficient_quota"
    assert "day: 100 tokens per day" in refused.message
    assert "reopens at 2026-11-27 00:00 UTC" in refused.message
    assert refused.limit_hit == f"budget {day.pk} day: 100 tokens per day"


async def _spend_all(url: str, deployment: str, metering: Metering) -> LimitExceeded:
    world = World(url, deployment)
    try:
        web = await world.web()
        await world.worker()

        async def admit(cost: Cost) -> tuple[str, Any]:
            admission = world.admission(scopes=(), cost=cost, budgets=metering.budgets)
            result = await world.runs.admit(admission, web_id=web.web_id, channel=web.channel)
            return admission.request.run_id, result

        open_ended = Cost(1, input_bound=40, output_bound=-1, is_open=True)
        assert (await admit(open_ended))[1].decision == "unknown"
        await counter_fill(world.client, world.keys, metering.budgets[0])
        run_id, result = await admit(open_ended)
        assert (result.decision, result.cap) == ("go", 60), "the answer may take what the budget still covers"
        claim = await world.runs.claim(run_id, 1, "model@here~1")
        assert claim is not None
        assert claim.request.stop.absent_max_tokens == 60
        used = {"prompt_tokens": 35, "cached_tokens": 0, "completion_tokens": 60}
        assert await world.runs.finish(RunCompletion(run_id, 1, "large", record=used)) == "ended"
        _, result = await admit(open_ended)
        error = admission_error("large", result, {}, (), metering.budgets)
        assert isinstance(error, LimitExceeded)
        return error
    finally:
        await world.close()
