"""Remote media: only from hosts that are named, at addresses that are checked, within bytes and seconds."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from chat.errors import ApiError
from chat.media.cache import MediaCache
from chat.media.fetching import MediaFetcher
from engine.api.media import MediaKind
from tests.chat.media.fetched import IMAGE, LIMITS, PNG, WAV, fetched, refused, to_loopback
from tests.chat.media.server import FileServer, answer, endless, file_server

TOO_MANY_CHUNKS = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2710\r\n" + PNG + bytes(9792) + b"\r\n1\r\n\0\r\n0\r\n\r\n"
)


class Resolver:
    """A resolver that gives one list of addresses after another, and the last for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def test_a_file_is_fetched_with_the_name_in_host_and_nothing_of_the_environment(
    server: FileServer, fetcher: MediaFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    server.answers["/cat.png"] = answer(PNG, content_type="text/html", set_cookie="a=b")
    assert await fetched(fetcher, server.url("/cat.png?size=1#part")) == PNG
    await fetched(fetcher, server.url("/cat.png"))
    assert server.asked[0].target == "/cat.png?size=1"
    assert server.asked[0].headers["host"] == f"files.example:{server.port}"
    assert server.asked[0].headers["accept-encoding"] == "identity"
    assert not {"cookie", "authorization", "referer", "proxy-authorization"}.intersection(server.asked[1].headers)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0177.0.0.1/",
        "http://127.0.0.1./",
        "http://①②⑦.⓪.⓪.①/",
        "http://0/",
        "http://10.0.0.1/",
        "http://167772161/",
        "http://172.16.0.1/",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://0xa9fea9fe/",
        "http://2852039166/",
        "http://0251.0376.0251.0376/",
        "http://100.100.100.200/",
        "http://168.63.129.16/",
        "http://198.18.0.1/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
        "http://[::1]/",
        "http://[::]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:a9fe:a9fe]/",
        "http://[::127.0.0.1]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[64:ff9b:1::1]/",
        "http://[2002:7f00:1::]/",
        "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
        "http://[2606:4700::5efe:10.0.0.1]/",
        "http://[fe80::1]/",
        "http://[fd00:ec2::254]/",
        "http://[ff02::1]/",
        "http://localhost/",
        "http://metadata.google.internal/",
        "http://printer.local/",
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_no_spelling_of_an_inner_address_is_connected_to(
    url: str, scheme: str, cache: MediaCache, settings: Any
) -> None:
    settings.LIGHTCONE_MEDIA_DOMAINS, settings.LIGHTCONE_MEDIA_HTTP = ["*"], True
    resolver = Resolver(["127.0.0.1"])
    fetcher = MediaFetcher(LIMITS, cache, resolve=resolver)
    message = await refused(fetcher, url.replace("http", scheme, 1))
    assert "must not lead to a private, local or reserved address" in message
    assert not resolver.asked


@pytest.mark.parametrize(
    "url",
    [
        "http://user:password@files.example/",
        "http://files.example@127.0.0.1/",
        "http://files.example\\@127.0.0.1/",
        "http://127.0.0.1#@files.example/",
        "http://files.example:0/",
        "http://files.example:65536/",
        "http://files.example:x/",
        "http:///cat.png",
        "http://",
        "http://files example/",
        "http://files.example/\r\nhost: x",
        "http://files.example/\t",
        "http://%66iles.example/",
        "http://[::1",
        "http://[fe80::1%25eth0]/",
        "http://files.example/ä",
        "http://-.example-/",
        "http://files.example/" + "x" * 8192,
    ],
)
async def test_a_url_that_two_parsers_may_read_in_two_ways_is_refused(
    url: str, cache: MediaCache, settings: Any
) -> None:
    settings.LIGHTCONE_MEDIA_DOMAINS, settings.LIGHTCONE_MEDIA_HTTP = ["*"], True
    resolver = Resolver(["127.0.0.1"])
    assert await refused(MediaFetcher(LIMITS, cache, resolve=resolver), url)
    assert not resolver.asked


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://files.example/cat.png",
        "gopher://files.example/",
        "javascript:alert(1)",
        "//files.example/cat.png",
        "/etc/passwd",
        "cat.png",
        "",
        " https://files.example/cat.png",
        "blob:https://files.example/1",
        "unix:///run/valkey.sock",
        "httpx://files.example/",
    ],
)
async def test_other_schemes_are_refused(url: str, fetcher: MediaFetcher, settings: Any) -> None:
    settings.LIGHTCONE_MEDIA_DOMAINS = ["*"]
    assert "must be a data URL with base64, or an address that begins with https://" in await refused(fetcher, url)


