"""Fixtures of all tests of the Django application."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management.commands import flush
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import RequestFactory
from django.utils import translation

from chat.access.keys import keys_cache_clear
from chat.api.openapi.document import schema_view
from chat.catalog.services import models_cache_clear
from chat.models import Org, Project

WRITTEN_BY_MIGRATIONS = {"auth_permission", "django_content_type"}


@pytest.fixture(scope="session", autouse=True)
def _quick_flush() -> Iterator[None]:
    """Keep rows of migrations when the database is emptied after a test, instead of recreating them."""

    def sql_flush(style: Any, connection: BaseDatabaseWrapper, **options: bool) -> list[str]:
        names = connection.introspection.django_table_names(only_existing=True, include_views=False)
        return connection.ops.sql_flush(style, [name for name in names if name not in WRITTEN_BY_MIGRATIONS], **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flush, "sql_flush", sql_flush)
        patch.setattr(flush, "emit_post_migrate_signal", lambda *args, **options: None)
        yield


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
