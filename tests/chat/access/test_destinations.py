"""Destinations of webhooks: no spelling of an inner address passes, neither in the URL nor by a name."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest

from chat.access.destinations import AddressRefused
from chat.alerts.webhooks import WEBHOOK_RULES

INSIDE = [
    "http://127.0.0.1/",
    "http://127.0.0.1:8000/",
    "http://127.1/",
    "http://127.0.1/",
    "http://127.255.255.254/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7F.0.0.1/",
    "http://0x7f.1/",
    "http://017700000001/",
    "http://0177.0.0.1/",
    "http://0177.0.0x0.1/",
    "http://127.0.0.1./",
    "http://１２７.０.０.１/",
    "http://①②⑦.⓪.⓪.①/",
    "http://127。0。0。1/",
    "http://0/",
    "http://0.0.0.0/",
    "http://00000.1/",
    "http://10.0.0.1/",
    "http://167772161/",
    "http://10.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://0xc0a80101/",
    "http://3232235777/",
    "http://169.254.1.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://2852039166/",
    "http://0xa9fea9fe/",
    "http://0251.0376.0251.0376/",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "http://192.0.0.192/",
    "http://198.18.0.1/",
    "http://224.0.0.1/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://192.0.2.1/",
    "http://[::1]/",
    "http://[::]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[0:0:0:0:0:ffff:10.0.0.1]/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::127.0.0.1]/",
    "http://[::a9fe:a9fe]/",
    "http://[64:ff9b::127.0.0.1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1::1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:a9fe:a9fe::1]/",
    "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    "http://[2606:4700::5efe:10.0.0.1]/",
    "http://[fe80::1]/",
    "http://[fc00::1]/",
    "http://[fd00:ec2::254]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[2001:db8::1]/",
    "http://localhost/",
    "http://LOCALHOST/",
    "http://localhost./",
    "http://a.localhost/",
    "http://metadata.google.internal/",
    "http://printer.local/",
]
MALFORMED = [
    "",
    "hooks.example.com",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:70/",
    "unix:///run/valkey.sock",
    "http://",
    "http:///path",
    "http://user:password@example.com/",
    "http://example.com@127.0.0.1/",
    "http://127.0.0.1#@example.com/",
    "http://example.com:0/",
    "http://example.com:65536/",
    "http://example.com:port/",
    "http://exa mple.com/",
    "http://example.com\\@127.0.0.1/",
    "http://example.com/\r\nhost: x",
    "http://%31%32%37.0.0.1/",
    "http://[::1%25eth0]/",
    "http://[fe80::1%eth0]/",
    "http://[::1",
    "http://[1.2.3.4]/",
    "http://-x-.example.com-/",
    "http://example.com/ä",
    "https://example.com/" + "x" * 500,
]


@pytest.mark.parametrize("url", INSIDE)
def test_no_spelling_of_an_inner_host_is_taken(url: str) -> None:
    with pytest.raises(AddressRefused, match="LIGHTCONE_WEBHOOK_NETWORKS"):
        WEBHOOK_RULES.read(url)


@pytest.mark.parametrize("url", MALFORMED)
def test_what_is_no_address_is_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(AddressRefused, match=r"\.$|…$"):
        WEBHOOK_RULES.read(url)


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://hooks.example.com/a/b?c=d", "https://hooks.example.com/a/b?c=d"),
        ("HTTPS://Hooks.Example.COM:443", "https://hooks.example.com/"),
        ("http://hooks.example.com:8080/x#part", "http://hooks.example.com:8080/x"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://1.1.1.1/", "https://1.1.1.1/"),
        ("https://[2606:4700:4700::1111]:8443/x", "https://[2606:4700:4700::1111]:8443/x"),
        ("https://[64:ff9b::1.1.1.1]/", "https://[64:ff9b::101:101]/"),
    ],
)
def test_public_addresses_are_taken(url: str, sent: str) -> None:
    assert WEBHOOK_RULES.read(url).url == sent


def test_the_setting_admits_its_networks_and_no_others(settings: Any) -> None:
    settings.LIGHTCONE_WEBHOOK_NETWORKS = ["10.1.0.0/16", "::1"]
    for url in ("http://10.1.2.3/", "http://[::ffff:10.1.2.3]/", "http://0x0a010203/", "http://[::1]/"):
        assert WEBHOOK_RULES.read(url)
    for url in ("http://10.2.0.1/", "http://127.0.0.1/", "http://169.254.169.254/"):
        with pytest.raises(AddressRefused):
            WEBHOOK_RULES.read(url)


async def test_a_name_is_refused_if_any_of_its_addresses_is_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ["1.1.1.1", "169.254.169.254"]

    def resolve(host: str, port: int, *args: Any, **options: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in answers]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(AddressRefused, match=r"169\.254\.169\.254"):
        await WEBHOOK_RULES.addresses_of("rebinding.example", 443)
    answers.remove("169.254.169.254")
    assert await WEBHOOK_RULES.addresses_of("rebinding.example", 443) == ["1.1.1.1"]


def test_every_private_network_is_refused() -> None:
    for text in ("10.255.0.9", "172.20.1.1", "100.64.0.1", "fe80::1", "fdff::1", "::ffff:192.168.0.1", "2002:a00:1::"):
        with pytest.raises(AddressRefused):
            WEBHOOK_RULES.check(ipaddress.ip_address(text))
