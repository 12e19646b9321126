"""Each text of the console's pages goes through gettext, so that it can be translated.

A catalogue that puts marks around all it is asked for stands in for one of a language. Words outside of marks are
values, or texts that nobody can translate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from html.parser import HTMLParser
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db.models import Model
from django.test import Client
from django.urls import reverse
from django.utils.translation.trans_real import DjangoTranslation

from chat.audit.services import Subject, audit_record
from chat.models import (
    ApiKey,
    AuditEntry,
    ModelAdapter,
    Org,
    Project,
)
from chat.system.about import packages, settings_shown, versions
from chat.usage.log_filters import DIALECTS
from tests.chat.console.test_roles_matrix import NONE, OWN_PAGES, PAGES, Place, address, name_of, rows_made
from tests.people import member

Rows = Mapping[type[Model], Mapping[Place, Any]]
CONTEXT_END = "\x04"
"""Between the context of a text and the text, in catalogues."""
MARKED = re.compile("⟦[^⟦⟧]*⟧")
WORD = re.compile(r"[^\W\d_]{3,}")
NOT_WORDS = re.compile(
    r"""[a-z]+-(mine|project|org|other)\b # names of rows
    | job_\d+ | \bfile-[\w-]+ | \d+\ min\b | lca?_\S+ | \b(command|key):\w+ | \b[0-9a-f-]{32,36}\b # ids
    | @example\.com | https?://\S+ | /v1/\S+ | LIGHTCONE_\w+ """,
    re.IGNORECASE | re.VERBOSE,
)
NAMES = frozenset(
    {
        "Lightcone",
        "UTC",
        "USD",
        "CSV",
        "JSON",
        "SQLite",
        "PostgreSQL",
        "Valkey",
        "Python",
        "starttls",
        "noeviction",
        "English",
        "Deutsch",
    }
)
OF_OTHERS = frozenset({"esc"})
"""Texts of django-unfold that it gives to nobody to translate."""
NEVER_SHOWN = frozenset({"ID", "id", "last4", "digest", "pepper version", "sealed secret", "sealed old secret"})
"""Columns that no page has."""
SILENT = frozenset({"script", "style", "svg", "code", "pre", "datalist", "template"})
SPOKEN = ("title", "placeholder", "aria-label", "alt", "data-label")
ICON = "material-symbols-outlined"
VOID = frozenset({"input", "br", "hr", "img", "meta", "link", "source", "col", "wbr"})


class Texts(HTMLParser):
    """The visible texts of a page, a line each."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.open: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        given = dict(attrs)
        self.lines += [given[name] for name in SPOKEN if given.get(name)]
        if tag == "input" and given.get("type") in ("submit", "button"):
            self.lines.append(given.get("value") or "")
        if tag not in VOID:
            is_silent = tag in SILENT or ICON in (given.get("class") or "")
            self.open.append((tag, is_silent))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not any(is_silent for _, is_silent in self.open):
            self.lines.append(data)


def unmarked(page: str, values: Set[str]) -> list[str]:
    """Return the visible lines of a page that have words outside of marks, but for names and values."""
    texts = Texts()
    texts.feed(page)
    text = "\n".join(" ".join(line.split()) for line in texts.lines)
    while MARKED.search(text):
        text = MARKED.sub("", text)
    return sorted({line.strip() for line in text.split("\n") if any(map(WORD.search, words(line, values)))})


def words(line: str, values: Set[str]) -> Iterator[str]:
    """Yield the parts of a line that are no names and values."""
    for part in re.split(r"[,|·]", line):
        left = NOT_WORDS.sub("", part)
        bare = re.sub(r"^[\W\d]+|[\W\d]+$", "", left)
        if values.isdisjoint({part.strip().lower(), left.strip(" .:()").lower(), bare.lower()}):
            yield " ".join(word for word in left.split() if word.strip(".:()") not in NAMES | OF_OTHERS)


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each text that goes through gettext come back with marks."""

    def gettext(self: Any, text: str) -> str:
        return f"⟦{text.rpartition(CONTEXT_END)[2]}⟧"

    def ngettext(self: Any, one: str, more: str, number: int) -> str:
        return gettext(self, one if number == 1 else more)

    monkeypatch.setattr(DjangoTranslation, "gettext", gettext)
    monkeypatch.setattr(DjangoTranslation, "ngettext", ngettext)


