"""Migrations are complete, and the database enforces its constraints."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from chat.access.keys import key_create
from chat.models import ApiKeySecret, Project, ServedModel


@pytest.mark.django_db
def test_no_model_change_lacks_a_migration() -> None:
    call_command("makemigrations", "chat", check=True, dry_run=True, verbosity=0)


def test_a_digest_belongs_to_one_secret(project: Project) -> None:
    key, _ = key_create(project=project, name="one")
    with pytest.raises(IntegrityError), transaction.atomic():
        ApiKeySecret.objects.create(key=key, digest=key.secrets.get().digest, pepper_version="x", last4="0000")


@pytest.mark.django_db
def test_two_default_models_cannot_be_stored() -> None:
    ServedModel.objects.create(name="a", path="/a", is_default=True)
    with pytest.raises(IntegrityError), transaction.atomic():
        ServedModel.objects.create(name="b", path="/b", is_default=True)


def test_a_project_with_keys_and_an_organisation_with_projects_stay(project: Project) -> None:
    key_create(project=project, name="one")
    for owner in (project, project.org):
        with pytest.raises(ProtectedError):
            owner.delete()