async def test_nothing_is_fetched_unless_operator_and_key_allow_it(
    server: FileServer, fetcher: MediaFetcher, settings: Any
) -> None:
    url = server.url("/cat.png")
    assert "this API key may not" in await refused(fetcher, url, replace(IMAGE, may_fetch=False))
    settings.LIGHTCONE_MEDIA_DOMAINS = []
    assert "must be a data URL with base64: this server fetches no remote media" in await refused(fetcher, url)
    document = replace(IMAGE, kind=MediaKind.DOCUMENT)  # its field takes no data URL
    message = "cannot be used: this server fetches no remote media; send the file in base64"
    assert (await refused(fetcher, url, document)).endswith(message)
    assert not server.asked


async def test_http_needs_its_setting(server: FileServer, fetcher: MediaFetcher, settings: Any) -> None:
    settings.LIGHTCONE_MEDIA_HTTP = False
    assert "must begin with https://" in await refused(fetcher, server.url("/cat.png"))
    assert not server.asked


@pytest.mark.parametrize(
    ("listed", "url", "is_allowed"),
    [
        (["files.example"], "https://files.example/", True),
        (["files.example"], "https://FILES.example./", True),
        (["files.example"], "https://files.example:443/", True),
        (["files.example"], "https://files.example:80/", True),
        (["files.example"], "https://files.example:8443/", False),
        (["files.example:8443"], "https://files.example:8443/", True),
        (["files.example:8443"], "https://files.example/", False),
        (["files.example"], "https://a.files.example/", False),
        (["files.example"], "https://files.example.evil.example/", False),
        (["files.example"], "https://evilfiles.example/", False),
        (["files.example"], "https://example/", False),
        (["xn--bcher-kva.example"], "https://bücher.example/", True),
        (["*"], "https://anything.example/", True),
        (["*"], "https://anything.example:22/", False),
        (["1.1.1.1"], "https://1.1.1.1/", True),
        (["1.1.1.1"], "https://0x01010101/", True),
        (["[2606:4700::1]:8443"], "https://[2606:4700:0::1]:8443/", True),
    ],
)
async def test_hosts_are_exact_and_ports_are_named(
    listed: list[str], url: str, is_allowed: bool, cache: MediaCache, settings: Any
) -> None:
    settings.LIGHTCONE_MEDIA_DOMAINS = listed
    resolver = Resolver(["10.0.0.1"])  # nothing is connected to
    message = await refused(MediaFetcher(LIMITS, cache, resolve=resolver), url)
    if is_allowed:
        assert "could not be fetched" in message
    else:
        assert "names a host that this server does not fetch media from" in message
        assert not resolver.asked


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["1.1.1.1", "127.0.0.1"],
        ["10.0.0.1"],
        ["169.254.169.254"],
        ["100.64.0.1"],
        ["::1"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["2002:a00:1::"],
        ["fe80::1%eth0"],
        ["0.0.0.0"],
        ["224.0.0.1"],
        [],
    ],
)
async def test_a_name_with_any_inner_address_is_not_connected_to(
    addresses: list[str], server: FileServer, cache: MediaCache, settings: Any
) -> None:
    settings.LIGHTCONE_MEDIA_NETWORKS = []
    fetcher = MediaFetcher(LIMITS, cache, resolve=Resolver(addresses))
    assert "could not be fetched" in await refused(fetcher, server.url("/cat.png"))
    assert not server.asked


async def test_a_name_is_resolved_once_and_its_address_is_connected_to(server: FileServer, cache: MediaCache) -> None:
    server.answers["/cat.png"] = answer(PNG)
    resolver = Resolver(["127.0.0.1"], ["203.0.113.9"])  # the second answer would lead elsewhere
    assert await fetched(MediaFetcher(LIMITS, cache, resolve=resolver), server.url("/cat.png")) == PNG
    assert resolver.asked == ["files.example"]


async def test_a_name_that_leads_inside_at_its_second_answer_is_refused_at_the_redirect(
    server: FileServer, cache: MediaCache, settings: Any
) -> None:
    settings.LIGHTCONE_MEDIA_NETWORKS = ["127.0.0.1/32"]
    server.answers |= {"/a": answer(status="302 Found", location="/b"), "/b": answer(PNG)}
    fetcher = MediaFetcher(LIMITS, cache, resolve=Resolver(["127.0.0.1"], ["127.0.0.2"]))
    assert "could not be fetched" in await refused(fetcher, server.url("/a"))
    assert [asked.target for asked in server.asked] == ["/a"]


