import orjson
from django.db import migrations

from chat.conversations.facets import facet_key, turn_facets

AT_ONCE = 500


def index_turns(apps, schema_editor):
    """Let filters find the conversations that there are."""
    turn_model, facet_model = apps.get_model("chat", "Turn"), apps.get_model("chat", "SearchFacet")
    rows = turn_model.objects.order_by("id").values_list("conversation_id", "conversation__user_id", "role", "body")
    facets = []
    for conversation_id, user_id, role, body in rows.iterator(chunk_size=AT_ONCE):
        facets += [
            facet_model(user_id=user_id, conversation_id=conversation_id, kind=kind, key=facet_key(name), name=name)
            for kind, name in turn_facets(role, orjson.loads(body))
        ]
        if len(facets) >= AT_ONCE:
            facet_model.objects.bulk_create(facets, ignore_conflicts=True)
            facets = []
    facet_model.objects.bulk_create(facets, ignore_conflicts=True)


class Migration(migrations.Migration):
    """Reads all turns, by and by and without a lock; begun again it goes on."""

    atomic = False
    dependencies = [
        ('chat', '0019_link_passwords'),
    ]

    operations = [
        migrations.RunPython(index_turns, migrations.RunPython.noop, atomic=False),
    ]
