"""The client address: the peer's, or that reported by a trusted proxy; and loopback names."""

import pytest
from django.test import RequestFactory, override_settings

from chat.access.addresses import is_loopback, request_address

PROXIES = ["10.0.0.0/8", "::1"]


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("203.0.113.9", "1.2.3.4", "203.0.113.9"),
        ("10.0.0.1", "1.2.3.4", "1.2.3.4"),
        ("10.0.0.1", "6.6.6.6, 1.2.3.4", "1.2.3.4"),
        ("10.0.0.1", "1.2.3.4, 10.0.0.2", "1.2.3.4"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.3", "10.0.0.3"),
        ("::1", "1.2.3.4", "1.2.3.4"),
        ("::ffff:10.0.0.1", "1.2.3.4", "1.2.3.4"),
        ("::ffff:203.0.113.9", "1.2.3.4", "::ffff:203.0.113.9"),
    ],
)
def test_forwarding_headers_count_only_from_trusted_proxies(peer, forwarded, address):
    request = RequestFactory().get("/", REMOTE_ADDR=peer, headers={"X-Forwarded-For": forwarded})
    with override_settings(LIGHTCONE_TRUSTED_PROXIES=PROXIES):
        assert request_address(request) == address
    with override_settings(LIGHTCONE_TRUSTED_PROXIES=[]):
        assert request_address(request) == peer


@pytest.mark.parametrize(
    ("place", "is_ours"),
    [
        *(
            (place, True)
            for place in ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "::ffff:127.0.0.1", "localhost", "LocalHost")
        ),
        *(
            (place, False)
            for place in (
                "",
                "[]",
                "10.0.0.1",
                "::ffff:10.0.0.1",
                "127.0.0.1.example",
                "localhost.example",
                "0.0.0.0",
                "127.1",
            )
        ),
    ],
)
def test_loopback_names_and_addresses_are_recognised(place: str, is_ours: bool) -> None:
    assert is_loopback(place) == is_ours
