from collections import Counter, defaultdict
from datetime import UTC, datetime

from django.db import migrations, models
from django.db.models import Sum

from chat.usage.models import TTFT_COLUMNS
from chat.usage.sums import Tables, sums_add, sums_fill


SUMMED = ("prompt_tokens", "cached_tokens", "completion_tokens", "cost_nanos", "duration_ms", "queue_ms")
HOURS = ("num_requests", "num_left", *SUMMED, *TTFT_COLUMNS)
"""The columns of the hours that there were."""
CLASSES = {2: "answered", 4: "theirs", 5: "ours"}
MOST = 2000


def fill(apps, schema_editor):
    """Sum the request log, and add what only the hours know, as they outlive the log."""
    using = schema_editor.connection.alias
    tables = Tables(*(apps.get_model("chat", name) for name in ("RequestLog", "UsageSum", "UsageTotal")), using=using)
    log = tables.log.objects.using(using)
    sums_fill(log.all(), tables)
    hours = apps.get_model("chat", "UsageHour").objects.using(using).order_by("pk")
    last = 0
    while some := list(hours.filter(pk__gt=last)[:MOST]):
        add_rest(some, tables)
        last = some[-1].pk


def add_rest(hours, tables):
    """Add what hours have beyond the sums of the log. Route and person of that are not known."""
    starts = {int(hour.period_start.timestamp()) // 3600 for hour in hours}
    where = ("start_h", "org_id", "project_id", "key_public_id", "model")
    rows = tables.sums.objects.using(tables.using).filter(length_h=1, start_h__in=starts).order_by()
    logged = defaultdict(Counter)
    for row in rows.values(*where, "status_class").annotate(**{f"sum_{name}": Sum(name) for name in HOURS}):
        kind = {"answered": 2, "ours": 5}.get(row["status_class"], 4)
        key = (*(row[name] for name in where), kind)
        logged[key].update({name: row[f"sum_{name}"] for name in HOURS})
    rest = defaultdict(Counter)
    for hour in hours:
        start_h = int(hour.period_start.timestamp()) // 3600
        place = (start_h, hour.org_id, hour.project_id, hour.key_public_id, hour.model)
        seen = logged[(*place, hour.status_class)]
        more = {name: max(0, getattr(hour, name) - seen[name]) for name in HOURS}
        num_left = more["num_left"]
        kinds = {"left": num_left, CLASSES[hour.status_class]: more["num_requests"] - num_left}
        amounts = {name: more[name] for name in (*SUMMED, *TTFT_COLUMNS)}
        for kind, number in kinds.items():
            # NOTE: the tokens of both are one sum, which goes to whichever comes last.
            if number > 0 or (kind != "left" and any(amounts.values())):
                counts = {"num_requests": number, **({f"num_{kind}": number} if kind != "answered" else {})}
                key = (1, *place[:4], 0, hour.model, "", kind)
                rest[key].update(counts | (amounts if kind != "left" else {}))
    sums_add(rest, tables)


def unfill(apps, schema_editor):
    """Make the hours from the sums."""
    using = schema_editor.connection.alias
    hours = defaultdict(Counter)
    for row in apps.get_model("chat", "UsageSum").objects.using(using).filter(length_h=1).iterator(MOST):
        kind = {"answered": 2, "ours": 5}.get(row.status_class, 4)
        start = datetime.fromtimestamp(row.start_h * 3600, UTC)
        key = (start, row.org_id, row.project_id, row.key_public_id, row.model, kind)
        hours[key].update({name: getattr(row, name) for name in HOURS})
    table = apps.get_model("chat", "UsageHour")
    names = ("period_start", "org_id", "project_id", "key_public_id", "model", "status_class")
    rows = (table(**dict(zip(names, key, strict=True)), **amounts) for key, amounts in hours.items())
    table.objects.using(using).bulk_create(rows, batch_size=500)


def measures():
    """Return the columns that both tables count in."""
    ttft_ms = (10, 25, 50, 100, 200, 350, 500, 750, 1000, 2000, 4000, 8000, 20000)
    gap_ms = (5, 10, 15, 20, 30, 40, 60, 80, 120, 200, 400, 1000, 4000)
    names = (
        *("num_requests", "num_left", "num_theirs", "num_ours", "prompt_tokens", "cached_tokens", "completion_tokens"),
        *("reasoning_tokens", "cost_nanos", "duration_ms", "queue_ms"),
        *(f"ttft_le_{bound}" for bound in ttft_ms),
        f"ttft_over_{ttft_ms[-1]}",
        *(f"gap_le_{bound}" for bound in gap_ms),
        f"gap_over_{gap_ms[-1]}",
    )
    return [(name, models.BigIntegerField(default=0)) for name in names]


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0029_dated_prices'),
    ]

    operations = [
        migrations.CreateModel(
            name='UsageSum',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                *measures(),
                ('length_h', models.PositiveSmallIntegerField()),
                ('start_h', models.PositiveIntegerField()),
                ('org_id', models.BigIntegerField(default=0)),
                ('project_id', models.BigIntegerField(default=0)),
                ('key_public_id', models.CharField(default='', max_length=16)),
                ('account_id', models.BigIntegerField(default=0)),
                ('model', models.CharField(default='', max_length=200)),
                ('route', models.CharField(default='', max_length=100)),
                ('status_class', models.CharField(max_length=8)),
            ],
        ),
        migrations.CreateModel(
            name='UsageTotal',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                *measures(),
                ('length_h', models.PositiveSmallIntegerField()),
                ('start_h', models.PositiveIntegerField()),
                ('org_id', models.BigIntegerField(default=0)),
                ('dimension', models.CharField(max_length=8)),
                ('value', models.CharField(default='', max_length=200)),
            ],
        ),
        migrations.AddIndex(
            model_name='usagesum',
            index=models.Index(fields=['project_id', 'length_h', 'start_h'], name='usage_sum_project'),
        ),
        migrations.AddIndex(
            model_name='usagesum',
            index=models.Index(fields=['key_public_id', 'length_h', 'start_h'], name='usage_sum_key_id'),
        ),
        migrations.AddIndex(
            model_name='usagesum',
            index=models.Index(fields=['account_id', 'length_h', 'start_h'], name='usage_sum_user'),
        ),
        migrations.AddIndex(
            model_name='usagesum',
            index=models.Index(fields=['model', 'length_h', 'start_h'], name='usage_sum_model'),
        ),
        migrations.AddConstraint(
            model_name='usagesum',
            constraint=models.UniqueConstraint(fields=('length_h', 'start_h', 'org_id', 'project_id', 'key_public_id', 'account_id', 'model', 'route', 'status_class'), name='usage_sum_key'),
        ),
        migrations.AddIndex(
            model_name='usagetotal',
            index=models.Index(fields=['dimension', 'length_h', 'start_h', 'org_id', 'value', 'num_requests', 'num_left', 'num_theirs', 'num_ours', 'prompt_tokens', 'cached_tokens', 'completion_tokens', 'reasoning_tokens', 'cost_nanos', 'duration_ms', 'queue_ms'], name='usage_total'),
        ),
        migrations.AddIndex(
            model_name='usagetotal',
            index=models.Index(fields=['dimension', 'length_h', 'value', 'start_h'], name='usage_total_value'),
        ),
        migrations.AddConstraint(
            model_name='usagetotal',
            constraint=models.UniqueConstraint(fields=('dimension', 'length_h', 'start_h', 'org_id', 'value'), name='usage_total_key'),
        ),
        migrations.RunPython(fill, unfill),
        migrations.DeleteModel(
            name='UsageHour',
        ),
    ]
