"""Measure the streams of one project (the witness) while other clients attack the server.

    python benchmarks/witness.py [--model PATH] [--seconds 20]
        [--only json,deep,bodies,texts,running_sequences,runs,tokenize,files,idle]

The witness streams greedy answers one after the other, with a key of another project and another address. For each
attack, and for a quiet stretch before them, it reports tokens per second, the longest gap between two frames, the
longest wait for a first token and failed answers; and the memory of every process at its peak and ten seconds after the
end. Where files are attacked, the witness sends a small one with each request. Attackers are separate processes. Linux
only.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.installation import ROOT, Installation, serving  # noqa: E402

MIB = 1 << 20
WITNESS_ADDRESS = "127.0.0.2"
SETTLE_S = 10.0
SMALL_PAGE = b"BT /F1 9 Tf 20 20 Td (Tell me of the sea.) Tj ET"
MAKE_KEY = """
import sys
import django
django.setup()
from chat.models import Org, Project
from chat.access.keys import key_create
org = Org.objects.create(name="Witness")
project = Project.objects.create(org=org, name="Witness")
sys.stdout.write(key_create(project=project, name="of the witness")[1])
"""


@dataclass
class Seen:
    """The record of a witness: `waits_s` for the first frame of each request, `gaps_s` between frames of one answer."""

    num_tokens: int = 0
    waits_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class Witness(threading.Thread):
    """A client that asks for one answer after the other until it is stopped."""

    def __init__(self, port: int, key: str, content: object) -> None:
        super().__init__(daemon=True)
        self.port, self.key, self.content = port, key, content
        self.seen = Seen()
        self.ends = threading.Event()

    def run(self) -> None:
        while not self.ends.is_set():
            connection = http.client.HTTPConnection(
                "127.0.0.1", self.port, timeout=120, source_address=(WITNESS_ADDRESS, 0)
            )
            try:
                self._answer(connection)
            except (OSError, http.client.HTTPException) as error:
                self.seen.failures.append(f"{type(error).__name__}: {error}")
                self.ends.wait(0.2)
            finally:
                connection.close()

    def finish(self) -> Seen:
        """Stop at the next frame; return the record."""
        self.ends.set()
        self.join(150)
        return self.seen

    def _answer(self, connection: http.client.HTTPConnection) -> None:
        body = {
            "messages": [{"role": "user", "content": self.content}],
            "max_tokens": 200,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
        }
        asked_at = time.monotonic()
        connection.request("POST", "/v1/chat/completions", json.dumps(body), _headers(self.key))
        response = connection.getresponse()
        if response.status != 200:
            self.seen.failures.append(f"{response.status} {response.read()[:200]!r}")
            self.ends.wait(0.2)
            return
        last_at, first, ended = asked_at, True, False
        while line := response.readline():
            if not line.startswith(b"data: "):
                continue
            now = time.monotonic()
            (self.seen.waits_s if first else self.seen.gaps_s).append(now - last_at)
            last_at, first = now, False
            if b'"error"' in line:
                self.seen.failures.append(line[:200].decode())
            ended = ended or b"[DONE]" in line
            self.seen.num_tokens += b'"content"' in line
            if self.ends.is_set():
                return
        if not ended:
            self.seen.failures.append("an answer broke off")


class Memory(threading.Thread):
    """A thread that measures the memory of every part four times a second."""

    def __init__(self, installation: Installation) -> None:
        super().__init__(daemon=True)
        self.installation = installation
        self.peak: dict[str, int] = {}
        self.ends = threading.Event()

    def run(self) -> None:
        while not self.ends.wait(0.25):
            for part, held in self.now().items():
                self.peak[part] = max(held, self.peak.get(part, 0))

    def now(self) -> dict[str, int]:
        """Return MiB of each part."""
        return {part: sum(held) // MIB for part, held in self.installation.memory_bytes().items()}


def _headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}


def post(port: int, key: str, path: str, body: bytes, timeout_s: float) -> str:
    """Send a body; return the status and the first words of the answer, or the failure.

    Read it for `timeout_s` at most.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    ends_at = time.monotonic() + timeout_s
    try:
        connection.request("POST", path, body, _headers(key))
        response = connection.getresponse()
        text = b""
        while (part := response.read1(65_536)) and time.monotonic() < ends_at:
            text = text or part[:120]
        return f"{response.status} {text[:120].decode(errors='replace')}"
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()


