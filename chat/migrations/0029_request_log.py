from django.db import migrations, models

BY_PREFIX = ("varchar_pattern_ops", "uuid_ops")
INDEXES = (
    ("log_org", ("org_id", "-run_id"), ()),
    ("log_account", ("account_id", "-run_id"), ()),
    ("log_client_request", ("client_request_id", "-run_id"), BY_PREFIX),
    ("log_label", ("user_label", "-run_id"), BY_PREFIX),
    ("log_batch_run", ("batch_id", "-run_id"), BY_PREFIX),
)


class Migration(migrations.Migration):
    # The column has no default, so no row is written for it: SQLite would copy the whole table.
    dependencies = [("chat", "0023_audit")]
    operations = [
        migrations.RemoveIndex(model_name="requestlog", name="log_client_id"),
        migrations.RemoveIndex(model_name="requestlog", name="log_batch"),
        migrations.AddField("requestlog", "account_id", models.BigIntegerField("account", null=True)),
        *(
            migrations.AddIndex("requestlog", models.Index(fields=fields, name=name, opclasses=opclasses))
            for name, fields, opclasses in INDEXES
        ),
    ]
