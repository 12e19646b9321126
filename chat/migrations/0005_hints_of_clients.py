from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0004_files_and_batches'),
    ]

    operations = [
        migrations.AddField(
            model_name='requestlog',
            name='retry_count',
            field=models.PositiveSmallIntegerField(default=0, verbose_name='times sent before'),
        ),
        migrations.AddField(
            model_name='requestlog',
            name='patience_s',
            field=models.FloatField(null=True, verbose_name="client's read time-out (s)"),
        ),
    ]
