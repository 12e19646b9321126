from django.conf import settings
from django.db import migrations

BATCH = 2000


def name_accounts(apps, schema_editor):
    """Write into requests of personal keys and of chats whose they are, a transaction for some."""
    using = schema_editor.connection.alias
    logs = apps.get_model("chat", "RequestLog").objects.using(using)
    keys = apps.get_model("chat", "ApiKey").objects.using(using)
    for public_id, owner_id in keys.exclude(owner=None).values_list("public_id", "owner_id"):
        write(logs, logs.filter(key_public_id=public_id), owner_id)
    people = apps.get_model(*settings.AUTH_USER_MODEL.split(".")).objects.using(using)
    for user_id, name in people.values_list("pk", "username"):
        write(logs, logs.filter(key_public_id="", dialect="playground", user_label=name), user_id)


def write(logs, rows, account_id):
    rows = rows.order_by("-run_id")
    page = list(rows.values_list("run_id", flat=True)[:BATCH])
    while page:
        logs.filter(run_id__in=page, account_id=None).update(account_id=account_id)
        page = list(rows.filter(run_id__lt=page[-1]).values_list("run_id", flat=True)[:BATCH])


class Migration(migrations.Migration):
    atomic = False  # so that servers which still run wait for 2,000 rows, never for all
    dependencies = [("chat", "0025_request_log")]
    operations = [migrations.RunPython(name_accounts, migrations.RunPython.noop)]
