from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0035_chat_files'),
    ]

    operations = [
        migrations.AddField(
            model_name='servedmodel',
            name='transcriber',
            field=models.CharField(blank=True, default='', max_length=200),
        ),
    ]
