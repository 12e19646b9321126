"""An address finds the accounts that have it, and none that has another one which looks like it."""

from __future__ import annotations

import pytest

from chat.access.mail_addresses import accounts_at, is_same_address
from tests.people import member


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        ("MIKE@Example.com", True),
        ("mıke@example.com", False),  # noqa: RUF001
        ("mike@example.org", False),
        ("mike@examplé.com", False),
        ("", False),
    ],
)
@pytest.mark.django_db
def test_addresses_are_compared_as_unicode_does_it(other: str, is_same: bool) -> None:
    """For PostgreSQL the upper case of a dotless i is I: links went to the address that was typed."""
    mike = member("mike", email="mike@example.com")
    assert is_same_address("mike@example.com", other) is is_same
    assert accounts_at(other) == ([mike] if is_same else [])