@pytest.fixture
def rows(db: None) -> Iterator[Rows]:
    cache.clear()
    home, away = (Org.objects.create(name=name_of(Org, place)) for place in (Place.PROJECT, Place.OTHER))
    project, other = (
        Project.objects.create(org=org, name=name_of(Project, place))
        for org, place in ((home, Place.PROJECT), (away, Place.OTHER))
    )
    yield rows_made(member(name_of(User, Place.MINE), org=home), project, other)
    cache.clear()


@pytest.fixture
def root(rows: Rows) -> Client:
    """Return the client of a person who may do everything."""
    client = Client()
    client.force_login(User.objects.create_superuser("root-other"))
    return client


def addresses(rows: Rows) -> Iterator[str]:
    """Yield the addresses of the pages: each list, form, row, act and deletion of a table, and the pages of none."""
    for model, page in PAGES.items():
        row = next(iter(rows[model].values()))
        yield address(model, "changelist")
        yield from (address(model, name, row.pk) for name in ("change", "delete", *page.acts))
        if page.add is not NONE:
            yield address(model, "add")
    yield from (reverse(f"admin:{name}") for name in (*OWN_PAGES, "index"))
    yield reverse("account")


@pytest.mark.usefixtures("marked")
def test_each_text_of_a_page_goes_through_gettext(rows: Rows, root: Client) -> None:
    found = {}
    for place in list(addresses(rows)):
        answer = root.get(place)
        values = {text.strip().lower() for text in values_shown()}
        if answer.status_code == 200 and (lines := unmarked(answer.text, values)):
            found[place] = lines
    assert found == {}


def values_shown() -> Iterator[str]:
    """Yield values that pages show as they are: ids of keys, and those of the audit log, settings and packages."""
    yield from ApiKey.objects.values_list("public_id", flat=True)
    for entry in AuditEntry.objects.all():
        yield from (entry.actor_name, entry.address, *entry.source.split(","))
    for setting in settings_shown():
        yield from setting.value.split(",")
    for package in packages():
        yield from (package.name, package.version, *package.licence.split(","))
    yield from (value for _, value in versions())
    yield from DIALECTS
    yield from ModelAdapter.objects.values_list("path", flat=True)
    yield from (str(settings.DATA_DIR), str(settings.LIGHTCONE_MODEL_STORE))


@pytest.mark.usefixtures("marked")
def test_the_page_of_a_row_shows_texts_and_no_pairs(rows: Rows, root: Client) -> None:
    """Columns in colour, and those of two lines, are pairs for a list."""
    for model in PAGES:
        page = root.get(address(model, "change", next(iter(rows[model].values())).pk)).text
        assert re.search(r">\s*[(\[]&#x27;", page) is None, model


def test_names_of_columns_are_in_the_catalogue() -> None:
    """Those that Django makes of the names of fields are collected by hand."""
    catalogue = (settings.BASE_DIR / "locale" / "de" / "LC_MESSAGES" / "django.po").read_text(encoding="utf-8")
    names = set()
    for meta in (model._meta for model in PAGES if model._meta.app_label == "chat"):
        names |= {str(meta.verbose_name), str(meta.verbose_name_plural)}
        names |= {str(field.verbose_name) for field in (*meta.local_fields, *meta.local_many_to_many)}
    assert {name for name in names - NEVER_SHOWN if f'msgid "{name}"\n' not in catalogue} == set()


def test_the_console_is_in_the_language_of_the_browser(root: Client) -> None:
    """Django's own words, names of columns, and django-unfold's are in it too."""
    page = root.get(reverse("admin:chat_servedmodel_add"), HTTP_ACCEPT_LANGUAGE="de").text
    for text in ("Übersicht", "Aliase", "Eine GGUF-Datei", "Speichern"):
        assert text in page
    assert (
        "Type to search" not in root.get(reverse("admin:chat_servedmodel_changelist"), HTTP_ACCEPT_LANGUAGE="de").text
    )


def test_the_audit_names_what_changed_in_the_language(root: Client) -> None:
    """Names that are no columns, and those of Django's columns, were left in English."""
    audit_record(action="user.sign_in", on=Subject("1", "ada"), after={"method": "password", "is_superuser": True})
    page = root.get(reverse("admin:chat_auditentry_changelist"), HTTP_ACCEPT_LANGUAGE="de").text
    assert "Verfahren, Superuser" in page