def chat(content: object, **more: object) -> bytes:
    """Return the body of a chat with one message."""
    return json.dumps({"messages": [{"role": "user", "content": content}], "max_tokens": 2, **more}).encode()


def padded(value: str, num_bytes: int) -> bytes:
    """Return a chat with an unused field, full of one value."""
    return chat("x")[:-1] + b', "zz": [' + b",".join([value.encode()] * (num_bytes // (len(value) + 1))) + b"]}"


def at_once(count: int, work: Callable[[int], str]) -> None:
    """Call it `count` times concurrently, and print how often each answer came."""
    with ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(work, range(count)))
    for answer in sorted(set(answers)):
        print(f"    {answers.count(answer)} x {answer}", flush=True)


def attack_json(port: int, key: str, seconds: float) -> None:
    """Six bodies of 33 MB with ten million empty lists."""
    body = padded("[]", 33_000_000)
    at_once(6, lambda _: post(port, key, "/v1/chat/completions", body, seconds + 60))


def attack_deep(port: int, key: str, seconds: float) -> None:
    """Eight bodies of 33 MB with lists 240 deep."""
    body = padded("[" * 240 + "]" * 240, 33_000_000)
    at_once(8, lambda _: post(port, key, "/v1/chat/completions", body, seconds + 60))


def attack_bodies(port: int, key: str, seconds: float) -> None:
    """Sixteen connections without a key that send 59 of 60 MiB and wait."""

    def hold(_: int) -> str:
        sent = 0
        with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
            line.sendall(
                b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
                b"Content-Length: %d\r\n\r\n" % (60 * MIB)
            )
            try:
                while sent < 59 * MIB:
                    line.sendall(b"x" * MIB)
                    sent += MIB
                line.settimeout(seconds)
                return f"took all; {line.recv(64)[:12].decode()}"
            except OSError as error:
                return type(error).__name__

    at_once(16, hold)


def attack_texts(port: int, key: str, seconds: float) -> None:
    """Twenty messages of 30 MB, which no model takes."""
    body = chat("word " * 6_000_000)
    at_once(20, lambda _: post(port, key, "/v1/chat/completions", body, seconds + 60))


def attack_running_sequences(port: int, key: str, seconds: float) -> None:
    """One request for 128 long answers."""
    at_once(
        1,
        lambda _: post(
            port,
            key,
            "/v1/chat/completions",
            chat("Count.", n=128, max_tokens=2048, ignore_eos=True, stream=True),
            seconds,
        ),
    )


def attack_runs(port: int, key: str, seconds: float) -> None:
    """Fifty requests for 1,500 tokens each."""
    at_once(
        50,
        lambda i: post(
            port,
            key,
            "/v1/chat/completions",
            chat(f"Count to {i}.", max_tokens=1500, ignore_eos=True, stream=True),
            seconds,
        ),
    )


def attack_tokenize(port: int, key: str, seconds: float) -> None:
    """Twelve texts of 1 MiB that are nearly two million tokens each."""
    body = json.dumps({"prompt": "́" * (MIB // 2)}, ensure_ascii=False).encode()
    at_once(12, lambda _: post(port, key, "/tokenize", body, seconds + 60))


def attack_files(port: int, key: str, seconds: float) -> None:
    """Ten PDF files of 25 kB whose one page takes as long as it may."""
    body = chat(file_part(b"BT /F1 9 Tf " + b"1 0 Td (a) Tj " * 200_000 + b"ET"))
    at_once(10, lambda _: post(port, key, "/v1/chat/completions", body, seconds + 60))


def attack_idle(port: int, key: str, seconds: float) -> None:
    """As many idle connections as this process may have, 4,200 at most."""
    lines: list[socket.socket] = []
    try:
        for _ in range(4200):
            lines.append(socket.create_connection(("127.0.0.1", port), timeout=5))
    except OSError as error:
        print(f"    {len(lines)} connections, then {type(error).__name__}: {error}", flush=True)
    time.sleep(seconds)
    for line in lines:
        line.close()


def file_part(page: bytes) -> list[dict[str, object]]:
    """Return the content of a message: a PDF file with one page of these operators."""
    stream = zlib.compress(page, 9)
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    data, places = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj" % number + text + b"endobj\n"
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    data += (
        b"xref\n0 6\n0000000000 65535 f \n"
        + table
        + b"trailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % len(data)
    )
    url = "data:application/pdf;base64," + base64.b64encode(data).decode()
    return [{"type": "file", "file": {"filename": "one.pdf", "file_data": url}}]


ATTACKS = {
    name.removeprefix("attack_"): function for name, function in list(globals().items()) if name.startswith("attack_")
}


def witness_key(installation: Installation) -> str:
    """Create a key of a separate project."""
    environment = os.environ | {
        "LIGHTCONE_DATA_DIR": str(installation.folder),
        "DJANGO_SETTINGS_MODULE": "lightcone_site.settings",
    }
    done = subprocess.run(
        [sys.executable, "-c", MAKE_KEY], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def observe(name: str, installation: Installation, key: str, seconds: float) -> None:
    """Run one attack ('': none) beside the witness, and print its effect."""
    memory = Memory(installation)
    before = memory.now()
    witness = Witness(installation.port, key, file_part(SMALL_PAGE) if name == "files" else "Tell me of the sea.")
    started_at = time.monotonic()
    witness.start()
    memory.start()
    print(f"{name or 'quiet'}: {ATTACKS[name].__doc__ if name else 'Nothing beside the witness.'}", flush=True)
    if name:
        time.sleep(2)
        command = [
            sys.executable,
            __file__,
            "--attack",
            name,
            "--port",
            str(installation.port),
            "--seconds",
            str(seconds),
        ]
        with subprocess.Popen(command, env=os.environ | {"WITNESS_ATTACKER_KEY": installation.key}) as attacker:
            if attacker.wait(seconds + 300):
                print("    the attacker failed", flush=True)
    else:
        time.sleep(seconds)
    lasted_s = time.monotonic() - started_at
    seen = witness.finish()
    memory.ends.set()
    time.sleep(SETTLE_S)
    after = memory.now()
    print(
        f"    {lasted_s:.0f} s, {seen.num_tokens / lasted_s:.0f} tok/s, longest gap "
        f"{max(seen.gaps_s, default=0):.2f} s, longest first token {max(seen.waits_s, default=0):.2f} s, "
        f"{len(seen.failures)} failures"
    )
    for failure in seen.failures[:3]:
        print(f"    failed: {failure}")
    grown = {
        part: f"{before[part]} > {peak} > {after.get(part, 0)}"
        for part, peak in memory.peak.items()
        if peak > before.get(part, 0) + 20 and part in before
    }
    print(f"    MiB before, at the peak, {SETTLE_S:.0f} s after: {grown or 'all within 20'}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="")
    parser.add_argument("--only", default=",".join(ATTACKS))
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument(
        "--attack", choices=ATTACKS, help="what an attacker does; for the processes that this script starts"
    )
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    if options.attack:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        ATTACKS[options.attack](options.port, os.environ["WITNESS_ATTACKER_KEY"], options.seconds)
        return
    # The attacker has an ordinary key with the default limit of live requests.
    settings = {"LIGHTCONE_MAX_LIVE_PER_KEY": "64"} | ({"LIGHTCONE_MODEL": options.model} if options.model else {})
    with serving(settings=settings) as installation:
        key = witness_key(installation)
        for name in ("", *options.only.split(",")):
            observe(name, installation, key, options.seconds)


if __name__ == "__main__":
    main()
