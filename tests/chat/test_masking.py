"""Log lines and request rows contain no key."""

from __future__ import annotations

import io
import logging
import logging.config

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from chat.masking import mask_secrets
from lightcone_site.logs import logging_settings

SECRET = "0123456789abcdef" * 3
KEY = f"lc_accept0001_{SECRET}"


@given(before=st.text(), after=st.text())
def test_secrets_of_keys_are_masked_and_key_ids_kept(before: str, after: str) -> None:
    masked = mask_secrets(before + KEY + after)
    assert SECRET not in masked
    assert "lc_accept0001_***" in masked or "Bearer ***" in masked


@pytest.mark.parametrize(
    "text", ["Authorization: Bearer sk-abcdefghijklmnop", "authorization: bearer\tabc.def.ghi-jkl", "'Bearer abcdefgh'"]
)
def test_bearer_tokens_of_any_make_are_hidden(text: str) -> None:
    assert mask_secrets(text).strip("'").endswith("Bearer ***")


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Forbidden (CSRF): /invitations/Abc-_9", "Forbidden (CSRF): /invitations/***"),
        ("http://h/invitations/Abc-_9?next=/x", "http://h/invitations/***?next=/x"),
        ("Internal Server Error: /password-reset/1z-abc-0123def", "Internal Server Error: /password-reset/1z-***"),
    ],
)
def test_links_that_let_somebody_in_are_hidden(text: str, masked: str) -> None:
    assert mask_secrets(text) == masked


def test_a_refused_link_is_logged_without_its_secret(caplog: pytest.LogCaptureFixture) -> None:
    """A refusal for lack of a CSRF token logged the link, which still worked."""
    answer = Client(enforce_csrf_checks=True).post("/invitations/secret-of-the-link")
    assert answer.status_code == 403
    (record,) = [one for one in caplog.records if one.name == "django.security.csrf"]
    handler_settings = logging_settings("DEBUG")
    formatter = logging.config.DictConfigurator(handler_settings).configure_formatter(
        handler_settings["formatters"]["line"]
    )
    assert "/invitations/***" in formatter.format(record)
    assert "secret-of-the-link" not in formatter.format(record)


@pytest.mark.parametrize(
    "text",
    [
        "/password-reset/sent",
        "/admin/chat/invitation/7/",
        "",
        "lc_accept0001_…4f2a",
        "the bearer of news",
        "model lc_small",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert mask_secrets(text) == text


def test_no_log_record_carries_a_key_in_message_arguments_fields_or_traceback() -> None:
    handler_settings = logging_settings("DEBUG")
    stream = io.StringIO()
    config = logging.config.DictConfigurator(handler_settings)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(config.configure_formatter(dict(handler_settings["formatters"]["line"])))
    logger = logging.Logger("leaky")
    logger.addHandler(handler)
    logger.warning("got %s", KEY)
    logger.warning("line\nbreak " + KEY, extra={"header": f"Bearer {KEY}"})
    try:
        raise ValueError(KEY)
    except ValueError:
        logger.exception("failed", stack_info=True)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert SECRET not in stream.getvalue()
    assert "lc_accept0001_***" in lines[0]
