from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import migrations, models

BY_PREFIX = ("varchar_pattern_ops", "uuid_ops")
INDEXES = (
    ("log_org", ("org_id", "-run_id"), ()),
    ("log_account", ("account_id", "-run_id"), ()),
    ("log_client_request", ("client_request_id", "-run_id"), BY_PREFIX),
    ("log_label", ("user_label", "-run_id"), BY_PREFIX),
    ("log_batch_run", ("batch_id", "-run_id"), BY_PREFIX),
)


DAYS = [MinValueValidator(1), MaxValueValidator(3650)]
OF_PROJECTS = {
    "keeps_api_texts": models.BooleanField("keep texts of API requests", default=False, db_default=False),
    "keeps_chat_texts": models.BooleanField("keep texts of chats", default=False, db_default=False),
    "stores_nothing": models.BooleanField("store nothing of callers", default=False, db_default=False),
    "redaction_patterns": models.JSONField("own redaction patterns", default=list, db_default=[], blank=True),
    "log_days": models.PositiveSmallIntegerField("days of requests", null=True, blank=True, validators=DAYS),
    "text_days": models.PositiveSmallIntegerField("days of texts", default=7, db_default=7, validators=DAYS),
}


class Migration(migrations.Migration):
    # The column has no default, so no row is written for it: SQLite would copy the whole table.
    dependencies = [("chat", "0024_sign_in")]
    operations = [
        migrations.RemoveIndex(model_name="requestlog", name="log_client_id"),
        migrations.RemoveIndex(model_name="requestlog", name="log_batch"),
        migrations.AddField("requestlog", "account_id", models.BigIntegerField("account", null=True)),
        migrations.AddField("requestlog", "error_message", models.CharField("error", max_length=500, null=True)),
        migrations.AddField("requestlog", "parameters", models.JSONField(null=True)),
        *(migrations.AddField("project", name, field) for name, field in OF_PROJECTS.items()),
        migrations.CreateModel(
            name="RequestText",
            fields=[
                ("run_id", models.UUIDField(primary_key=True, serialize=False)),
                ("org_id", models.BigIntegerField(default=0)),
                ("project_id", models.BigIntegerField(default=0)),
                ("packed", models.BinaryField()),
                ("num_bytes", models.PositiveIntegerField()),
                ("is_cut", models.BooleanField()),
            ],
            options={
                "verbose_name": "text of a request",
                "ordering": ("-run_id",),
                "indexes": [models.Index(fields=["project_id", "-run_id"], name="log_text_project")],
            },
        ),
        *(
            migrations.AddIndex("requestlog", models.Index(fields=fields, name=name, opclasses=opclasses))
            for name, fields, opclasses in INDEXES
        ),
    ]
