"""Media made to harm served models that see, watch and hear: each is answered by a sentence, beside a stream that
notices nothing.

What must stay true of all of them together: the answers of another project are the same as before, no inner address is
connected to, and memory is back where it was.
"""

from __future__ import annotations

import base64
import http.server
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from engine.api.media import MediaLimits
from tests.contract import media_models
from tests.engine.inputs.documents.test_hostile_documents import hostile as hostile_documents
from tests.engine.inputs.hostile_tensors import HOSTILE as TENSORS
from tests.engine.inputs.hostile_tensors import encoded, npy
from tests.engine.inputs.media import images
from tests.engine.inputs.media.hostile_images import BOMBS, BROKEN, NO_IMAGES
from tests.engine.inputs.media.hostile_streams import FILMS, FILMS_TAKEN, LIMIT_S, SOUNDS, SOUNDS_TAKEN
from tests.engine.inputs.media.images import picture, saved
from tests.engine.inputs.pdf_writing import scan
from tests.served import ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]  # three models start on a busy machine

TIMEOUT_S = 120.0
"""On a busy machine. The limits themselves are seconds, and tested where they are."""
GROWTH_BYTES = 320 << 20
"""Of all processes. Measured, 265 to 275 MiB: the child that reads files 91, web and worker 40 each, Valkey 36, a child
for images that was started anew 37; cores 6."""
MOST = 4
WATCHING = "qwen3_vl"
"""The model that takes videos, and sound that another one writes down."""
MAX_ITEMS = MediaLimits().max_media_items
MESSAGE_CHARS = 2000
"""Of a refusal that lists what is wrong at several places."""
LEAKS = ("Traceback", " at 0x", "/etc/passwd", ".py", "libtiff", "PIL.")


@dataclass(frozen=True, slots=True)
class Case:
    """A request body, and words of its refusal; none for one that has a right answer."""

    body: dict[str, Any]
    words: str = ""
    path: str = "/v1/chat/completions"


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def chat(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, *parts]}]}


