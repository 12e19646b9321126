"""Fixtures of all tests of the Django application."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import RequestFactory
from django.utils import translation

from chat.access.keys import keys_cache_clear
from chat.api.openapi.document import schema_view
from chat.catalog.services import models_cache_clear
from chat.models import Org, Project
from lightcone_site import urls  # noqa: F401  # loads the pages of the console


@pytest.fixture(autouse=True)
def _default_language() -> Iterator[None]:
    """Forget the language of the last request, which stays that of its thread."""
    yield
    translation.deactivate()


@pytest.fixture(autouse=True)
def _empty_caches() -> Iterator[None]:
    """Empty the caches between tests, as each test has its own database."""
    keys_cache_clear()
    models_cache_clear()
    yield
    keys_cache_clear()
    models_cache_clear()


@pytest.fixture
def project(db: None) -> Project:
    return Project.objects.create(org=Org.objects.create(name="Acme", is_operator=True), name="Search")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    return json.loads(schema_view(RequestFactory().get("/api/schema")).content)


@pytest.fixture(scope="module")
def components(document: dict[str, Any]) -> dict[str, Any]:
    return document["components"]
