"""One record is one line for any content, and contains no key."""

import io
import logging
import logging.config

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.masking import escape_controls
from lightcone_site.logs import logging_settings

KEY = "lc_accept0001_" + "0" * 48


@pytest.fixture
def lines():
    """Return a logger set up as in production, and its output."""
    output = io.StringIO()
    settings = logging_settings("INFO")
    settings["handlers"]["stderr"]["stream"] = output
    settings["loggers"] = {"lines": {"handlers": ["stderr"], "level": "INFO", "propagate": False}}
    del settings["root"]
    logging.config.dictConfig(settings)
    return logging.getLogger("lines"), output


def test_a_line_break_in_a_value_does_not_forge_a_record(lines):
    logger, output = lines
    logger.info("asked for %s", "a\r\nERROR b\x1b[31m")
    assert output.getvalue().count("\n") == 1
    assert "a\\r\\nERROR b\\x1b[31m" in output.getvalue()


def test_a_traceback_is_part_of_its_line_and_shows_no_key(lines):
    logger, output = lines
    try:
        raise ValueError(f"bad\n{KEY}")
    except ValueError:
        logger.exception("failed")
    assert output.getvalue().count("\n") == 1
    assert "Traceback" in output.getvalue()
    assert KEY not in output.getvalue()
    assert "lc_accept0001_***" in output.getvalue()


def test_bound_fields_follow_the_message(lines):
    logger, output = lines
    logger.info("finished", extra={"run_id": "r1"})
    assert output.getvalue().endswith("lines: finished run_id=r1\n")


def test_a_refused_page_is_one_line_and_a_failure_has_a_traceback(lines):
    """Each 403 of the console logged a traceback."""
    logger, output = lines
    try:
        raise PermissionError("no")
    except PermissionError:
        for status in (403, 404, 400, 500):
            logger.warning("status %d", status, exc_info=True, extra={"status_code": status})
    logger.error("status 503", extra={"status_code": 503})
    logged = output.getvalue().splitlines()
    assert len(logged) == 2
    assert "status 403" in logged[0]
    assert "Traceback" not in logged[0]
    assert "status 500" in logged[1]
    assert "Traceback" in logged[1]


@given(st.text())
def test_escaped_text_is_one_printable_line(text):
    escaped = escape_controls(text)
    assert len(escaped.splitlines()) <= 1
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in escaped)
