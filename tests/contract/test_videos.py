"""Videos in messages of a served model that takes them, by the published client: files, frames, and an address."""

from __future__ import annotations

import base64

import openai
import pytest

from tests.engine.inputs.media.streams import film
from tests.engine.seeing_folders import encoded, image_of, write_seeing
from tests.served import ServedLightcone

pytestmark = pytest.mark.live

SIZE = (64, 48)
FRAMES = ",".join(encoded(image_of(*SIZE, seed), "JPEG") for seed in range(4))


@pytest.fixture(scope="module")
def watching(tmp_path_factory):
    """A served model that takes videos. Its answers mean nothing, and are the same for the same input."""
    folder = tmp_path_factory.mktemp("watching")
    (folder / "qwen").mkdir()
    write_seeing(folder / "qwen", "qwen3_vl")
    served = ServedLightcone(folder / "served", model="qwen")
    served.environment = {
        "LIGHTCONE_MODEL": str(folder / "qwen"),
        "LIGHTCONE_MODEL_NAME": "qwen",
        "LIGHTCONE_WEIGHTS": "float32",
    }
    with served.running():
        yield served


def chat(client, url, model="qwen", **options):
    content = [{"type": "text", "text": "what happens?"}, {"type": "video_url", "video_url": {"url": url}}]
    return client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": content}],
        temperature=0,
        max_tokens=6,
        extra_body=options,
    )


def data_url(data, kind="mp4"):
    return f"data:video/{kind};base64,{data}"


def test_answers_depend_on_the_video_and_on_its_time(watching):
    quick, slow = (base64.b64encode(film(20, fps, SIZE)).decode() for fps in (10, 5))
    with openai.OpenAI(api_key=watching.api_key, base_url=watching.api_url, max_retries=0) as client:
        first, again, longer = (chat(client, data_url(data)) for data in (quick, quick, slow))
        frames = chat(client, data_url(FRAMES, "jpeg"))
        with pytest.raises(openai.BadRequestError) as broken:
            chat(client, data_url(quick[:400]))
        with pytest.raises(openai.BadRequestError) as far:
            chat(client, "http://169.254.169.254/film.mp4")
    texts = [answer.choices[0].message.content for answer in (first, again, frames)]
    assert texts[0] == texts[1] != texts[2]
    assert first.usage.prompt_tokens == frames.usage.prompt_tokens < longer.usage.prompt_tokens
    assert broken.value.param == "messages.0.content.1.video_url"
    assert (far.value.param, far.value.code) == ("messages.0.content.1.video_url.url", "invalid_media")


def test_a_key_that_may_says_how_many_frames_are_decoded(watching):
    url, options = data_url(base64.b64encode(film(20, 10, SIZE)).decode()), {"video": {"num_frames": 2}}
    with openai.OpenAI(api_key=watching.api_key, base_url=watching.api_url, max_retries=0) as client:
        plain = chat(client, url)
        with pytest.raises(openai.BadRequestError) as caught:
            chat(client, url, media_io_kwargs=options)
    assert caught.value.param == "media_io_kwargs"
    key = watching.make_key(rights=["inference", "mm_kwargs"])
    with openai.OpenAI(api_key=key, base_url=watching.api_url, max_retries=0) as client:
        fewer = chat(client, url, media_io_kwargs=options)
        smaller = chat(client, url, mm_processor_kwargs={"max_pixels": 1024})
    assert max(fewer.usage.prompt_tokens, smaller.usage.prompt_tokens) < plain.usage.prompt_tokens


def test_a_model_that_reads_text_alone_says_so(lightcone):
    client = openai.OpenAI(api_key=lightcone.api_key, base_url=lightcone.api_url, max_retries=0)
    with client, pytest.raises(openai.BadRequestError) as caught:
        chat(client, data_url(FRAMES, "jpeg"), lightcone.model)
    assert caught.value.code == "unsupported_parameter"
    assert "is not a multimodal model" in caught.value.message