@pytest.mark.parametrize("status", ["301 M", "302 F", "303 S", "307 T", "308 P"])
async def test_redirects_are_followed(status: str, server: FileServer, fetcher: MediaFetcher) -> None:
    server.answers |= {"/a": answer(status=status, location="b?x=1#y"), "/b": answer(PNG)}
    assert await fetched(fetcher, server.url("/a")) == PNG
    assert server.asked[-1].target == "/b?x=1"


async def test_at_most_three_redirects_are_followed(server: FileServer, fetcher: MediaFetcher) -> None:
    server.answers |= {f"/{place}": answer(status="302 F", location=f"/{place + 1}") for place in range(9)}
    server.answers["/9"] = answer(PNG)
    assert await fetched(fetcher, server.url("/6")) == PNG
    assert "could not be fetched" in await refused(fetcher, server.url("/5"))
    server.answers["/round"] = answer(status="302 F", location="/round")
    server.asked.clear()
    assert "could not be fetched" in await refused(fetcher, server.url("/round"))
    assert len(server.asked) == 4


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/",
        "http://127.0.0.1:{port}/cat.png",
        "http://127.0.0.2/",
        "http://10.0.0.1/",
        "http://[::1]/",
        "http://localhost:{port}/cat.png",
        "http://other.example/cat.png",
        "http://files.example/cat.png",
        "http://user@files.example:{port}/cat.png",
        "file:///etc/passwd",
        "gopher://files.example:{port}/",
        "data:image/png;base64,iVBORw0KGgo=",
        "//other.example/",
        "http://files.example:{port}\\@other.example/",
        "",
    ],
)
async def test_each_redirect_is_checked_like_the_first_url(
    location: str, server: FileServer, fetcher: MediaFetcher
) -> None:
    server.answers |= {
        "/a": answer(status="302 F", location=location.format(port=server.port)),
        "/cat.png": answer(PNG),
    }
    assert "could not be fetched" in await refused(fetcher, server.url("/a"))
    assert [asked.target for asked in server.asked] == ["/a"]


async def test_a_redirect_does_not_leave_https(cache: MediaCache, settings: Any, tmp_path: Path) -> None:
    contexts = tls_contexts(tmp_path)
    async with file_server(contexts[0]) as secure, file_server() as plain:
        settings.LIGHTCONE_MEDIA_DOMAINS = [f"files.example:{secure.port}", f"files.example:{plain.port}"]
        settings.LIGHTCONE_MEDIA_NETWORKS = ["127.0.0.0/8"]
        secure.answers["/a"] = answer(status="302 F", location=plain.url("/cat.png"))
        plain.answers["/cat.png"] = answer(PNG)
        fetcher = MediaFetcher(LIMITS, cache, resolve=to_loopback, ssl_context=contexts[1])
        assert "could not be fetched" in await refused(fetcher, secure.url("/a", scheme="https"))
        assert not plain.asked


async def test_https_checks_the_certificate_of_the_name_and_sends_the_name(
    cache: MediaCache, settings: Any, tmp_path: Path
) -> None:
    settings.LIGHTCONE_MEDIA_NETWORKS = ["127.0.0.0/8"]
    contexts = tls_contexts(tmp_path)
    async with file_server(contexts[0]) as server:
        settings.LIGHTCONE_MEDIA_DOMAINS = [f"files.example:{server.port}", f"other.example:{server.port}"]
        server.answers["/cat.png"] = answer(PNG)
        fetcher = MediaFetcher(LIMITS, cache, resolve=to_loopback, ssl_context=contexts[1])
        assert await fetched(fetcher, server.url("/cat.png", scheme="https")) == PNG
        assert server.server_names == ["files.example"]
        assert server.asked[0].headers["host"] == f"files.example:{server.port}"
        other = server.url("/cat.png", host="other.example", scheme="https")
        assert "could not be fetched" in await refused(fetcher, other)
        strict = MediaFetcher(LIMITS, cache, resolve=to_loopback)  # which does not know the test's authority
        assert "could not be fetched" in await refused(strict, server.url("/cat.png", scheme="https"))
        assert len(server.asked) == 1


def tls_contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server called files.example and of a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "files.example")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("files.example")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "both.pem").write_bytes(secret + pem)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "both.pem")
    return serving, ssl.create_default_context(cadata=pem.decode())


