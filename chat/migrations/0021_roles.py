from collections import defaultdict

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

ADMIN = {"change_user", "change_servedmodel", "change_apikey"}
VIEWER = {"view_requestlog"}
BILLING = {"view_usagehour"}


def map_people(apps, schema_editor):
    """Make the oldest organisation the operator, and give each account the role that its permissions come to."""
    using = schema_editor.connection.alias

    def rows(app, name):
        return apps.get_model(app, name).objects.using(using)

    first = rows("chat", "Org").order_by("id").first()
    if first is None:
        return
    rows("chat", "Org").filter(pk=first.pk).update(is_operator=True)
    orgs = list(rows("chat", "Org").values_list("pk", flat=True))
    # Few queries: the tables are locked until the end, on PostgreSQL those of keys, too.
    held, places = defaultdict(set), defaultdict(set)
    for name in ("user", "group__user"):
        found = rows("auth", "Permission").filter(codename__in={*ADMIN, *VIEWER, *BILLING, "use_playground"})
        for user_id, codename in found.filter(**{f"{name}__isnull": False}).values_list(name, "codename"):
            held[user_id].add(codename)
    for user_id, org_id in rows("chat", "Project").filter(members__isnull=False).values_list("members", "org_id"):
        places[user_id].add(org_id)
    memberships = rows("chat", "Membership")
    made = []
    for user in rows("auth", "User").exclude(username__startswith="(deleted ").only("is_superuser", "is_staff"):
        may_chat = user.is_superuser or "use_playground" in held[user.pk]
        role = role_of(user, held[user.pk])
        homes = orgs if role != "member" else sorted({first.pk, *places[user.pk]})
        made += [
            memberships.model(user_id=user.pk, org_id=org_id, role=role, may_chat=may_chat) for org_id in homes
        ]
    memberships.bulk_create(made, batch_size=500)


def role_of(user, held):
    if user.is_superuser:
        return "owner"
    if not user.is_staff:
        return "member"
    if held >= ADMIN:
        return "admin"
    if held >= VIEWER:
        return "viewer"
    return "billing" if held >= BILLING else "member"


class Migration(migrations.Migration):
    dependencies = [
        ("chat", "0020_facets_of_turns"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Membership",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "role",
                    models.CharField(
                        choices=[
                            ("owner", "Owner"),
                            ("admin", "Admin"),
                            ("member", "Member"),
                            ("viewer", "Viewer"),
                            ("billing", "Billing"),
                            ("auditor", "Auditor"),
                        ],
                        default="member",
                        max_length=16,
                    ),
                ),
                ("may_chat", models.BooleanField(default=True, verbose_name="may use the playground")),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name="member since"),
                ),
                (
                    "org",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to="chat.org",
                        verbose_name="organisation",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="person",
                    ),
                ),
            ],
            options={"verbose_name": "member", "ordering": ("org__name", "user__username")},
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.UniqueConstraint(fields=("user", "org"), name="one_role_in_org"),
        ),
        migrations.AddField(
            model_name="apikey",
            name="owner",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="keys",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="org",
            name="is_operator",
            field=models.BooleanField(default=False, editable=False, verbose_name="operates the installation"),
        ),
        migrations.AddConstraint(
            model_name="org",
            constraint=models.UniqueConstraint(
                condition=models.Q(("is_operator", True)), fields=("is_operator",), name="one_operator"
            ),
        ),
        migrations.AlterModelOptions(name="apikey", options={"ordering": ("-id",), "verbose_name": "API key"}),
        migrations.AlterModelOptions(name="project", options={"ordering": ("name",)}),
        migrations.RunPython(map_people, migrations.RunPython.noop),
    ]
