from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0036_transcriber'),
    ]

    operations = [
        migrations.AlterField(
            model_name='projectfile',
            name='purpose',
            field=models.CharField(choices=[('batch', 'Batch'), ('user_data', 'User data'), ('assistants', 'Assistants'), ('vision', 'Vision'), ('batch_output', 'Batch output')], max_length=16),
        ),
        migrations.AddField(
            model_name='usagesum',
            name='audio_ms',
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='usagetotal',
            name='audio_ms',
            field=models.BigIntegerField(db_default=0, default=0),
        ),
    ]
