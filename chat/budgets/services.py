"""Budgets: create, change, delete, what they have spent, and the cached look-up that each request makes."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F
from django.db.models.signals import pre_delete
from django.utils import timezone
from django.utils.translation import gettext as _
from redis.exceptions import RedisError

from chat.access.configuration import TTLCache, configuration_changed, configuration_touch
from chat.access.keys import Caller
from chat.access.memberships import orgs_lock
from chat.audit.services import Subject, audit_record
from chat.audit.values import row_values
from chat.budgets.models import NANOS_PER_MICRO, Budget, BudgetScope, BudgetSpend, Unit
from chat.budgets.windows import LENGTHS, Window, WindowKind, window_at
from chat.catalog.models import ServedModel
from chat.relay.state.budget_counters import Place as CounterPlace
from chat.relay.state.budget_counters import counter_forget
from chat.relay.state.keys import Keys
from chat.relay.valkey import valkey_connect_blocking

logger = logging.getLogger(__name__)

AUDITED = (
    *("name", "scope", "org_id", "project_id", "member_id", "key_id", "model_id"),
    *("unit", "amount", "window", "time_zone", "week_start", "is_hard"),
)
REFERENCES: Mapping[str, str] = {
    str(BudgetScope.ORG): "org",
    str(BudgetScope.PROJECT): "project",
    str(BudgetScope.ACCOUNT): "member",
    str(BudgetScope.KEY): "key",
    str(BudgetScope.MODEL): "model",
}
"""The column that each scope fills."""
LEVELS = (100, 80, 50)
CACHE_TTL_S = 5.0
ALL = "all"
Place = tuple[str, int | str]
"""What a budget is on, as requests know it."""


@dataclass(frozen=True, slots=True)
class BudgetEntry:
    """A budget, as far as requests need to know it."""

    id: int
    name: str
    scope: str
    unit: str
    amount: int
    """In the units of `BudgetSpend.spent`."""
    window: str
    time_zone: str
    week_start: int
    is_hard: bool

    def window_at(self, at: datetime) -> Window:
        return window_at(at, kind=self.window, zone=self.time_zone, week_start=self.week_start)


def budget_save(*, budget: Budget) -> None:
    """Store a new or changed budget. Raises ValidationError."""
    budget.org = budget_org(budget)
    for scope, column in REFERENCES.items():
        if column != "org" and scope != budget.scope:
            setattr(budget, column, None)
    with transaction.atomic():
        _lock(budget)
        budget_check(budget=budget)
        before = Budget.objects.filter(pk=budget.pk).values(*AUDITED).first() if budget.pk else None
        budget.save()
        verb = "create" if before is None else "change"
        after = row_values(budget, AUDITED)
        audit_record(action=f"budget.{verb}", on=budget_subject(budget), before=before, after=after)
        configuration_touch()
        if before is not None and before["is_hard"] != budget.is_hard:
            _counter_forget(budget_entry(budget))


def _lock(budget: Budget) -> None:
    """Lock what a budget belongs to until the transaction ends, so that two budgets at once cannot contradict."""
    if budget.org_id is not None:
        orgs_lock(org_ids=[budget.org_id])
    elif budget.model_id is not None:
        list(ServedModel.objects.select_for_update(no_key=True).filter(pk=budget.model_id).values_list("pk"))


def _counter_forget(entry: BudgetEntry) -> None:
    """Forget what Valkey counts of a budget: while it is soft, only SQL counts what is spent."""
    place = CounterPlace(entry.id, entry.window_at(timezone.now()).id)
    try:
        with valkey_connect_blocking(settings.LIGHTCONE_REDIS_URL) as client:
            counter_forget(client, Keys(settings.LIGHTCONE_DEPLOYMENT), place)
    except (RedisError, OSError) as error:
        logger.warning("the maintenance worker will rebuild the counter of budget %d: %s", entry.id, error)


def budget_delete(*, budget: Budget) -> None:
    """Delete a budget with what it has counted. What it limited is limited no more."""
    with transaction.atomic():
        budget.delete()
        configuration_touch()


def _before_delete(sender: Any, instance: Budget, **_options: Any) -> None:
    """Audit a deletion, be it of the budget itself or of what it is on. It is in the transaction of that."""
    audit_record(action="budget.delete", on=budget_subject(instance), before=row_values(instance, AUDITED))


pre_delete.connect(_before_delete, sender=Budget, dispatch_uid="chat.budgets.services")


def budget_subject(budget: Budget) -> Subject:
    return Subject(budget.pk, budget.name, budget.org_id or 0, budget.project_id or 0)


def budget_org(budget: Budget) -> Any:
    """Return the organisation that a budget belongs to, None for one on a model."""
    if budget.scope == BudgetScope.ORG:
        return budget.org
    if budget.scope == BudgetScope.PROJECT and budget.project is not None:
        return budget.project.org
    if budget.scope == BudgetScope.ACCOUNT and budget.member is not None:
        return budget.member.org
    if budget.scope == BudgetScope.KEY and budget.key is not None:
        return budget.key.project.org
    return None


def budget_check(*, budget: Budget) -> None:
    """Raise ValidationError for a budget that lacks what it is on, or contradicts another one."""
    column = REFERENCES.get(budget.scope, "org")
    if getattr(budget, f"{column}_id") is None:
        raise ValidationError({column: _("Choose what the budget is on.")})
    if budget.scope == BudgetScope.KEY and budget.key is not None and budget.key.deleted_at is not None:
        raise ValidationError({"key": _("This key is deleted; choose another.")})
    budget.full_clean()
    others = Budget.objects.exclude(pk=budget.pk).filter(
        scope=budget.scope, unit=budget.unit, is_hard=budget.is_hard, **{column: getattr(budget, column)}
    )
    for other in others:
        _check_fit(budget, other)


def _check_fit(budget: Budget, other: Budget) -> None:
    """Refuse a second budget of a window, and one of a shorter window that allows more than a longer one."""
    if budget.window == other.window:
        message = _("The budget “%(name)s” has the same window; change that one instead.")
        raise ValidationError({"window": message % {"name": other.name}})
    length, other_length = (LENGTHS.get(WindowKind(one.window)) for one in (budget, other))
    is_shorter = length is not None and (other_length is None or length < other_length)
    shorter, longer = (budget, other) if is_shorter else (other, budget)
    if shorter.amount > longer.amount:
        message = _("It conflicts with “%(name)s”: a shorter window may not allow more than a longer one.")
        raise ValidationError({"amount": message % {"name": other.name}})


_cache: TTLCache[dict[Place, tuple[BudgetEntry, ...]]] = TTLCache(max_entries=1, ttl_s=CACHE_TTL_S)


def budgets_cache_clear(**_options: object) -> None:
    """Empty the cache of budgets, as a receiver of `configuration_changed`."""
    _cache.clear()


configuration_changed.connect(budgets_cache_clear, dispatch_uid="chat.budgets.services")


async def budgets_of(*, caller: Caller, model: str) -> tuple[BudgetEntry, ...]:
    """Return the budgets that a caller's request to a model counts to, using a thread only if they are not cached."""
    budgets = _cache.get(ALL)
    if budgets is None:
        budgets = await database_sync_to_async(_budgets_read)()
    if not budgets:
        return ()
    places: list[Place] = [
        (str(BudgetScope.KEY), caller.key_id),
        (str(BudgetScope.ACCOUNT), f"{caller.org_id}:{caller.account_id}"),
        (str(BudgetScope.PROJECT), caller.project_id),
        (str(BudgetScope.ORG), caller.org_id),
        (str(BudgetScope.MODEL), model),
    ]
    return tuple(entry for place in places for entry in budgets.get(place, ()))


