import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


def date_prices(apps, schema_editor):
    """Let the prices that models have hold since the models were added. What was not given was free."""
    using = schema_editor.connection.alias
    prices = apps.get_model("chat", "ModelPrice").objects.using(using)
    for model in apps.get_model("chat", "ServedModel").objects.using(using).all():
        amounts = (model.input_price, model.cached_price, model.output_price)
        if any(amount is not None for amount in amounts):
            prices.create(
                model=model,
                model_name=model.name,
                starts_at=model.created_at,
                input=model.input_price or 0,
                cached=model.cached_price,
                output=model.output_price or 0,
            )


def undate_prices(apps, schema_editor):
    """Give models the prices that are in force."""
    using = schema_editor.connection.alias
    rows = apps.get_model("chat", "ModelPrice").objects.using(using).exclude(model=None)
    for row in rows.filter(starts_at__lte=django.utils.timezone.now()).order_by("starts_at"):
        model = apps.get_model("chat", "ServedModel").objects.using(using).get(pk=row.model_id)
        model.input_price, model.cached_price, model.output_price = row.input, row.cached, row.output
        model.save(update_fields=["input_price", "cached_price", "output_price"])


def price(label, **options):
    return models.DecimalField(
        label,
        decimal_places=6,
        max_digits=14,
        validators=[django.core.validators.MinValueValidator(0)],
        **options,
    )


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0028_budgets'),
    ]

    operations = [
        migrations.CreateModel(
            name='ModelPrice',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('model_name', models.CharField(editable=False, max_length=200, verbose_name='model')),
                ('starts_at', models.DateTimeField(verbose_name='starts at')),
                ('input', price('input')),
                ('cached', price('cached input', blank=True, null=True)),
                ('output', price('output')),
                ('reasoning', price('reasoning', blank=True, null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('model', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='prices', to='chat.servedmodel', verbose_name='model')),
            ],
            options={
                'verbose_name': 'price',
                'verbose_name_plural': 'prices',
                'ordering': ('-id',),
                'constraints': [models.UniqueConstraint(fields=('model', 'starts_at'), name='one_price_at_an_instant')],
            },
        ),
        migrations.RunPython(date_prices, undate_prices),
        migrations.RemoveField(model_name='servedmodel', name='input_price'),
        migrations.RemoveField(model_name='servedmodel', name='cached_price'),
        migrations.RemoveField(model_name='servedmodel', name='output_price'),
        migrations.AddField(model_name='requestlog', name='reasoning_tokens', field=models.PositiveIntegerField(null=True)),
        migrations.AddField(model_name='requestlog', name='price_id', field=models.BigIntegerField(null=True, verbose_name='price')),
    ]
