import django.core.validators
import django.db.models.deletion
import django.utils.timezone
import uuid
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0030_usage_sums'),
    ]

    operations = [
        migrations.CreateModel(
            name='AlertRule',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('condition', models.CharField(choices=[('budget_50', 'Budget half spent'), ('budget_80', 'Budget spent to 80 %'), ('budget_100', 'Budget used up'), ('worker_lost', 'Worker lost'), ('model_failed', 'Model failed to load'), ('error_rate', 'Errors of the server'), ('queue_age', 'Requests wait too long'), ('usage_behind', 'Usage writer behind'), ('disk_low', 'Disk low')], editable=False, max_length=20, unique=True, verbose_name='condition')),
                ('is_on', models.BooleanField(default=True, verbose_name='on')),
                ('threshold', models.FloatField(blank=True, null=True, verbose_name='threshold')),
                ('window_s', models.PositiveIntegerField(blank=True, null=True, verbose_name='window (s)')),
                ('least_requests', models.PositiveIntegerField(blank=True, null=True, verbose_name='least number of requests')),
                ('hold_s', models.PositiveIntegerField(default=0, validators=[django.core.validators.MaxValueValidator(604800)], verbose_name='must hold for (s)')),
                ('cooldown_s', models.PositiveIntegerField(default=0, validators=[django.core.validators.MaxValueValidator(604800)], verbose_name='cool-down (s)')),
            ],
            options={
                'verbose_name': 'alert rule',
                'verbose_name_plural': 'alert rules',
                'ordering': ('id',),
            },
        ),
        migrations.CreateModel(
            name='AlertChannel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=120, verbose_name='name')),
                ('kind', models.CharField(choices=[('webhook', 'Webhook'), ('email', 'E-mail')], default='webhook', max_length=8, verbose_name='kind')),
                ('address', models.CharField(max_length=500, verbose_name='address')),
                ('is_on', models.BooleanField(default=True, verbose_name='on')),
                ('conditions', models.JSONField(blank=True, default=list, verbose_name='conditions')),
                ('sealed_secret', models.TextField(default='', editable=False)),
                ('sealed_old_secret', models.TextField(default='', editable=False)),
                ('old_secret_until', models.DateTimeField(editable=False, null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('org', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='alert_channels', to='chat.org', verbose_name='organisation')),
            ],
            options={
                'verbose_name': 'alert channel',
                'verbose_name_plural': 'alert channels',
                'ordering': ('-id',),
            },
        ),
        migrations.CreateModel(
            name='AlertDelivery',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ('channel_name', models.CharField(max_length=120, verbose_name='channel')),
                ('event', models.CharField(choices=[('firing', 'Firing'), ('resolved', 'Resolved'), ('test', 'Test')], max_length=8, verbose_name='event')),
                ('condition', models.CharField(blank=True, choices=[('budget_50', 'Budget half spent'), ('budget_80', 'Budget spent to 80 %'), ('budget_100', 'Budget used up'), ('worker_lost', 'Worker lost'), ('model_failed', 'Model failed to load'), ('error_rate', 'Errors of the server'), ('queue_age', 'Requests wait too long'), ('usage_behind', 'Usage writer behind'), ('disk_low', 'Disk low')], default='', max_length=20, verbose_name='condition')),
                ('title', models.CharField(max_length=400, verbose_name='title')),
                ('text', models.TextField(verbose_name='text')),
                ('body', models.TextField(verbose_name='body')),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('delivered', 'Delivered'), ('failed', 'Failed')], default='waiting', max_length=10, verbose_name='state')),
                ('attempts', models.PositiveSmallIntegerField(default=0, verbose_name='attempts')),
                ('next_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='next try')),
                ('status', models.PositiveSmallIntegerField(null=True, verbose_name='status')),
                ('answer', models.CharField(blank=True, default='', max_length=300, verbose_name='answer')),
                ('error', models.CharField(blank=True, default='', max_length=300, verbose_name='error')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='created')),
                ('ended_at', models.DateTimeField(null=True, verbose_name='ended')),
                ('channel', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='deliveries', to='chat.alertchannel', verbose_name='channel')),
                ('org', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='chat.org', verbose_name='organisation')),
            ],
            options={
                'verbose_name': 'alert delivery',
                'verbose_name_plural': 'alert deliveries',
                'ordering': ('-id',),
            },
        ),
        migrations.CreateModel(
            name='Alert',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('condition', models.CharField(choices=[('budget_50', 'Budget half spent'), ('budget_80', 'Budget spent to 80 %'), ('budget_100', 'Budget used up'), ('worker_lost', 'Worker lost'), ('model_failed', 'Model failed to load'), ('error_rate', 'Errors of the server'), ('queue_age', 'Requests wait too long'), ('usage_behind', 'Usage writer behind'), ('disk_low', 'Disk low')], max_length=20, verbose_name='condition')),
                ('subject', models.CharField(max_length=300)),
                ('name', models.CharField(max_length=300, verbose_name='name')),
                ('value', models.FloatField(null=True)),
                ('threshold', models.FloatField(null=True)),
                ('detail', models.CharField(blank=True, default='', max_length=300)),
                ('since', models.DateTimeField(verbose_name='since')),
                ('fired_at', models.DateTimeField(null=True, verbose_name='fired')),
                ('notified_at', models.DateTimeField(null=True, verbose_name='notice')),
                ('seen_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True, verbose_name='ended')),
                ('org', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='chat.org', verbose_name='organisation')),
            ],
            options={
                'verbose_name': 'alert',
                'verbose_name_plural': 'alerts',
                'ordering': ('-id',),
                'indexes': [models.Index(fields=['condition', 'subject', '-notified_at'], name='alert_notified'), models.Index(fields=['ended_at', '-id'], name='alert_ended'), models.Index(fields=['condition', '-id'], name='alert_condition'), models.Index(fields=['org', '-id'], name='alert_org')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at', None)), fields=('condition', 'subject'), name='one_open_alert')],
            },
        ),
        migrations.AddConstraint(
            model_name='alertchannel',
            constraint=models.UniqueConstraint(fields=('org', 'name'), name='alert_channel_name_in_org'),
        ),
        migrations.AddConstraint(
            model_name='alertchannel',
            constraint=models.UniqueConstraint(condition=models.Q(('org', None)), fields=('name',), name='alert_channel_name'),
        ),
        migrations.AddIndex(
            model_name='alertdelivery',
            index=models.Index(condition=models.Q(('state', 'waiting')), fields=['next_at'], name='delivery_due'),
        ),
        migrations.AddIndex(
            model_name='alertdelivery',
            index=models.Index(fields=['state', '-id'], name='delivery_state'),
        ),
        migrations.AddIndex(
            model_name='alertdelivery',
            index=models.Index(fields=['channel', '-id'], name='delivery_channel'),
        ),
        migrations.AddIndex(
            model_name='alertdelivery',
            index=models.Index(fields=['org', '-id'], name='delivery_org'),
        ),
        migrations.AddIndex(
            model_name='alertdelivery',
            index=models.Index(fields=['created_at'], name='delivery_created'),
        ),
    ]
