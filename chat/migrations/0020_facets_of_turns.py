import orjson
from django.db import migrations, transaction

from chat.conversations.facets import facet_key, turn_facets

AT_ONCE = 200


def index_turns(apps, schema_editor):
    """Let filters find the conversations that there are."""
    turn_model, facet_model = apps.get_model("chat", "Turn"), apps.get_model("chat", "SearchFacet")
    conversations = apps.get_model("chat", "Conversation").objects
    rows = turn_model.objects.order_by("id").values_list("id", "conversation_id", "conversation__user_id", "role", "body")
    last = 0
    while found := list(rows.filter(id__gt=last)[:AT_ONCE]):
        facets = [
            facet_model(user_id=user_id, conversation_id=conversation_id, kind=kind, key=facet_key(name), name=name)
            for _, conversation_id, user_id, role, body in found
            for kind, name in turn_facets(role, orjson.loads(body))
        ]
        with transaction.atomic():
            named = {facet.conversation_id for facet in facets}
            # Others may delete conversations meanwhile; not those that are locked.
            there = set(conversations.filter(pk__in=named).select_for_update().values_list("pk", flat=True))
            kept = [facet for facet in facets if facet.conversation_id in there]
            facet_model.objects.bulk_create(kept, ignore_conflicts=True)
        last = found[-1][0]


class Migration(migrations.Migration):
    """Reads all turns, some at a time, while others go on. Run again it writes nothing twice."""

    atomic = False
    dependencies = [
        ('chat', '0019_link_passwords'),
    ]

    operations = [
        migrations.RunPython(index_turns, migrations.RunPython.noop, atomic=False),
    ]