def _budgets_read() -> dict[Place, tuple[BudgetEntry, ...]]:
    generation = _cache.generation
    found: dict[Place, list[BudgetEntry]] = defaultdict(list)
    for budget in Budget.objects.select_related("member", "model"):
        found[_place(budget)].append(budget_entry(budget))
    budgets = {place: tuple(entries) for place, entries in found.items()}
    _cache.put(ALL, budgets, generation=generation)
    return budgets


def _place(budget: Budget) -> Place:
    if budget.scope == BudgetScope.ACCOUNT and budget.member is not None:
        return str(BudgetScope.ACCOUNT), f"{budget.member.org_id}:{budget.member.user_id}"
    if budget.scope == BudgetScope.MODEL and budget.model is not None:
        return str(BudgetScope.MODEL), budget.model.name
    return str(budget.scope), getattr(budget, f"{REFERENCES[budget.scope]}_id")


def budget_entry(budget: Budget) -> BudgetEntry:
    amount = budget.amount * (NANOS_PER_MICRO if budget.unit == Unit.MONEY else 1)
    return BudgetEntry(
        *(budget.pk, budget.name, budget.scope, budget.unit, amount),
        *(budget.window, budget.time_zone, budget.week_start, budget.is_hard),
    )


def budget_spent(*, budget_id: int, window: str) -> int:
    """Return what SQL knows to be spent of a budget in a window."""
    row = BudgetSpend.objects.filter(budget=budget_id, window=window).values_list("spent", flat=True).first()
    return row or 0


def budget_spends_add(spends: Iterable[tuple[Mapping[str, str], int, int]]) -> None:
    """Add runs to their budgets: the window by id of the budget, tokens, and billionths of the currency.

    Call it in the transaction that stores the runs. Budgets that are deleted since are passed over.
    """
    tokens: dict[tuple[int, str], int] = defaultdict(int)
    money: dict[tuple[int, str], int] = defaultdict(int)
    for stamps, num_tokens, nanos in spends:
        for name, window in stamps.items():
            tokens[int(name), window] += num_tokens
            money[int(name), window] += nanos
    if not tokens:
        return
    ids = {budget_id for budget_id, _window in tokens}
    budgets = {budget.pk: budget_entry(budget) for budget in Budget.objects.filter(pk__in=ids)}
    for (budget_id, window), num_tokens in sorted(tokens.items()):
        if (entry := budgets.get(budget_id)) is not None:
            amount = money[budget_id, window] if entry.unit == Unit.MONEY else num_tokens
            _spend_add(entry, window, amount)


def _spend_add(entry: BudgetEntry, window: str, amount: int) -> None:
    rows = BudgetSpend.objects.filter(budget=entry.id, window=window)
    if not rows.update(spent=F("spent") + amount):
        BudgetSpend.objects.create(budget_id=entry.id, window=window, spent=amount)
    row = rows.get()
    reached = next((level for level in LEVELS if row.spent * 100 >= level * entry.amount), 0)
    if reached > row.level:
        rows.update(level=reached, level_at=timezone.now())
