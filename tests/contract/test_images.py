"""Images in messages of a served model that sees, sent by the published clients: inline and by address."""

from __future__ import annotations

import base64
import http.server
import io
import json
import threading

import numpy as np
import openai
import pytest
from PIL import Image

from tests.contract.conftest import browser_of
from tests.contract.test_page_runs import frames, start
from tests.engine.seeing_folders import encoded, image_of, write_seeing
from tests.served import ServedLightcone

pytestmark = pytest.mark.live

FIRST, SECOND = (encoded(image_of(40, 30, seed)) for seed in (1, 2))
MOST = 6


class Pictures(http.server.BaseHTTPRequestHandler):
    """Serves one picture at any path, and counts how often."""

    num_asked = 0

    def do_GET(self):
        type(self).num_asked += 1
        body = base64.b64decode(FIRST)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def pictures():
    """The address of a server of pictures."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pictures) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def seeing(tmp_path_factory, pictures):
    """A served model that sees. Its answers mean nothing, and are the same for the same input."""
    folder = tmp_path_factory.mktemp("seeing")
    (folder / "llava").mkdir()
    write_seeing(folder / "llava", "llava")
    served = ServedLightcone(folder / "served", model="llava")
    served.environment = {
        "LIGHTCONE_MODEL": str(folder / "llava"),
        "LIGHTCONE_MODEL_NAME": "llava",
        "LIGHTCONE_WEIGHTS": "float32",
        "LIGHTCONE_MEDIA_DOMAINS": pictures,
        "LIGHTCONE_MEDIA_HTTP": "1",
        "LIGHTCONE_MEDIA_NETWORKS": "127.0.0.0/8",
        "LIGHTCONE_EMBEDS": "1",
    }
    with served.running():
        yield served


def client_of(served, key=""):
    return openai.OpenAI(api_key=key or served.api_key, base_url=served.api_url, max_retries=0)


def data_url(data):
    return f"data:image/png;base64,{data}"


def chat(client, url, detail="auto", words="what is it?"):
    image = {"type": "image_url", "image_url": {"url": url, "detail": detail}}
    content = [{"type": "text", "text": words}, image]
    messages = [{"role": "user", "content": content}]
    return client.chat.completions.create(model="llava", messages=messages, temperature=0, max_tokens=MOST)


def texts(answer):
    return [choice.message.content for choice in answer.choices]


def test_answers_depend_on_the_image_and_on_nothing_else(seeing):
    with client_of(seeing) as client:
        first, second, again = (chat(client, data_url(data)) for data in (FIRST, SECOND, FIRST))
        alone = client.chat.completions.create(
            model="llava", messages=[{"role": "user", "content": "what is it?"}], max_tokens=MOST
        )
    assert texts(first) == texts(again) != texts(second)
    assert first.usage.prompt_tokens == second.usage.prompt_tokens == alone.usage.prompt_tokens + 16
    assert first.usage.prompt_tokens_details.image_tokens == 16
    assert alone.usage.prompt_tokens_details.image_tokens is None


def test_the_other_dialects_see_the_same(seeing):
    with client_of(seeing) as client:
        expected = chat(client, data_url(FIRST))
        parts = [
            {"type": "input_text", "text": "what is it?"},
            {"type": "input_image", "image_url": data_url(FIRST), "detail": "auto"},
        ]
        response = client.responses.create(
            model="llava", input=[{"role": "user", "content": parts}], temperature=0, max_output_tokens=MOST
        )
    source = {"type": "base64", "media_type": "image/png", "data": FIRST}
    blocks = [{"type": "text", "text": "what is it?"}, {"type": "image", "source": source}]
    body = {"model": "llava", "messages": [{"role": "user", "content": blocks}], "temperature": 0, "max_tokens": MOST}
    status, _, text = seeing.post("/v1/messages", body)
    assert status == 200, text
    (block,) = json.loads(text)["content"]
    assert [response.output_text] == [block["text"]] == texts(expected)
    assert response.usage.input_tokens == expected.usage.prompt_tokens


def test_an_address_is_fetched_for_a_key_that_may(seeing, pictures):
    url = f"http://{pictures}/picture.png"
    with client_of(seeing) as client, pytest.raises(openai.BadRequestError) as caught:
        chat(client, url)
    assert caught.value.param == "messages.0.content.1.image_url.url"
    assert "may not have media fetched" in caught.value.message
    assert Pictures.num_asked == 0
    key = seeing.make_key(rights=["inference", "media_fetch"])
    with client_of(seeing, key) as client:
        fetched, inline = chat(client, url), chat(client, data_url(FIRST))
        with pytest.raises(openai.BadRequestError) as caught:
            chat(client, "http://169.254.169.254/latest/meta-data")
    assert texts(fetched) == texts(inline)
    assert Pictures.num_asked == 1
    assert caught.value.code == "invalid_media"


def test_an_image_is_sent_once_and_named_later(seeing):
    def ask(client, image):
        messages = [{"role": "user", "content": [{"type": "text", "text": "what is it?"}, image]}]
        return client.chat.completions.create(model="llava", messages=messages, temperature=0, max_tokens=MOST)

    url, name = {"url": data_url(SECOND)}, {"type": "image_url", "image_url": None, "uuid": "photo 7"}
    with client_of(seeing) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, name)
        sent, named = (ask(client, part) for part in ({"type": "image_url", "image_url": url, "uuid": "photo 7"}, name))
    assert caught.value.param == "messages.0.content.1.uuid"
    assert texts(sent) == texts(named)
    assert named.usage.prompt_tokens == sent.usage.prompt_tokens


def test_options_of_media_need_a_right_and_are_those_of_the_model(seeing):
    clear = io.BytesIO()
    Image.new("RGBA", (40, 30), (0, 0, 0, 0)).save(clear, "PNG")
    content = [{"type": "image_url", "image_url": {"url": data_url(base64.b64encode(clear.getvalue()).decode())}}]
    fields = {"model": "llava", "messages": [{"role": "user", "content": content}], "temperature": 0}
    red = {"media_io_kwargs": {"image": {"rgba_background_color": [255, 0, 0]}}}
    key = seeing.make_key(rights=["inference", "mm_kwargs"])
    for used, options, param in (
        ("", red, "media_io_kwargs"),
        (key, {"mm_processor_kwargs": {"size": 5}}, "mm_processor_kwargs.size"),
        (key, {"media_io_kwargs": {"image": {"mode": "L"}}}, "media_io_kwargs.image.mode"),
    ):
        with client_of(seeing, used) as client, pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**fields, max_tokens=MOST, extra_body=options)
        assert caught.value.param == param
    with client_of(seeing, key) as client:
        white, coloured = (
            client.chat.completions.create(**fields, max_tokens=MOST, extra_body=options) for options in ({}, red)
        )
    assert texts(white) != texts(coloured)


def test_a_stream_goes_on_beside_images_that_are_refused(seeing):
    hostile = [
        FIRST[:80],
        base64.b64encode(b"GIF89a" + bytes(20)).decode(),
        base64.b64encode(b"%PDF-1.4").decode(),
        "!!!!",
    ]
    ask = {"model": "llava", "messages": [{"role": "user", "content": "go on"}], "temperature": 0, "max_tokens": 64}
    with client_of(seeing) as client:
        expected = client.chat.completions.create(**ask)
        stream = client.chat.completions.create(**ask, stream=True)
        first = next(stream)
        for data in hostile:
            with pytest.raises(openai.BadRequestError) as caught:
                chat(client, data_url(data))
            assert caught.value.param == "messages.0.content.1.image_url"
        pieces = [chunk.choices[0].delta.content or "" for chunk in (first, *stream) if chunk.choices]
    assert "".join(pieces) == texts(expected)[0]


def test_a_model_that_reads_text_alone_says_so(lightcone):
    with openai.OpenAI(api_key=lightcone.api_key, base_url=lightcone.api_url, max_retries=0) as client:
        messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": data_url(FIRST)}}]}]
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model=lightcone.model, messages=messages)
    assert caught.value.code == "unsupported_parameter"
    assert "is not a multimodal model" in caught.value.message


def test_the_playground_sends_an_image_that_it_keeps(seeing):
    """By the name of a file, which the server replaces as the run starts; the log says how large it was."""
    content = base64.b64decode(FIRST)
    with client_of(seeing) as client:
        expected = chat(client, data_url(FIRST))
    with browser_of(seeing) as browser:
        sent = browser.post("/playground/api/files", content=content, headers={"Content-Type": "image/png"})
        assert sent.status_code == 200, sent.text
        assert browser.get(f"/playground/api/files/{sent.json()['id']}").content == content
        image = {"type": "image_url", "image_url": {"url": f"attachment:{sent.json()['id']}", "detail": "auto"}}
        messages = [{"role": "user", "content": [{"type": "text", "text": "what is it?"}, image]}]
        request = {"model": "llava", "messages": messages, "temperature": 0, "max_tokens": MOST}
        counted = browser.post("/playground/api/render", json={"request": request}).json()
        *said, (_, end) = frames(browser, start(browser, request))
        assert end["type"] == "completed", end
        assert "".join(message.get("text", "") for _, message in said) == texts(expected)[0]
        assert end["usage"]["prompt_tokens"] == counted["num_tokens"] == expected.usage.prompt_tokens
        seeing.wait_for(
            lambda: browser.get(end["log_url"]).status_code == 200, timeout_s=30, what="the row of the request log"
        )
        assert "1 image," in browser.get(end["log_url"]).text


def base64_of_rows(width, value):
    file = io.BytesIO()
    np.save(file, np.full((7, width), value, np.float32))
    return base64.b64encode(file.getvalue()).decode()


def test_prompts_of_vectors_are_answered_for_keys_that_may_send_them(seeing):
    width = json.loads((seeing.folder.parent / "llava" / "config.json").read_text())["text_config"]["hidden_size"]

    def complete(client, embeds):
        return client.completions.create(
            model="llava", prompt="", max_tokens=MOST, temperature=0, extra_body={"prompt_embeds": embeds}
        )

    with client_of(seeing, seeing.make_key(rights=["inference", "embeds"])) as client:
        answers = [complete(client, base64_of_rows(width, value)) for value in (0.5, -0.5, 0.5)]
        with pytest.raises(openai.BadRequestError, match=f"must have rows of {width} numbers"):
            complete(client, base64_of_rows(width + 1, 0.5))
    assert {answer.usage.prompt_tokens for answer in answers} == {7}
    first, second, again = (answer.choices[0].text for answer in answers)
    assert first == again != second
    with client_of(seeing) as client, pytest.raises(openai.BadRequestError, match="Send vectors as inputs"):
        complete(client, base64_of_rows(width, 0.5))