@pytest.mark.parametrize(
    ("planned", "sentence"),
    [
        (answer(PNG, content_length="10001"), "at most 10000 bytes"),
        (answer(PNG, content_length="9" * 19), "at most 10000 bytes"),
        (endless(PNG, bytes(1000)), "at most 10000 bytes"),
        (TOO_MANY_CHUNKS, "at most 10000 bytes"),
        (answer(gzip.compress(PNG), content_encoding="gzip"), "could not be fetched"),
        (answer(gzip.compress(bytes(5 << 20)), content_encoding="gzip"), "could not be fetched"),
        (answer(PNG, content_encoding="identity, br"), "could not be fetched"),
        (answer(PNG, status="404 Not Found"), "could not be fetched"),
        (answer(PNG, status="500 Oops"), "could not be fetched"),
        (answer(PNG, status="206 Partial"), "could not be fetched"),
        (answer(status="204 No"), "could not be fetched"),
        (answer(status="304 Not Modified"), "could not be fetched"),
        (answer(b""), "must lead to an image file"),
        (answer(b"\x89P"), "must lead to an image file"),
        (answer(b"root:x:0:0:root:/root:/bin/bash\n" * 9, content_type="image/png"), "must lead to an image file"),
        (answer(b"<html>" + bytes(300), content_type="image/png"), "must lead to an image file"),
        (answer(b"%PDF-1.7" + bytes(300), content_type="image/png"), "must lead to an image file"),
        (answer(b"\0\0\0\x18ftypheic" + bytes(300)), "must lead to an image file"),
        (answer(WAV, content_type="image/png"), "must lead to an image file"),
        (answer(PNG, content_length="1000"), "could not be fetched"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 50_000, "could not be fetched"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcdef", "could not be fetched"),
        (b"SSH-2.0-OpenSSH\r\n", "could not be fetched"),
        (b"", "could not be fetched"),
        (b"HTTP/1.1 302 F\r\nlocation: /\r\nlocation: /b\r\ncontent-length: 0\r\n\r\n", "could not be fetched"),
    ],
)
async def test_an_answer_is_bounded_and_looked_at(
    planned: object, sentence: str, server: FileServer, fetcher: MediaFetcher
) -> None:
    server.answers["/x"] = planned
    assert sentence in await refused(fetcher, server.url("/x"))


@pytest.mark.parametrize(
    "planned",
    [
        answer(b"%PDF-1.7" + bytes(300), content_length="1001"),
        endless(b"%PDF-1.7", bytes(100)),
        answer(b"%PDF-1.7" + bytes(993)),
    ],
)
async def test_no_more_of_an_item_is_read_than_its_request_takes(
    planned: object, server: FileServer, fetcher: MediaFetcher
) -> None:
    server.answers["/x"] = planned
    document = replace(IMAGE, kind=MediaKind.DOCUMENT, max_bytes=1000)
    assert "must have at most 1000 bytes; send a smaller file" in await refused(fetcher, server.url("/x"), document)


async def test_what_is_kept_is_no_larger_than_its_request_takes(server: FileServer, fetcher: MediaFetcher) -> None:
    server.answers["/x"] = answer(b"%PDF-1.7" + bytes(993), etag='"1"')
    document = replace(IMAGE, kind=MediaKind.DOCUMENT)
    assert len(await fetched(fetcher, server.url("/x"), document)) == 1001
    server.answers["/x"] = answer(status="304 Not Modified")
    sentence = await refused(fetcher, server.url("/x"), replace(document, max_bytes=1000))
    assert "must have at most 1000 bytes" in sentence


async def test_an_answer_of_another_kind_ends_at_its_first_bytes(server: FileServer, cache: MediaCache) -> None:
    server.answers["/x"] = endless(b"secret" * 20, bytes(100), asyncio.Event().wait)
    fetcher = MediaFetcher(replace(LIMITS, media_image_timeout=60), cache, resolve=to_loopback)
    async with asyncio.timeout(20):
        assert "must lead to an image file" in await refused(fetcher, server.url("/x"))


@pytest.mark.parametrize("kind", ["silent", "after the head", "byte by byte"])
async def test_a_slow_answer_ends_at_the_time_limit(kind: str, server: FileServer, cache: MediaCache) -> None:
    async def write(writer: asyncio.StreamWriter) -> None:
        if kind != "silent":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + PNG[:100])
        while kind == "byte by byte":
            writer.write(b"\0")
            await writer.drain()
            await asyncio.sleep(0.02)
        await asyncio.Event().wait()

    server.answers["/x"] = write
    fetcher = MediaFetcher(replace(LIMITS, media_image_timeout=0.3), cache, resolve=to_loopback)
    assert "could not be fetched within 0.3 s" in await refused(fetcher, server.url("/x"))