def image(url: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


GOOD = saved(picture())
TAKEN = {
    "one pixel": saved(picture(1, 1)),
    "a grey one": saved(picture(mode="L")),
    "16 bits": saved(images.Image.fromarray(np.full((4, 4), 40_000, np.uint16))),
    "CMYK": saved(picture(mode="CMYK"), "JPEG"),
    "a palette": saved(picture(mode="P")),
    "transparent": saved(picture(mode="RGBA")),
    "animated GIF": saved(picture(), "GIF", save_all=True, append_images=[picture(mode="L")] * 30),
    "animated WebP": saved(picture(), "WEBP", save_all=True, append_images=[picture(mode="L")] * 30),
    "rotated": images.rotated(6),
    "broken EXIF": saved(picture(), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff"),
    "progressive": saved(picture(), "JPEG", progressive=True),
    "tall": saved(picture(3, 60)),
}
URLS = {
    "no base64": ("data:image/png;base64,***", "base64"),
    "no data": ("data:image/png;base64,", "empty"),
    "no comma": ("data:image/png;base64", "data:image/png;base64,DATA"),
    "percent text": ("data:image/png,%89PNG", "data:image/png;base64,DATA"),
    "a long head": ("data:" + "x" * 100_000 + ";base64,AAAA", "data:image/png;base64,DATA"),
    "bare base64": (base64.b64encode(GOOD).decode(), "data:image/png;base64,DATA"),
    "a file": ("file:///etc/passwd", "data:image/png;base64,DATA"),
    "ftp": ("ftp://files.example/cat.png", "data:image/png;base64,DATA"),
    "javascript": ("javascript:alert(1)", "data:image/png;base64,DATA"),
    "a blob": ("blob:https://files.example/1", "data:image/png;base64,DATA"),
    "nothing": ("", "must be an object with url"),
    "null": (None, "must be an object with url"),
    "a number": (5, "must be an object with url"),
    "a list": ([], "must be an object with url"),
    "an object": ({}, "must be an object with url"),
}
INNER = """
http://127.0.0.1:PORT/ http://127.1:PORT/ http://2130706433:PORT/ http://0x7f000001:PORT/ http://0177.0.0.1:PORT/
http://0:PORT/ http://localhost:PORT/ http://[::1]:PORT/ http://[::ffff:127.0.0.1]:PORT/ http://[::127.0.0.1]:PORT/
http://①②⑦.⓪.⓪.①:PORT/ http://127.0.0.1.:PORT/ http://10.0.0.1/ http://172.16.0.1/ http://192.168.1.1/
http://169.254.169.254/latest/meta-data/ http://0xa9fea9fe/ http://2852039166/ http://100.100.100.200/
http://[fd00:ec2::254]/ http://[64:ff9b::a9fe:a9fe]/ http://[2002:7f00:1::]/ http://metadata.google.internal/
http://224.0.0.1/ http://255.255.255.255/ http://printer.local/
""".split()
AMBIGUOUS = """
http://files.example@127.0.0.1:PORT/ http://files.example\\@127.0.0.1:PORT/ http://127.0.0.1:PORT#@files.example/
http://user:password@127.0.0.1:PORT/ http:///cat.png http:// http://[::1 http://127.0.0.1:65536/ http://127.0.0.1:0/
http://%31%32%37.0.0.1:PORT/ http://-.example-/
""".split()
PARTS = {
    "an image of another shape": ({"type": "image_url", "image_url": [1]}, "must be an object with url"),
    "no image": ({"type": "image_url"}, "image_url"),
    "a detail that is none": ({"image_url": {"url": data_url(GOOD), "detail": "ultra"}}, "must be one of auto"),
    "audio": ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, "takes text and images"),
    "audio by address": ({"type": "audio_url", "audio_url": {"url": "http://127.0.0.1/"}}, "takes text and images"),
    "a sound for an image": (image(data_url(SOUNDS_TAKEN["silence"])), "is WAV, which is not read as an image"),
    "a video for an image": (image(data_url(FILMS_TAKEN["one frame"])), "is MP4, which is not read as an image"),
    "a video": ({"type": "video_url", "video_url": {"url": data_url(b"", "video/mp4")}}, "cannot be used"),
    "vectors of audio": ({"type": "audio_embeds", "audio_embeds": "AAAA"}, "takes text and images"),
    "an unknown type": ({"type": "hologram", "hologram": "x"}, "known type"),
    "a number": (5, "content part"),
    "a list for a type": ({"type": ["image_url"], "image_url": "x"}, "known type"),
    "an object for a type": ({"type": {}}, "known type"),
    "vectors without a type": ({"type": None, "image_embeds": "AAAA"}, "neither"),
}


IMAGE_TENSORS = {
    "NaN": "finite",
    "bfloat16 minus infinity": "finite",
    "pickle": "neither",
    "objects": "Python objects",
    "huge shape": "another size",
    "code in the header": "header",
}


def spoken(data: Any) -> dict[str, Any]:
    """Return the body of a sound for the model that watches, which has it written down."""
    data = base64.b64encode(data).decode() if isinstance(data, bytes) else data
    return chat({"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}) | {"model": WATCHING}


def shown(*urls: Any) -> dict[str, Any]:
    parts = [{"type": "video_url", "video_url": {"url": url}} for url in urls]
    return chat(*parts) | {"model": WATCHING}


def video_url(data: bytes) -> str:
    return data_url(data, "video/mp4")


def frames(*parts: bytes) -> str:
    return "data:video/jpeg;base64," + ",".join(base64.b64encode(part).decode() for part in parts)


def streams(port: int) -> dict[str, Case]:
    """Return the rows of sounds and videos."""
    found = {f"sound, odd: {name}": Case(spoken(data)) for name, data in SOUNDS_TAKEN.items()}
    found |= {f"sound: {name}": Case(spoken(data), words) for name, (data, words) in SOUNDS.items()}
    found |= {f"video, odd: {name}": Case(shown(video_url(data))) for name, data in FILMS_TAKEN.items()}
    found |= {f"video: {name}": Case(shown(video_url(data)), words) for name, (data, words) in FILMS.items()}
    frame, inner = saved(picture(32, 32), "JPEG"), f"http://127.0.0.1:{port}/"
    sound = spoken(SOUNDS_TAKEN["silence"])
    (message,) = sound["messages"]
    several = {"messages": [message | {"content": message["content"][1:] * (MAX_ITEMS + 1)}]}
    return found | {
        "sound: nothing": Case(spoken(""), "must be an object with data"),
        "sound: a number": Case(spoken(5), "must be an object with data"),
        "sound: no base64": Case(spoken("!!!!"), "must be base64"),
        "sound: an inner address": Case(
            chat({"type": "audio_url", "audio_url": {"url": inner}}) | {"model": WATCHING}, "private, local or reserved"
        ),
        "sound: one more than may be": Case(sound | several, f"limit of {MAX_ITEMS}"),
        "sound: to be written down, an image": Case(
            spoken(GOOD) | {"model": WATCHING, "stream": True}, "is PNG, which is not read as audio"
        ),
        "video, odd: a list of frames": Case(shown(frames(frame, frame, frame))),
        "video, odd: the model's own placeholder": Case(
            chat({"type": "text", "text": "<|video_pad|>" * 9}) | {"model": WATCHING}
        ),
        "video: nothing": Case(shown(""), "must be an object with url"),
        "video: no base64": Case(shown("data:video/mp4;base64,!!!!"), "must be base64"),
        "video: an inner address": Case(shown(inner), "private, local or reserved"),
        "video: one more than may be": Case(shown(*[frames(frame)] * (MAX_ITEMS + 1)), f"limit of {MAX_ITEMS}"),
        "video: 129 frames": Case(shown(frames(*[frame] * 129)), "at most 128 frames"),
        "video: 100,000 frames of nothing": Case(shown("data:video/jpeg;base64," + "a," * 100_000), "128 frames"),
        "video: frames of two sizes": Case(shown(frames(frame, saved(picture(32, 40), "JPEG"))), "must have one size"),
        "video: a frame that is none": Case(shown(frames(frame, b"x")), "no known image format"),
    }


def cases(port: int) -> dict[str, Case]:
    """Return the table. `port`: of a server on this machine that nobody may connect to."""
    found = {f"image, bomb: {name}": Case(chat(image(data_url(data))), "pixels") for name, data in BOMBS.items()}
    found |= {f"image, broken: {name}": Case(chat(image(data_url(data))), "the image") for name, data in BROKEN.items()}
    found |= {
        f"image, of another kind: {name}": Case(chat(image(data_url(data))), words)
        for name, (data, words) in NO_IMAGES.items()
    }
    found |= {f"image, odd: {name}": Case(chat(image(data_url(data)))) for name, data in TAKEN.items()}
    found |= {f"address, form: {name}": Case(chat(image(url)), words) for name, (url, words) in URLS.items()}
    for url in (*INNER, *AMBIGUOUS):
        inner = "private, local or reserved" if url in INNER else "image_url.url"
        found[f"address, inner: {url}"] = Case(chat(image(url.replace("PORT", str(port)))), inner)
    found |= {f"part: {name}": Case(chat(part), words) for name, (part, words) in PARTS.items()}
    found |= {
        f"vectors: {name}": Case({"prompt_embeds": text}, words, "/v1/completions")
        for name, (text, words) in TENSORS.items()
    }
    found |= {
        f"vectors of an image: {name}": Case(chat({"type": "image_embeds", "image_embeds": TENSORS[name][0]}), words)
        for name, words in IMAGE_TENSORS.items()
    }
    found |= {
        f"file: {name}": Case(chat(document(content, file_name)), words)
        for name, (content, file_name, words) in hostile_documents().items()
    }
    found |= streams(port)
    found |= {
        f"pages: {name}": Case(chat(document(content, "x.pdf")), words) for name, (content, words) in PAGES.items()
    }
    found |= {
        "items: one more than may be": Case(chat(*[image(data_url(GOOD))] * (MAX_ITEMS + 1)), f"limit of {MAX_ITEMS}"),
        "items: a thousand": Case(chat(*[image(data_url(GOOD))] * 1000), "limit of"),
        "items: a thousand addresses": Case(chat(*[image(f"http://127.0.0.1:{port}/")] * 1000), "limit of"),
        "items: two that are broken": Case(chat(image(data_url(b"x")), image(data_url(b"y"))), "no known image format"),
        "vectors: of another width": Case(
            {"prompt_embeds": encoded(npy(np.zeros((2, 3), np.float32)))}, "the width of this model", "/v1/completions"
        ),
        "vectors: more than the context": Case(
            {"prompt_embeds": encoded(npy(np.zeros((60_000, 32), np.float16)))}, "60000", "/v1/completions"
        ),
        "text: the model's own placeholder": Case(chat({"type": "text", "text": "<image>" * 5})),
        "text: the placeholder beside an image": Case(chat({"type": "text", "text": "<image>"}, image(data_url(GOOD)))),
    }
    return found


COLOURS = "ff0000 00ff00 0000ff 000000"
LARGE = "/Width 60000 /Height 60000 /ColorSpace /DeviceRGB /BitsPerComponent 8 /Filter /ASCIIHexDecode"
PAGES = {
    "a scan": (scan(("", COLOURS)), ""),
    "a page of a point": (scan(("", COLOURS), box="0 0 1 1"), ""),
    "a page without a size": (scan(("", COLOURS), box="0 0 nan nan"), ""),
    "a picture that says it is enormous": (scan(("", COLOURS), picture=LARGE), ""),
    "more scans than may be seen": (scan(*[("", COLOURS)] * 17), "16 more; send fewer pages"),
    "as many scans as may be seen": (scan(*[("", COLOURS)] * 16), ""),
}
"""Files whose pages are seen."""


def document(content: bytes | str, name: str) -> dict[str, Any]:
    data = content if isinstance(content, str) else base64.b64encode(content).decode()
    return {"type": "file", "file": {"file_data": data, "filename": name}}


NAMES = list(cases(0))


@dataclass
class Witness:
    """A project that streams the same answer all the time."""

    client: openai.OpenAI
    expected: str = ""
    num_answers: int = 0
    others: list[str] = field(default_factory=list)
    """What was answered that is not as expected."""

    def answer(self) -> str:
        chunks = self.client.chat.completions.create(
            model="llava",
            messages=[{"role": "user", "content": "Tell me of the sea."}],
            temperature=0,
            max_tokens=64,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

    def watch(self, is_over: threading.Event) -> None:
        while not is_over.is_set():
            text = self.answer()
            self.num_answers += 1
            if text != self.expected:
                self.others.append(text)


class Counting(http.server.BaseHTTPRequestHandler):
    """Counts who comes."""

    num_asked = 0

    def do_GET(self) -> None:
        type(self).num_asked += 1
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def inner() -> Iterator[int]:
    """The port of a server on this machine."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(scope="module")
def table(inner: int) -> dict[str, Case]:
    return cases(inner)


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLightcone]:
    environment = {
        "LIGHTCONE_BATCH_INVARIANT": "1",
        "LIGHTCONE_MEDIA_DOMAINS": "*",
        "LIGHTCONE_MEDIA_HTTP": "1",
        "LIGHTCONE_EMBEDS": "1",
        "LIGHTCONE_MAX_VIDEO_SECONDS": str(LIMIT_S),
        "LIGHTCONE_MAX_TRANSCRIPTION_SECONDS": str(LIMIT_S),
    }
    folder = tmp_path_factory.mktemp("hostile")
    with media_models.served(folder, "llava", WATCHING, hearing=WATCHING, **environment) as served:
        yield served


@pytest.fixture(scope="module")
def http_client(seeing: ServedLightcone) -> Iterator[httpx.Client]:
    """A client that may all that media can ask for."""
    key = seeing.make_key(rights=["inference", "media_fetch", "embeds"])
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=seeing.base_url, headers=headers, timeout=TIMEOUT_S) as client:
        warm = [image(data_url(GOOD)), document(b"text", "x.txt"), document(b"<!doctype html><p>text", "x.html")]
        bodies = [*map(chat, warm), spoken(SOUNDS_TAKEN["silence"]), shown(video_url(FILMS_TAKEN["one frame"]))]
        for body in bodies:
            answer = client.post("/v1/chat/completions", json={"model": "llava", "max_tokens": 1, **body})
            assert answer.status_code == 200, answer.text
        yield client


@pytest.fixture(scope="module")
def resident_at_first(seeing: ServedLightcone, http_client: httpx.Client) -> int:
    return resident(seeing)


@pytest.fixture(scope="module", autouse=True)
def witness(seeing: ServedLightcone, resident_at_first: int) -> Iterator[Witness]:
    key = seeing.make_key(project="witness")
    with openai.OpenAI(api_key=key, base_url=seeing.api_url, max_retries=0, timeout=TIMEOUT_S) as client:
        made, is_over = Witness(client), threading.Event()
        made.expected = made.answer()
        thread = threading.Thread(target=made.watch, args=(is_over,))
        thread.start()
        yield made
        is_over.set()
        thread.join()


def resident(served: ServedLightcone) -> int:
    """Return the memory of all processes of a served Lightcone, in bytes."""
    page, total = os.sysconf("SC_PAGE_SIZE"), 0
    for pid, _ in served.processes_left():
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
        except OSError:
            continue
    return total


def test_the_table_has_all_that_it_must() -> None:
    assert len(NAMES) >= 300


@pytest.mark.parametrize("name", NAMES)
def test_hostile_media_get_a_sentence_or_a_right_answer(
    http_client: httpx.Client, table: dict[str, Case], name: str
) -> None:
    case = table[name]
    answer = http_client.post(case.path, json={"model": "llava", "max_tokens": MOST, **case.body})
    if not case.words:
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] >= 1
        return
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert case.words in error["message"]
    assert error["param"]
    assert len(error["message"]) < MESSAGE_CHARS
    assert not any(leak in error["message"] for leak in LEAKS if leak not in str(case.body))


def test_the_server_is_as_it_was(
    seeing: ServedLightcone, http_client: httpx.Client, witness: Witness, resident_at_first: int
) -> None:
    """Runs last. The first image and file are answered as they were, and the witness has noticed nothing."""
    good = http_client.post("/v1/chat/completions", json=chat(image(data_url(GOOD))) | {"max_tokens": MOST})
    assert good.status_code == 200
    assert Counting.num_asked == 0
    assert witness.num_answers > 0
    assert witness.others == []
    grown = resident(seeing) - resident_at_first
    assert grown < GROWTH_BYTES, f"{grown >> 20} MiB"
    stats = seeing.get("/health/ready")
    assert stats[0] == 200
