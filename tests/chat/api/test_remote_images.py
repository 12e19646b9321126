"""What becomes of the images that messages name by address: who may, how many are fetched, and what is said."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from chat.api.answering import images
from chat.api.request.messages import messages_walk
from chat.catalog import named_models
from chat.catalog.services import ModelEntry
from chat.errors import ApiError
from chat.media.data_urls import Media, MediaBudget
from chat.media.errors import media_refused
from chat.relay.state.workers import ModelCondition
from engine.api import MAX_FILES
from engine.api.media import MediaKind, MediaLimits

SEEING = ModelEntry("seeing", "me", 0, modalities=("image",))
READING = ModelEntry("reading", "me", 0)


@dataclass(frozen=True)
class SomeCaller:
    tenant: str = "1"
    rights: tuple[str, ...] = ("media_fetch",)
    stores_nothing: bool = False

    def has_right(self, right):
        return right in self.rights


class CountingFetcher:
    """Fetches the address itself; refuses those with `bad`."""

    limits = MediaLimits()

    def __init__(self):
        self.asked = []
        self.kinds = []
        self.kept = []
        self.most = []

    def budget(self):
        return MediaBudget(self.limits)

    async def fetch(self, url, request, budget):
        self.asked.append((url, request.may_fetch, request.tenant))
        self.kinds.append(request.kind)
        self.kept.append(request.may_keep)
        self.most.append(request.max_bytes)
        if "bad" in url:
            raise media_refused(request.param, "could not be fetched: send the data")
        return Media(request.kind, (url.encode(),))


@pytest.fixture
def live(monkeypatch):
    """What workers report of models, by name."""
    conditions = {}

    async def models_live():
        return conditions

    monkeypatch.setattr(named_models, "models_live", models_live)
    return conditions


@pytest.fixture
def fetcher(monkeypatch, live):
    fetcher = CountingFetcher()
    monkeypatch.setattr(images, "media_fetcher", lambda: fetcher)
    return fetcher


def user(*parts):
    return [{"role": "user", "content": [*parts]}]


def image(url):
    return {"type": "image_url", "image_url": {"url": url}}


async def walked(messages):
    rules = await images.media_rules(messages, SEEING, SomeCaller())
    return messages_walk(messages, model="seeing", max_parts=99, media=rules)


async def test_an_address_is_fetched_once_and_its_bytes_go_to_the_worker(fetcher):
    (message,) = await walked(user(image("https://a/1"), image("https://a/1"), {"image_url": "HTTPS://a/2"}))
    assert [part["data"] for part in message["content"]] == ["aHR0cHM6Ly9hLzE=", "aHR0cHM6Ly9hLzE=", "SFRUUFM6Ly9hLzI="]
    assert fetcher.asked == [("https://a/1", True, "1"), ("HTTPS://a/2", True, "1")]


async def test_no_more_are_fetched_than_a_request_may_have(fetcher):
    with pytest.raises(ApiError) as caught:
        await walked(user(*[image(f"https://a/{number}") for number in range(30)]))
    assert len(fetcher.asked) == MediaLimits().max_media_items
    assert "limit of 8" in caught.value.message


async def test_what_could_not_be_fetched_is_said_at_its_place(fetcher):
    with pytest.raises(ApiError) as caught:
        await walked(user(image("https://a/1"), image("https://a/bad")))
    assert (caught.value.code, caught.value.param) == ("invalid_media", "messages.0.content.1.image_url.url")
    assert caught.value.message == "messages.0.content.1.image_url.url could not be fetched: send the data"


async def test_a_key_without_the_right_is_named_to_the_fetcher(fetcher):
    await images.media_rules(user(image("https://a/1")), SEEING, replace(SomeCaller(), rights=()))
    assert fetcher.asked == [("https://a/1", False, "1")]


async def test_nothing_is_kept_of_a_project_that_stores_nothing(fetcher):
    for caller in (SomeCaller(), SomeCaller(stores_nothing=True)):
        await images.media_rules(user(image("https://a/1")), SEEING, caller)
        await images.files_fetched(user(file("https://a/2")), caller, fetcher.budget())
    assert fetcher.kept == [True, True, False, False]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "x", "image_url": "https://a/1"},
        {"type": "image_url", "image_url": {"url": "ftp://a/1"}},
        {"type": "image_url", "image_url": 5},
        "https://a/1",
    ],
    ids=str,
)
async def test_nothing_else_is_fetched(fetcher, part):
    await images.media_rules(user(part), SEEING, SomeCaller())
    assert fetcher.asked == []


async def test_nothing_is_fetched_for_a_model_that_reads_text(fetcher, monkeypatch):
    async def models(modality, caller):
        return ["seeing"]

    monkeypatch.setattr(images, "models_that_take", models)
    rules = await images.media_rules(user(image("https://a/1")), READING, SomeCaller())
    assert fetcher.asked == []
    assert (rules.is_taken, rules.seeing) == (False, ["seeing"])


async def test_a_model_that_has_just_loaded_sees_before_the_catalogue_says_so(fetcher, live):
    live["reading"] = ModelCondition(state="ready", modalities=["image"])
    assert (await images.media_rules(user(image("https://a/1")), READING, SomeCaller())).is_taken


WATCHING = ModelEntry("watching", "me", 0, modalities=("image", "video"))


def video(url):
    return {"type": "video_url", "video_url": {"url": url}}


async def test_videos_are_fetched_as_such_for_a_model_that_takes_them(fetcher):
    messages = user(video("https://a/1"), image("https://a/2"), {"video_url": "https://a/bad"})
    rules = await images.media_rules(messages, WATCHING, SomeCaller())
    assert sorted(zip(fetcher.asked, fetcher.kinds, strict=True)) == [
        (("https://a/1", True, "1"), MediaKind.VIDEO),
        (("https://a/2", True, "1"), MediaKind.IMAGE),
        (("https://a/bad", True, "1"), MediaKind.VIDEO),
    ]
    with pytest.raises(ApiError) as caught:
        messages_walk(messages, model="watching", max_parts=99, media=rules)
    assert caught.value.param == "messages.0.content.2.video_url.url"
    content = user(*messages[0]["content"][:2])
    (message,) = messages_walk(content, model="watching", max_parts=99, media=rules)
    assert [part["data"] for part in message["content"]] == ["aHR0cHM6Ly9hLzE=", "aHR0cHM6Ly9hLzI="]


async def test_a_model_that_sees_images_alone_is_told_of_those_that_take_videos(fetcher, monkeypatch):
    async def models(modality, caller):
        return [f"takes {modality}"]

    monkeypatch.setattr(images, "models_that_take", models)
    rules = await images.media_rules(user(video("https://a/1"), image("https://a/2")), SEEING, SomeCaller())
    assert fetcher.asked == [("https://a/2", True, "1")]
    assert (rules.is_taken, rules.takes_videos, rules.watching) == (True, False, ["takes video"])


def file(url, **fields):
    return {"type": "file", "file": {"file_url": url, **fields}}


async def files_walked(*parts, caller=SomeCaller()):
    messages = user(*parts)
    files = await images.files_fetched(messages, caller, MediaBudget(MediaLimits()))
    (message,) = messages_walk(messages, model="reading", max_parts=99, files=files)
    return [part["file"] for part in message["content"]]


async def test_a_file_by_address_is_fetched_and_has_the_name_of_its_path(fetcher):
    named, bare = "https://a/b/r%C3%A9sum%C3%A9.pdf?x=1", "https://a/"
    sent = await files_walked(file(named), file(bare), file(bare, filename="x.pdf"))
    assert [one["filename"] for one in sent] == ["résumé.pdf", None, "x.pdf"]
    assert sent[1]["file_data"] == "aHR0cHM6Ly9hLw=="
    assert [url for url, *_ in fetcher.asked] == [named, bare]
    assert set(fetcher.kinds) == {MediaKind.DOCUMENT}


@pytest.mark.parametrize(
    ("part", "place", "code", "words"),
    [
        (file("https://a/bad"), ".file_url", "invalid_media", "could not be fetched"),
        (file("ftp://a/b"), ".file_url", "invalid_value", "begins with https://"),
        (file(5), ".file_url", "invalid_type", "begins with https://"),
        (file("https://a/b", file_data="AAAA"), "", "invalid_value", "one of file_data, file_id, file_url"),
        (file("https://a/b", file_id="file-1"), "", "invalid_value", "one of file_data, file_id, file_url"),
    ],
)
async def test_a_file_that_is_not_fetched_is_refused_at_its_place(fetcher, part, place, code, words):
    with pytest.raises(ApiError) as caught:
        await files_walked(part)
    assert (caught.value.code, caught.value.param) == (code, f"messages.0.content.0.file{place}")
    assert words in caught.value.message


async def test_a_data_url_of_a_file_is_its_content(fetcher):
    url = "data:application/pdf;base64,AAAA"
    assert await files_walked(file(url)) == [{"file_data": url, "filename": None}]
    assert fetcher.asked == []


async def test_no_more_files_are_fetched_than_a_request_may_have(fetcher):
    with pytest.raises(ApiError) as caught:
        await files_walked(*[file(f"https://a/{number}") for number in range(30)])
    assert len(fetcher.asked) == MediaLimits().max_media_items
    assert "limit of 8" in caught.value.message


async def test_an_address_that_is_named_too_often_is_refused_before_its_file_is_copied(fetcher):
    assert len(await files_walked(*[file("https://a/1")] * MAX_FILES)) == MAX_FILES
    with pytest.raises(ApiError) as caught:
        await files_walked(*[file("https://a/1")] * (MAX_FILES + 1))
    assert caught.value.param == f"messages.0.content.{MAX_FILES}.file.file_url"
    assert f"is one of more than {MAX_FILES} files; send fewer in one request" in caught.value.message


async def test_a_file_with_another_source_beside_its_address_is_not_fetched(fetcher):
    await images.files_fetched(user(file("https://a/1", file_id="file-1")), SomeCaller(), MediaBudget(MediaLimits()))
    assert fetcher.asked == []


async def test_files_alone_have_the_limit_of_files(fetcher, settings):
    settings.LIGHTCONE_LIMITS = replace(settings.LIGHTCONE_LIMITS, max_file_bytes=10)
    await images.media_rules(user(image("https://a/1")), SEEING, SomeCaller())
    await files_walked(file("https://a/2"))
    assert fetcher.most == [None, 10]
