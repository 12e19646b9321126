from django.db import migrations, models
from django.db.models.functions import Length


def sizes_fill(apps, schema_editor):
    """What is stored already counts too."""
    answers = apps.get_model("chat", "StoredAnswer").objects.using(schema_editor.connection.alias)
    answers.update(num_bytes=Length("request") + Length("answer"))


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0007_people'),
    ]

    operations = [
        migrations.AddField(
            model_name='storedanswer',
            name='num_bytes',
            field=models.BigIntegerField(default=0),
        ),
        migrations.RunPython(sizes_fill, migrations.RunPython.noop),
        migrations.AddIndex(
            model_name='storedanswer',
            index=models.Index(fields=['project_id', 'num_bytes'], name='stored_size'),
        ),
    ]
