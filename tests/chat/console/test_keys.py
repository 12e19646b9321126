"""The key pages: the text is shown once, actions name the key, deletion requires its name."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.apps import apps
from django.core.exceptions import PermissionDenied
from django.test import Client
from django.urls import reverse

from chat.access.keys import KeyInvalid, key_create, key_update, keys_cache_clear
from chat.models import ApiKey, Project
from tests.chat.records import key_authenticate
from tests.people import member

KEY_TEXT = re.compile(r"lc_[a-z0-9]{12}_[0-9a-f]{48}")
EVIL = "<script>alert(1)</script>"


def form_data(project: Project, **fields: Any) -> dict[str, Any]:
    return {
        "name": "worker",
        "project": project.pk,
        "rights": ["inference"],
        "min_priority": 0,
        "networks": "",
        "origins": "",
    } | fields


def works(raw: str) -> bool:
    keys_cache_clear()
    try:
        return bool(key_authenticate(raw=raw))
    except KeyInvalid:
        return False


def test_a_created_key_is_shown_once_and_not_stored(admin_client: Client, project: Project) -> None:
    answer = admin_client.post(
        reverse("admin:chat_apikey_add"), form_data(project, networks="10.0.0.0/8\n\n2001:db8::/32")
    )
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    texts = set(KEY_TEXT.findall(answer.text))
    assert len(texts) == 1
    raw = texts.pop()
    key = ApiKey.objects.get()
    assert raw.startswith(f"lc_{key.public_id}_")
    assert key.networks == ["10.0.0.0/8", "2001:db8::/32"]
    assert key.model_names is None
    assert raw not in repr([list(model.objects.values()) for model in apps.get_models()])
    for page in (
        reverse("admin:chat_apikey_changelist"),
        reverse("admin:chat_apikey_change", args=[key.pk]),
        reverse("admin:index"),
    ):
        later = admin_client.get(page)
        assert later.status_code == 200
        assert raw not in later.text
        assert KEY_TEXT.search(later.text) is None


def test_the_list_shows_key_id_and_last_four(admin_client: Client, project: Project) -> None:
    key, raw = key_create(project=project, name="seen")
    assert f"lc_{key.public_id}_…{raw[-4:]}" in admin_client.get(reverse("admin:chat_apikey_changelist")).text


def test_rights_over_the_worker_and_to_fetch_are_off_by_default(admin_client: Client, project: Project) -> None:
    powers = {"chat_template", "logits_processors", "mm_kwargs", "media_fetch", "embeds"}
    page = admin_client.get(reverse("admin:chat_apikey_add")).text
    assert all(f'value="{power}"' in page for power in powers)
    assert key_authenticate(raw=key_create(project=project, name="plain")[1]).rights == {"inference"}
    answer = admin_client.post(reverse("admin:chat_apikey_add"), form_data(project, rights=["inference", *powers]))
    assert key_authenticate(raw=KEY_TEXT.findall(answer.text)[0]).rights == {"inference", *powers}


def test_an_invalid_form_creates_no_key(admin_client: Client, project: Project) -> None:
    for fields in (
        {"networks": "everywhere"},
        {"origins": "app"},
        {"rights": ["root"]},
        {"name": ""},
        {"requests_per_minute": "0"},
    ):
        answer = admin_client.post(reverse("admin:chat_apikey_add"), form_data(project, **fields))
        assert answer.status_code == 200
        assert "lc-secret" not in answer.text
    assert not ApiKey.objects.exists()


def test_a_form_cannot_set_other_fields(admin_client: Client, project: Project) -> None:
    extra = {"public_id": "accept0001", "digest": "0" * 64, "disabled_at": "2020-01-01", "deleted_at": "2020-01-01"}
    admin_client.post(reverse("admin:chat_apikey_add"), form_data(project, **extra))
    key = ApiKey.objects.get()
    assert key.public_id != "accept0001"
    assert key.deleted_at is None
    assert key.disabled_at is None


def test_a_change_of_scopes_keeps_the_secret(admin_client: Client, project: Project) -> None:
    key, raw = key_create(project=project, name="worker")
    answer = admin_client.post(
        reverse("admin:chat_apikey_change", args=[key.pk]), form_data(project, name="renamed", requests_per_minute=5)
    )
    assert answer.status_code == 302
    keys_cache_clear()
    assert key_authenticate(raw=raw).limits.requests_per_minute == 5


@pytest.mark.parametrize(("role", "left"), [("member", 5), ("admin", None), ("owner", None)])
def test_members_do_not_lift_limits_of_their_keys(
    client: Client, project: Project, role: str, left: int | None
) -> None:
    """A member emptied the limit that an admin had set."""
    ann = member("ann", role, org=project.org)
    project.members.add(ann)
    key, _ = key_create(project=project, name="mine", owner=ann, requests_per_minute=5)
    client.force_login(ann)
    page = reverse("admin:chat_apikey_change", args=[key.pk])
    assert ('name="requests_per_minute"' in client.get(page).text) is (left is None)
    answer = client.post(page, form_data(project, name="renamed", requests_per_minute=""))
    assert answer.status_code == 302, answer.text
    key.refresh_from_db()
    assert (key.name, key.requests_per_minute) == ("renamed", left)
    key.requests_per_minute = 9
    if role == "member":
        with pytest.raises(PermissionDenied):
            key_update(key=key, actor=ann)
    else:
        key_update(key=key, actor=ann)


def test_members_choose_limits_of_a_new_key_within_the_projects(client: Client, project: Project) -> None:
    Project.objects.filter(pk=project.pk).update(requests_per_minute=5)
    ann = member("ann", org=project.org)
    project.members.add(ann)
    client.force_login(ann)
    page = reverse("admin:chat_apikey_add")
    assert "allows at most 5" in client.post(page, form_data(project, requests_per_minute=6)).text
    assert KEY_TEXT.search(client.post(page, form_data(project, requests_per_minute=4)).text)


def test_rotation_shows_the_new_text_once_and_the_old_secret_ends(admin_client: Client, project: Project) -> None:
    key, old = key_create(project=project, name="rotated")
    page = reverse("admin:chat_apikey_rotate", args=[key.pk])
    asked = admin_client.get(page)
    assert "rotated" in asked.text
    assert works(old)
    answer = admin_client.post(page, {"overlap_hours": "0"})
    (new,) = set(KEY_TEXT.findall(answer.text))
    assert works(new)
    assert not works(old)


@pytest.mark.parametrize(("act", "is_working"), [("disable", False), ("enable", True)])
def test_disabling_and_enabling_require_confirmation_with_the_key_name(
    admin_client: Client, project: Project, act: str, is_working: bool
) -> None:
    key, raw = key_create(project=project, name="night job")
    page = reverse(f"admin:chat_apikey_{act}", args=[key.pk])
    asked = admin_client.get(page)
    assert "night job" in asked.text
    assert works(raw)
    assert admin_client.post(page).status_code == 302
    assert works(raw) is is_working


def test_deletion_requires_the_typed_name_and_keeps_history(admin_client: Client, project: Project) -> None:
    key, raw = key_create(project=project, name="old job")
    page = reverse("admin:chat_apikey_delete", args=[key.pk])
    assert admin_client.post(page, {"name": "other"}).status_code == 200
    assert works(raw)
    assert admin_client.post(page, {"name": "old job"}).status_code == 302
    assert not works(raw)
    assert ApiKey.objects.get(pk=key.pk).name == "old job"
    assert f"lc_{key.public_id}_" not in admin_client.get(reverse("admin:chat_apikey_changelist")).text
    assert admin_client.get(reverse("admin:chat_apikey_change", args=[key.pk])).status_code == 302


def test_names_are_written_escaped_everywhere(admin_client: Client, project: Project) -> None:
    key, _ = key_create(project=project, name=EVIL)
    pages = [reverse("admin:chat_apikey_changelist")]
    pages += [
        reverse(f"admin:chat_apikey_{page}", args=[key.pk])
        for page in ("change", "rotate", "disable", "delete", "history")
    ]
    for page in pages:
        answer = admin_client.get(page)
        assert answer.status_code == 200
        assert EVIL not in answer.text
    answer = admin_client.post(reverse("admin:chat_apikey_rotate", args=[key.pk]), {"overlap_hours": "1"})
    assert EVIL not in answer.text


def test_secrets_cannot_be_probed_through_the_query_string(admin_client: Client, project: Project) -> None:
    key_create(project=project, name="probed")
    for query in ("secrets__digest__startswith=0", "secrets__last4=0000", "project__org__name=Acme"):
        answer = admin_client.get(reverse("admin:chat_apikey_changelist") + f"?{query}")
        assert answer.status_code in {302, 400}


def test_pages_are_for_staff_only(client: Client, project: Project) -> None:
    key, raw = key_create(project=project, name="guarded")
    for page in ("rotate", "disable", "delete", "change"):
        answer = client.post(
            reverse(f"admin:chat_apikey_{page}", args=[key.pk]), {"name": "guarded", "overlap_hours": 0}
        )
        assert answer.status_code == 302
        assert "login" in answer["Location"]
    assert works(raw)


def test_staff_without_the_right_cannot_rotate_or_delete(
    client: Client, project: Project, django_user_model: Any
) -> None:
    client.force_login(member("viewer", "viewer"))
    key, raw = key_create(project=project, name="guarded")
    for page in ("rotate", "disable", "delete"):
        answer = client.post(
            reverse(f"admin:chat_apikey_{page}", args=[key.pk]), {"name": "guarded", "overlap_hours": 0}
        )
        assert answer.status_code == 403
    assert works(raw)


def test_a_post_without_csrf_token_is_refused(project: Project, admin_user: Any) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)
    key, raw = key_create(project=project, name="guarded")
    assert client.post(reverse("admin:chat_apikey_disable", args=[key.pk])).status_code == 403
    assert works(raw)
