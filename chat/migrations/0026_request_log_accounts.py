from django.db import migrations

BATCH = 2000


def name_accounts(apps, schema_editor):
    """Write into requests of personal keys whose they are, a transaction for some. Of chats it is not known."""
    using = schema_editor.connection.alias
    logs = apps.get_model("chat", "RequestLog").objects.using(using)
    keys = apps.get_model("chat", "ApiKey").objects.using(using)
    for public_id, owner_id in keys.exclude(owner=None).values_list("public_id", "owner_id"):
        mine = logs.filter(key_public_id=public_id).order_by("-run_id")
        page = list(mine.values_list("run_id", flat=True)[:BATCH])
        while page:
            logs.filter(run_id__in=page, account_id=None).update(account_id=owner_id)
            page = list(mine.filter(run_id__lt=page[-1]).values_list("run_id", flat=True)[:BATCH])


class Migration(migrations.Migration):
    atomic = False  # so that servers which still run wait for 2,000 rows, never for all
    dependencies = [("chat", "0025_request_log")]
    operations = [migrations.RunPython(name_accounts, migrations.RunPython.noop)]
