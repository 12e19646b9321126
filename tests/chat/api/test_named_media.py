"""Images and videos with a `uuid`: sent once, named later, by their tenant alone, and only as long as they are kept."""

from __future__ import annotations

import base64
import contextlib
from dataclasses import replace

import pytest

from chat.api.answering import images
from chat.api.request.messages import messages_walk
from chat.errors import ApiError
from chat.media.cache import MediaCache
from chat.media.named import NamedMedia
from tests.chat.api.test_remote_images import SEEING, CountingFetcher, SomeCaller, user

PNG, JPEG = b"\x89PNG\r\n\x1a\n" + bytes(40), b"\xff\xd8\xff\xe0" + bytes(40)


@pytest.fixture(autouse=True)
def kept(monkeypatch, tmp_path):
    """Keep named images in a folder of the test."""
    media = NamedMedia(MediaCache(tmp_path, 1 << 20))
    monkeypatch.setattr(images, "named_media", lambda: media)
    return media


def url_of(data):
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def sent(data, uuid):
    return {"type": "image_url", "image_url": {"url": url_of(data)}, "uuid": uuid}


def named(uuid, **fields):
    return {"type": "image_url", "image_url": None, "uuid": uuid, **fields}


async def walked(*parts, caller=SomeCaller(rights=())):
    messages = user(*parts)
    rules = await images.media_rules(messages, replace(SEEING, modalities=("image", "video")), caller)
    (message,) = messages_walk(messages, model="seeing", max_parts=99, media=rules)
    return [base64.b64decode(part["data"]) for part in message["content"]]


async def refusal(*parts, **options):
    with pytest.raises(ApiError) as caught:
        await walked(*parts, **options)
    return caught.value


@pytest.mark.parametrize("part", [named("a"), {"type": "image_url", "uuid": "a"}, {"image_url": None, "uuid": "a"}])
async def test_an_image_is_sent_once_and_named_later(part):
    await walked(sent(PNG, "a"))
    assert await walked(part) == [PNG]


async def test_a_request_may_name_what_it_sends_itself_even_if_nothing_is_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(images, "named_media", lambda: NamedMedia(MediaCache(tmp_path, 0)))
    assert await walked(named("a"), sent(PNG, "a"), sent(JPEG, "b"), named("b")) == [PNG, PNG, JPEG, JPEG]
    assert "names no image" in (await refusal(named("a"))).message


async def test_a_name_of_another_tenant_is_unknown():
    await walked(sent(PNG, "a"))
    error = await refusal(named("a"), caller=replace(SomeCaller(), tenant="2"))
    assert (error.code, error.param) == ("invalid_value", "messages.0.content.0.uuid")
    assert error.message.endswith("names no image that is kept: 'a'; send the image with its uuid again")


async def test_nothing_is_kept_of_a_project_that_stores_nothing():
    silent = replace(SomeCaller(rights=()), stores_nothing=True)
    assert await walked(sent(PNG, "a"), named("a"), caller=silent) == [PNG, PNG]
    assert "names no image" in (await refusal(named("a"), caller=silent)).message


async def test_data_that_is_sent_is_what_is_seen_and_a_name_stands_for_the_newest():
    await walked(sent(PNG, "a"))
    assert await walked(sent(JPEG, "a")) == [JPEG]
    assert await walked(named("a")) == [JPEG]


async def test_what_is_fetched_gets_its_name_too(monkeypatch):
    class Fetcher(CountingFetcher):
        async def fetch(self, url, request, budget):
            return replace(await super().fetch(url, request, budget), parts=(PNG,))

    monkeypatch.setattr(images, "media_fetcher", Fetcher)
    await walked({"image_url": "https://a/1", "uuid": "remote"})
    assert await walked(named("remote")) == [PNG]


async def test_what_a_server_lets_nobody_keep_has_no_name(monkeypatch):
    class Fetcher(CountingFetcher):
        async def fetch(self, url, request, budget):
            return replace(await super().fetch(url, request, budget), parts=(JPEG,), may_be_kept=False)

    monkeypatch.setattr(images, "media_fetcher", Fetcher)
    await walked(sent(PNG, "remote"))
    assert await walked({"image_url": "https://a/1", "uuid": "remote"}, named("remote")) == [JPEG, JPEG]
    assert "names no image" in (await refusal(named("remote"))).message


@pytest.mark.parametrize("uuid", ["", 5, ["a"], "a" * 257], ids=lambda value: str(value)[:20])
async def test_a_bad_name_is_refused_at_its_place(uuid):
    for part in (sent(PNG, uuid), named(uuid)):
        error = await refusal(part)
        assert error.param == "messages.0.content.0.uuid"
        assert "a string of 1 to 256 characters" in error.message


async def test_no_image_at_all_is_refused_as_before():
    error = await refusal(named(None))
    assert (error.param, error.code) == ("messages.0.content.0.image_url", "missing_required_parameter")


@pytest.mark.parametrize("data", [b"", b"no image", b"%PDF-1.4"])
async def test_what_is_no_image_is_not_kept(data):
    with contextlib.suppress(ApiError):
        await walked(sent(data, "a"))
    assert "names no image" in (await refusal(named("a"))).message


async def test_names_count_as_images():
    await walked(sent(PNG, "a"))
    assert "limit of 8" in (await refusal(*[named("a")] * 9)).message


async def test_the_oldest_names_are_forgotten_as_the_room_fills(monkeypatch, tmp_path):
    few = NamedMedia(MediaCache(tmp_path / "few", 4000))
    monkeypatch.setattr(images, "named_media", lambda: few)
    for number in range(40):
        await walked(sent(PNG + bytes(400), f"n{number}"))
    assert await walked(named("n39")) == [PNG + bytes(400)]
    assert "names no image" in (await refusal(named("n0"))).message
    assert sum(file.stat().st_size for file in (tmp_path / "few").iterdir()) < 8000


MP4 = b"\x00\x00\x00\x18ftypmp42" + bytes(60)


def video(data, **fields):
    url = None if data is None else f"data:video/mp4;base64,{base64.b64encode(data).decode()}"
    return {"type": "video_url", "video_url": url and {"url": url}, **fields}


async def test_a_video_is_sent_once_and_named_later_apart_from_images():
    assert await walked(video(MP4, uuid="a")) == [MP4]
    assert await walked(video(None, uuid="a")) == [MP4]
    error = await refusal(named("a"))
    assert "names no image" in error.message
    error = await refusal(video(None, uuid="b"))
    assert error.param == "messages.0.content.0.uuid"
    assert "names no video that is kept: 'b'" in error.message


async def test_a_list_of_frames_has_no_name():
    part = {"video_url": f"data:video/jpeg;base64,{base64.b64encode(JPEG).decode()}", "uuid": "a"}
    error = await refusal(part)
    assert error.param == "messages.0.content.0.uuid"
    assert "lists of frames" in error.message
