from django.db import migrations, models
from django.db.models import F


def contexts_move(apps, schema_editor):
    """Workers wrote the context that they serve into `max_model_len`, which nothing else read."""
    apps.get_model("chat", "ServedModel").objects.update(loaded_context=F("max_model_len"), max_model_len=None)


class Migration(migrations.Migration):
    dependencies = [("chat", "0009_computed_by")]

    operations = [
        migrations.AddField("servedmodel", "pinned", models.BooleanField(default=False)),
        migrations.AddField("servedmodel", "idle_s", models.PositiveIntegerField(blank=True, null=True)),
        migrations.AddField(
            "servedmodel", "loaded_context", models.PositiveIntegerField(blank=True, editable=False, null=True)
        ),
        migrations.RunPython(contexts_move, migrations.RunPython.noop),
    ]
