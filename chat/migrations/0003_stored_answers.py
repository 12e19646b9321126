"""Answers that may be fetched again."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0002_model_without_slug'),
    ]

    operations = [
        migrations.CreateModel(
            name='StoredAnswer',
            fields=[
                ('run_id', models.UUIDField(primary_key=True, serialize=False)),
                ('public_id', models.CharField(max_length=255, verbose_name='id')),
                ('project_id', models.BigIntegerField()),
                ('kind', models.CharField(choices=[('chat.completion', 'Chat completion'), ('response', 'Response')], max_length=16)),
                ('state', models.CharField(choices=[('unfinished', 'Unfinished'), ('finished', 'Finished'), ('failed', 'Failed'), ('cancelled', 'Cancelled')], default='finished', max_length=16)),
                ('model', models.CharField(max_length=200)),
                ('metadata', models.JSONField(blank=True, default=dict)),
                ('request', models.BinaryField()),
                ('answer', models.BinaryField(default=b'')),
                ('created_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('expires_at', models.DateTimeField()),
            ],
            options={
                'verbose_name': 'stored answer',
                'ordering': ('-run_id',),
                'indexes': [
                    models.Index(fields=['project_id', 'kind', '-run_id'], name='stored_newest'),
                    models.Index(condition=models.Q(('state', 'unfinished')), fields=['state'], name='stored_unfinished'),
                    models.Index(fields=['expires_at'], name='stored_expiry'),
                ],
                'constraints': [models.UniqueConstraint(fields=('project_id', 'kind', 'public_id'), name='stored_public_id')],
            },
        ),
    ]
