"""Shared by the tests of the Django application."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chat.models import Org, Project
from chat.services.catalogue import models_cache_clear
from chat.services.keys import keys_cache_clear


@pytest.fixture(autouse=True)
def _empty_caches() -> Iterator[None]:
    """What one test's database held must not answer in the next."""
    keys_cache_clear()
    models_cache_clear()
    yield
    keys_cache_clear()
    models_cache_clear()


@pytest.fixture
def project(db: None) -> Project:
    return Project.objects.create(org=Org.objects.create(name="Acme"), name="Search")
