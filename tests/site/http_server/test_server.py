"""The HTTP server on raw sockets: requests too large, too slow or malformed, and disconnects."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

SMALL = b"Host: localhost\r\n"


class Server:
    """The child process of scripted_server.py."""

    def __init__(self, *, drain_s: float = 0.2, drain_delay_s: float = 0.0) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "tests.chat.scripted_server", str(drain_s), str(drain_delay_s)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(self.line())
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def expect(self, word: str) -> None:
        """Read the application's lines until this one comes; the time limit of a test (conftest.py) bounds the wait."""
        while (said := self.line()) != word:
            assert said, f"the server ended before it said {word!r}"

    def stop(self) -> None:
        self.process.terminate()
        self.has_ended()

    def has_ended(self) -> None:
        with self.process:
            assert self.process.wait(20) == 0

    def connect(self, peer: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10, source_address=(peer, 0))

    def ask(self, data: bytes) -> bytes:
        """Send and read until the server closes."""
        with self.connect() as connection:
            connection.sendall(data)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := connection.recv(65_536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def error(answer: bytes) -> dict:
    return json.loads(answer.partition(b"\r\n\r\n")[2])["error"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


@pytest.fixture
def own_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server for one test, which may stop it. A fixture, as the time limit of a test leaves out its start."""
    running = Server(**getattr(request, "param", {}))
    with running.process:
        yield running
        running.process.kill()


@pytest.fixture(autouse=True)
def _still_serves(server: Server) -> Iterator[None]:
    """Check after each test that the next client is served."""
    yield
    answer = server.ask(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert status(answer) == 200


def test_a_body_within_the_limit_arrives_whole(server):
    answer = server.ask(
        b"POST / HTTP/1.1\r\n" + SMALL + b"Connection: close\r\nContent-Length: 10000\r\n\r\n" + b"x" * 10_000
    )
    assert status(answer) == 200
    server.expect("done 10000")


def test_a_declared_body_above_the_limit_is_413_before_it_is_sent(server):
    answer = server.ask(b"POST / HTTP/1.1\r\n" + SMALL + b"Content-Length: 10001\r\nExpect: 100-continue\r\n\r\n")
    assert status(answer) == 413
    assert b"100 Continue" not in answer
    assert error(answer)["code"] == "request_too_large"


def test_an_endless_chunked_body_is_413_while_it_is_arriving(server):
    chunk = b"1000\r\n" + b"x" * 0x1000 + b"\r\n"
    answer = server.ask(b"POST / HTTP/1.1\r\n" + SMALL + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 50)
    assert status(answer) == 413


def test_a_client_that_keeps_sending_still_reads_its_413(server):
    head = b"POST / HTTP/1.1\r\n" + SMALL + b"Content-Length: 5000000\r\n\r\n"
    answer = server.ask(head + b"x" * 5_000_000)
    assert status(answer) == 413


@pytest.mark.parametrize(
    ("path", "is_taken"),
    [(b"/v1/files", True), (b"/v1/files/?x=1", True), (b"/v1/files/x", False), (b"/v1/file", False)],
)
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_file_may_be_larger_than_other_bodies(server, path, is_taken, is_chunked):
    body = b"4e20\r\n" + b"x" * 20_000 + b"\r\n0\r\n\r\n" if is_chunked else b"x" * 20_000
    length = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: 20000"
    answer = server.ask(b"POST " + path + b" HTTP/1.1\r\n" + SMALL + length + b"\r\n\r\n" + body)
    assert status(answer) == (200 if is_taken else 413)


@pytest.mark.parametrize("length", [90_000, 10**9])
def test_a_file_above_its_limit_is_413_before_it_is_sent(server, length):
    answer = server.ask(
        b"POST /v1/files HTTP/1.1\r\n" + SMALL + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % length
    )
    assert status(answer) == 413
    assert b"100 Continue" not in answer


@pytest.mark.parametrize(
    "headers",
    [
        b"X-Long: " + b"a" * 1_100 + b"\r\n",
        b"X-Endless: " + b"a" * 100_000,
        b"".join(b"X-%d: a\r\n" % number for number in range(30)),
        b"X-Same: a\r\n" * 10_000,
        b"".join(b"X-%d: %s\r\n" % (number, b"a" * 900) for number in range(6)),
    ],
    ids=["one long", "one endless", "too many", "a flood of equal ones", "too much in all"],
)
def test_headers_over_a_limit_are_431_and_the_end_of_the_connection(server, headers):
    answer = server.ask(b"GET / HTTP/1.1\r\n" + SMALL + headers + b"\r\n")
    assert status(answer) == 431
    assert error(answer)["code"] == "headers_too_large"
    assert b"Connection: close" in answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /" + b"a" * 600 + b" HTTP/1.1\r\n" + SMALL + b"\r\n",
        b"POST / HTTP/1.1\r\n" + SMALL + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + SMALL + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\n" + SMALL + b"Content-Length: -3\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + SMALL + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\n" + SMALL + b"Transfer-Encoding: gzip\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + SMALL + b"No colon\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + SMALL + b"X-Nul: a\x00b\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
    ids=[
        "long target",
        "both lengths",
        "two lengths",
        "negative length",
        "bad chunk",
        "unknown coding",
        "no colon",
        "NUL",
        "no request",
    ],
)
def test_bad_framing_is_400_in_the_one_error_shape(server, request_bytes):
    answer = server.ask(request_bytes)
    assert status(answer) == 400
    assert set(error(answer)) == {"message", "type", "param", "code"}


def test_header_names_with_underscores_are_dropped(server):
    answer = server.ask(
        b"GET /headers HTTP/1.1\r\n" + SMALL + b"X_Forwarded_For: 1.2.3.4\r\nX-Ok: 1\r\nConnection: close\r\n\r\n"
    )
    assert b"x-ok" in answer.lower()
    assert b"forwarded" not in answer.lower()


@pytest.mark.parametrize(
    "begin",
    [b"", b"GET / HTTP/1.1\r\nX-Slow: ", b"POST / HTTP/1.1\r\n" + SMALL + b"Content-Length: 100\r\n\r\nabc"],
    ids=["says nothing", "in a header", "in the body"],
)
def test_a_stalled_client_is_disconnected(server, begin):
    with server.connect() as connection:
        connection.sendall(begin)
        started = time.monotonic()
        assert read_all(connection) == b""
        assert time.monotonic() - started < 8


def test_trickling_headers_does_not_extend_their_time_limit(server):
    with server.connect() as connection:
        connection.settimeout(0.2)
        started = time.monotonic()
        closed = False
        while not closed and time.monotonic() - started < 8:
            try:
                connection.sendall(b"G")
                closed = connection.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                closed = True
        assert closed


def test_an_idle_connection_is_reused_and_then_closed(server):
    with server.connect() as connection:
        for _ in range(2):
            connection.sendall(b"GET / HTTP/1.1\r\n" + SMALL + b"\r\n")
            assert status(connection.recv(65_536)) == 200
        connection.settimeout(8)
        assert read_all(connection).endswith((b"", b"0\r\n\r\n"))


def test_pipelined_requests_are_answered_in_order(server):
    one = b"POST / HTTP/1.1\r\n" + SMALL + b"Content-Length: 1\r\n\r\na"
    last = b"POST / HTTP/1.1\r\n" + SMALL + b"Content-Length: 2\r\nConnection: close\r\n\r\nab"
    answer = server.ask(one + last)
    assert answer.count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize("path", [b"/wait", b"/stream"])
def test_a_client_that_leaves_is_noticed_at_once(server, path):
    connection = server.connect()
    connection.sendall(b"GET " + path + b" HTTP/1.1\r\n" + SMALL + b"\r\n")
    server.expect("started")
    connection.close()
    server.expect("left")


def test_a_client_that_does_not_read_is_disconnected_when_its_buffer_is_full(server):
    with server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.sendall(b"GET /flood HTTP/1.1\r\n" + SMALL + b"\r\n")
        server.expect("left")


def test_a_websocket_client_that_does_not_read_is_disconnected(server):
    """The bytes that a WebSocket sends were not counted."""
    key = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\n" + key
    with server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.sendall(b"GET /socket HTTP/1.1\r\n" + SMALL + upgrade)
        server.expect("left")


def test_an_answer_of_known_length_waits_for_a_slow_reader(server):
    """It is a hundred times the buffer after which the reader of a stream is disconnected."""
    with server.connect() as connection:
        connection.sendall(b"GET /file HTTP/1.1\r\nConnection: close\r\n" + SMALL + b"\r\n")
        server.expect("started")
        num_bytes = 0
        while chunk := connection.recv(65_536):
            num_bytes += len(chunk)
    assert num_bytes > 300 * 65_536
    server.expect("sent")


def test_a_body_is_not_read_before_its_key_is_checked(server):
    """Sixteen clients without a key made the server hold a gigabyte."""
    head = b"POST / HTTP/1.1\r\n" + SMALL + b"X-Key: bad\r\nContent-Length: 10000\r\nExpect: 100-continue\r\n\r\n"
    answer = server.ask(head)
    server.expect("refused")
    assert status(answer) == 401
    assert b"100 Continue" not in answer
    assert b"Connection: close" in answer
    assert b"WWW-Authenticate" in answer


@pytest.mark.parametrize(
    "framing",
    [b"Content-Length: 9000\r\n\r\n" + b"x" * 9_000, b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"],
    ids=["length", "chunks"],
)
def test_a_client_that_sends_its_body_early_still_reads_the_refusal(server, framing):
    assert status(server.ask(b"POST / HTTP/1.1\r\n" + SMALL + b"X-Key: bad\r\n" + framing)) == 401


def test_100_continue_is_sent_once_the_key_is_valid(server):
    with server.connect() as connection:
        head = (
            b"POST /known HTTP/1.1\r\n"
            + SMALL
            + b"Connection: close\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
        )
        connection.sendall(head)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"abcde")
        answer = read_all(connection)
    assert status(answer) == 200
    assert b"somebody" in answer  # the application does not look the key up again


def test_a_pipelined_request_is_checked_too(server):
    good = b"POST / HTTP/1.1\r\n" + SMALL + b"Content-Length: 1\r\n\r\na"
    answer = server.ask(good + good.replace(b"Host", b"X-Key: bad\r\nHost"))
    assert (status(answer), answer.count(b"HTTP/1.1 200"), answer.count(b"HTTP/1.1 401")) == (200, 1, 1)


def begin_body(connection: socket.socket, owner: bytes, num_bytes: int) -> bytes:
    """Announce an upload without sending it; return the server's answer."""
    head = b"POST /v1/files HTTP/1.1\r\n" + SMALL + b"X-Key: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n"
    connection.sendall(head % (owner, num_bytes))
    return connection.recv(65_536)


def test_arriving_bodies_share_a_budget_of_which_one_owner_gets_half(server):
    with server.connect() as one, server.connect() as two, server.connect() as three, server.connect() as four:
        assert status(begin_body(one, b"a", 20_000)) == 100
        assert status(begin_body(two, b"a", 20_000)) == 429
        assert status(begin_body(three, b"b", 30_000)) == 100
        refused = begin_body(four, b"c", 20_000)
        assert status(refused) == 503
        assert b"Retry-After: 1" in refused
        for connection in (one, three):
            connection.close()
        answer = server.ask(
            b"POST /v1/files HTTP/1.1\r\n" + SMALL + b"X-Key: c\r\nContent-Length: 20000\r\n\r\n" + b"x" * 20_000
        )
    assert status(answer) == 200


def test_bodies_of_unknown_clients_have_a_budget_of_their_own(server):
    with server.connect() as stranger, server.connect() as more, server.connect() as other:
        assert status(begin_body(stranger, b"stranger", 3_000)) == 100
        assert status(begin_body(more, b"stranger", 3_000)) == 429
        assert status(begin_body(other, b"a", 20_000)) == 100


def test_a_body_larger_than_its_share_of_the_budget_is_413(server):
    with server.connect() as stranger:
        assert status(begin_body(stranger, b"stranger", 10_000)) == 413


def test_a_chunked_body_takes_budget_as_it_arrives(server):
    with server.connect() as one, server.connect() as two:
        assert status(begin_body(one, b"a", 20_000)) == 100
        two.sendall(b"POST /v1/files HTTP/1.1\r\n" + SMALL + b"X-Key: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        two.sendall(b"2ee0\r\n" + b"x" * 12_000 + b"\r\n")
        assert status(read_all(two)) == 429


def is_served(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"GET / HTTP/1.1\r\n" + SMALL + b"\r\n")
        return connection.recv(65_536).startswith(b"HTTP/1.1 200")
    except (ConnectionResetError, BrokenPipeError):
        return False


def serves(server: Server, peer: str) -> bool:
    """Return True if a new connection of that address is served."""
    try:
        with server.connect(peer) as connection:
            return is_served(connection)
    except ConnectionResetError:
        return False


def test_an_address_with_only_busy_connections_gets_no_more(own_server):
    busy = [own_server.connect("127.0.0.2") for _ in range(6)]
    for connection in busy:
        connection.sendall(b"GET /wait HTTP/1.1\r\n" + SMALL + b"\r\n")
        own_server.expect("started")
    assert not serves(own_server, "127.0.0.2")
    assert serves(own_server, "127.0.0.3")
    for connection in busy:
        connection.close()
        own_server.expect("left")
    assert serves(own_server, "127.0.0.2")
    own_server.stop()


def test_a_stop_ends_running_answers_and_the_process(own_server):
    with own_server.connect() as connection:
        connection.sendall(b"GET /for-ever HTTP/1.1\r\n" + SMALL + b"\r\n")
        own_server.expect("started")
        own_server.stop()


@pytest.mark.parametrize("own_server", [{"drain_s": 20}], indirect=True)
def test_a_stop_finishes_running_answers_and_refuses_requests_on_open_connections(own_server):
    """Requests on kept-alive connections were accepted after the listener closed, and then cut."""
    with own_server.connect() as running, own_server.connect() as idle, own_server.connect() as half:
        assert is_served(idle)
        half.sendall(b"GET / HTTP/1.1\r\nX-Begun: 1\r\n")
        running.sendall(b"GET /wait HTTP/1.1\r\n" + SMALL + b"\r\n")
        own_server.expect("started")
        own_server.process.terminate()
        assert read_all(idle) == b""
        half.sendall(SMALL + b"\r\n")
        refused = read_all(half)
        assert (status(refused), error(refused)["code"]) == (503, "overloaded")
        assert b"Retry-After: 1" in refused
        assert b"Connection: close" in refused
        answer = read_all(running)
        assert status(answer) == 200
        assert b"whole" in answer
        assert b"close" in answer.lower()
    own_server.has_ended()


@pytest.mark.parametrize("own_server", [{"drain_s": 20}], indirect=True)
def test_a_stop_waits_for_slow_readers_of_begun_answers(own_server):
    """A kept-alive connection was reset although the end of its answer was unsent."""
    with socket.socket() as running:
        running.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        running.settimeout(10)
        running.connect(("127.0.0.1", own_server.port))
        running.sendall(b"GET /begun HTTP/1.1\r\n" + SMALL + b"\r\n")
        assert status(running.recv(1) + running.recv(20)) == 200
        own_server.process.terminate()
        own_server.expect("ended")
        assert own_server.line() == "cut"
        assert b"whole" in read_all(running)
    own_server.has_ended()


@pytest.mark.parametrize("own_server", [{"drain_s": 0.2}], indirect=True)
def test_an_answer_longer_than_the_drain_is_cut_and_the_application_settles(own_server):
    """The log thereby separates clients that were cut from clients that disconnected."""
    with own_server.connect() as running:
        running.sendall(b"GET /flood HTTP/1.1\r\n" + SMALL + b"\r\n")
        own_server.expect("started")
        own_server.process.terminate()
        for word in ("cut", "left", "settled"):
            own_server.expect(word)
    own_server.has_ended()


@pytest.mark.parametrize("own_server", [{"drain_s": 20, "drain_delay_s": 3}], indirect=True)
def test_a_stop_is_announced_before_it_begins(own_server):
    """Load balancers need time to notice it. Until then requests are answered, and their connections closed."""
    with own_server.connect() as kept:
        assert is_served(kept)
        own_server.process.terminate()
        while (
            status(answer := own_server.ask(b"GET /ready HTTP/1.1\r\nConnection: close\r\n" + SMALL + b"\r\n")) != 503
        ):
            pass
        assert b"connection: close" in answer.lower()
        kept.sendall(b"GET / HTTP/1.1\r\n" + SMALL + b"\r\n")
        answer = read_all(kept)
        assert status(answer) == 200
        assert b"connection: close" in answer.lower()
    own_server.has_ended()


@pytest.mark.parametrize("own_server", [{"drain_s": 20, "drain_delay_s": 3}], indirect=True)
def test_a_stop_closes_a_connection_only_after_an_answer_with_connection_close(own_server):
    """Streams ended well at a stop, but the next request of their clients met a closed connection."""
    with own_server.connect() as kept:
        kept.sendall(b"GET /stream HTTP/1.1\r\n" + SMALL + b"\r\n")
        own_server.expect("started")
        own_server.process.terminate()
        own_server.expect("ended")
        kept.sendall(b"GET / HTTP/1.1\r\n" + SMALL + b"\r\n")
        answers = read_all(kept)
    assert answers.count(b"HTTP/1.1 200") == 2
    assert answers.lower().count(b"connection: close") == 1
    own_server.has_ended()