async def test_a_name_that_does_not_resolve_in_time_is_refused(server: FileServer, cache: MediaCache) -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    fetcher = MediaFetcher(replace(LIMITS, media_image_timeout=0.1), cache, resolve=never)
    assert "within 0.1 s" in await refused(fetcher, server.url("/x"))


async def test_all_items_of_a_request_share_its_bytes(server: FileServer, fetcher: MediaFetcher) -> None:
    server.answers["/x"] = answer(PNG + bytes(9000))
    budget = fetcher.budget()
    for _ in range(2):
        await fetcher.fetch(server.url("/x"), IMAGE, budget)
    with pytest.raises(ApiError, match="all media of a request may have at most 25000 bytes"):
        await fetcher.fetch(server.url("/x"), IMAGE, budget)


async def test_other_kinds_have_their_own_formats(server: FileServer, fetcher: MediaFetcher) -> None:
    server.answers["/x"] = answer(WAV)
    audio = replace(IMAGE, kind=MediaKind.AUDIO)
    assert await fetched(fetcher, server.url("/x"), audio) == WAV
    server.answers["/x"] = answer(PNG)
    assert "must lead to an audio file" in await refused(fetcher, server.url("/x"), audio)
    document = replace(IMAGE, kind=MediaKind.DOCUMENT)
    assert "must lead to a document file: PDF" in await refused(fetcher, server.url("/x"), document)
    server.answers["/x"] = answer(b"<html>an inner page</html>", content_type="application/pdf")
    assert "must lead to a document file: PDF" in await refused(fetcher, server.url("/x"), document)
    server.answers["/x"] = answer(b"%PDF-1.7" + bytes(300))
    assert await fetched(fetcher, server.url("/x"), document) == b"%PDF-1.7" + bytes(300)


async def test_a_tenant_takes_no_more_places_than_its_share(server: FileServer, cache: MediaCache) -> None:
    arrived, may_answer = asyncio.Semaphore(0), asyncio.Event()

    async def write(writer: asyncio.StreamWriter) -> None:
        arrived.release()
        await may_answer.wait()
        writer.write(answer(PNG))

    server.answers |= {"/slow": write, "/x": answer(PNG)}
    fetcher = MediaFetcher(replace(LIMITS, media_image_timeout=30), cache, resolve=to_loopback)
    tasks = [asyncio.create_task(fetched(fetcher, server.url("/slow"))) for _ in range(20)]
    for _ in range(8):
        await arrived.acquire()
    assert await fetched(fetcher, server.url("/x"), replace(IMAGE, tenant="tenant-b")) == PNG
    assert sum(asked.target == "/slow" for asked in server.asked) == 8
    may_answer.set()
    assert await asyncio.gather(*tasks) == [PNG] * 20


async def test_the_operator_reads_the_reason_in_one_line(
    server: FileServer, fetcher: MediaFetcher, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers["/secret-path"] = answer(status="418 Teapot")
    with caplog.at_level("INFO", logger="chat.media.fetching"):
        await refused(fetcher, server.url("/secret-path?token=t"))
        server.answers["/secret-path"] = b"HTTP/1.1 200 OK\r\nbad header\x1b[31m\r\n\r\n"
        await refused(fetcher, server.url("/secret-path?token=t"))
    lines = [record.getMessage() for record in caplog.records if record.name == "chat.media.fetching"]
    assert lines[0] == f"media of http://files.example:{server.port} could not be fetched: status 418"
    assert len(lines) == 2
    assert all(line.isprintable() and "token" not in line and "secret" not in line for line in lines)


async def test_connections_are_closed_whatever_happens(server: FileServer, fetcher: MediaFetcher) -> None:
    server.answers |= {
        "/x": answer(PNG),
        "/long": endless(PNG, bytes(1000)),
        "/round": answer(status="302 F", location="/round"),
        "/text": answer(b"hello" * 100),
    }
    for _ in range(10):
        await fetched(fetcher, server.url("/x"))
        for path in ("/long", "/round", "/text", "/none"):
            await refused(fetcher, server.url(path))
    assert len(server.connections) == 10 * 8
    async with asyncio.timeout(10):
        await asyncio.gather(*server.connections)
