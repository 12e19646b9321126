"""Pages and files beside the playground: texts in German, the manifest, the page of a defect."""

from __future__ import annotations

import gettext

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import translation

from chat.management.commands.messages import (
    catalogue_text,
    collected,
    compiled,
    is_whole,
    python_texts,
    script_texts,
    template_texts,
)
from chat.playground.pages import server_error
from chat.playground.strings import catalogue, catalogue_read, page_strings
from tests.people import member

LANGUAGES = [code for code, _ in settings.LANGUAGES if code != "en"]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("domain", ["django", "djangojs"])
def test_every_text_of_pages_is_translated(language, domain):
    """`manage.py messages` collects them; then write the translations."""
    known = catalogue_read(catalogue(language, domain))
    assert [text for text in collected()[domain] if not is_whole(known.get(text, ""), text)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_compiled_catalogue_is_that_of_the_texts(language):
    path = catalogue(language, "django")
    with path.with_suffix(".mo").open("rb") as file:
        read = gettext.GNUTranslations(file)
    texts = catalogue_read(path)
    for english, text in texts.items():
        one, _, more = english.partition("\0")
        said = [read.ngettext(one, more, number) for number in (1, 2)] if more else [read.gettext(one)]
        assert said == text.split("\0") or not english
    assert path.with_suffix(".mo").read_bytes() == compiled(texts)


def test_a_catalogue_is_read_as_it_was_written(tmp_path):
    texts = {"": "Language: de\nContent-Type: x\n", 'Say "hi"\nnow': "Zwei\nZeilen\\", "{n} tokens": ""}
    texts |= {"One\0%(n)s": "Eines\0%(n)s", "A day\0Days": ""}
    path = tmp_path / "x.po"
    path.write_text(catalogue_text(texts), encoding="utf-8")
    assert catalogue_read(path) == texts


def test_texts_of_scripts_are_found():
    source = """
      t("One {n}", { n }); assert("no"); x.t("no"); const a = t(
        "Two \\"2\\""); format("no"); const b = { c: mark("Three"), d: "no" }; t('{"four": 4}');
      plural(list.length, "One day", "{n} days"); plural(usage["no"], "no", "no")
    """
    assert script_texts(source) == ["One {n}", 'Two "2"', "Three", '{"four": 4}', "One day", "{n} days"]


def test_texts_with_a_form_for_one_and_a_form_for_more_are_found():
    block = "{% blocktranslate count n=rows %}{{ n }} row, 5 %{% plural %}{{ n }} rows{% endblocktranslate %}"
    template = '{% translate "Plain" %}' + block
    assert template_texts(template) == ["Plain", "%(n)s row, 5 %%\0%(n)s rows"]
    source = """
from django.utils.translation import gettext as _, ngettext
_("Plain"); ngettext("%(n)s row", "%(n)s rows", n); other("no"); ngettext(one, "no", n)
"""
    assert python_texts(source) == ["Plain", "%(n)s row\0%(n)s rows"]


def test_pages_say_one_and_many_in_german():
    with translation.override("de"):
        live = [
            translation.ngettext(
                "%(number)s live request ends undisturbed.", "%(number)s live requests end undisturbed.", n
            )
            for n in (1, 2)
        ]
    assert live == ["%(number)s laufende Anfrage endet ungestört.", "%(number)s laufende Anfragen enden ungestört."]


def test_english_needs_no_texts():
    assert page_strings("en") == {}


def test_pages_speak_the_language_of_the_browser_or_the_chosen_one(db):
    client = Client(headers={"accept-language": "de-AT,de;q=0.9"})
    assert '<html lang="de">' in client.get("/sign-in").content.decode()
    assert "Benutzername" in client.get("/sign-in").content.decode()
    assert client.get("/playground/api/catalog").json() == {"language": "de", "strings": page_strings("de")}
    assert client.post("/language", {"language": "en", "next": "/sign-in"}).url == "/sign-in"
    assert "User name" in client.get("/sign-in").content.decode()


def test_the_manifest_makes_the_page_installable(client):
    answer = client.get("/manifest.webmanifest")
    assert answer["Content-Type"] == "application/manifest+json"
    described = answer.json()
    assert (described["start_url"], described["display"]) == ("/", "standalone")
    assert {"192x192", "512x512"} <= {icon["sizes"] for icon in described["icons"] if icon["purpose"] == "maskable"}


def test_the_page_of_a_defect_has_the_id_of_its_log_line(caplog):
    answer = server_error(RequestFactory().get("/broken"))
    number = answer["X-Request-Id"]
    assert answer.status_code == 500
    assert number in answer.content.decode()
    assert f"Request {number} failed: GET /broken" in caplog.text


def closed_page(user, *, language="en"):
    """Return the page that an account without access gets."""
    client = Client(headers={"accept-language": language})
    client.force_login(user)
    answer = client.get("/")
    assert answer.status_code == 403
    return " ".join(answer.content.decode().split())


def test_an_account_without_access_is_told_whom_to_ask(db):
    """At most three, and nobody who cannot help."""
    make = get_user_model().objects.create_superuser
    make("root")
    make("ann", "ann@example.org", first_name="Ann", last_name="<Lee>")
    make("gone", "gone@example.org", is_active=False)
    make("bob", "bob+x@example.org")
    make("eve")
    page = closed_page(get_user_model().objects.create_user("guest"))
    assert "Your account may not use the playground" in page
    assert (
        "Ask an administrator: Ann &lt;Lee&gt; "
        '(<a href="mailto:ann@example.org">ann@example.org</a>), '
        'bob (<a href="mailto:bob%2Bx@example.org">bob+x@example.org</a>), root.'
    ) in page
    assert f'action="{reverse("sign_out")}"' in page
    assert reverse("admin:index") not in page


def test_administrators_are_not_named_where_the_operator_says_so(db, settings):
    settings.LIGHTCONE_NAME_ADMINISTRATORS = False
    get_user_model().objects.create_superuser("root", "root@example.org")
    page = closed_page(member("guest", may_chat=False), language="de")
    assert "root" not in page
    assert "Ihr Konto darf den Playground nicht verwenden" in page
    assert reverse("admin:index") in page
