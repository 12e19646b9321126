"""Video parts go to the worker undecoded, with their place, or are refused at it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chat.api.request.image_parts import MediaRules
from chat.api.request.messages import messages_walk
from chat.errors import ApiError

DATA_URL = "data:video/mp4;base64,aGk="
WATCHING = MediaRules(is_taken=True, takes_videos=True)


def watched(*parts, rules=WATCHING):
    """Return what a model gets of the parts of a message."""
    (message,) = messages_walk([{"role": "user", "content": [*parts]}], model="m", max_parts=99, media=rules)
    return message["content"]


def refused(*parts, rules=WATCHING):
    with pytest.raises(ApiError) as caught:
        watched(*parts, rules=rules)
    assert len(caught.value.message) < 400
    return caught.value


@pytest.mark.parametrize(
    "part",
    [
        {"type": "video_url", "video_url": {"url": DATA_URL}},
        {"type": "video_url", "video_url": DATA_URL},
        {"video_url": {"url": DATA_URL}},
        {"video_url": "data:;base64,aGk="},
    ],
    ids=str,
)
def test_a_video_reaches_the_worker_undecoded_with_its_place(part):
    video = {"type": "video", "data": "aGk=", "frames": False, "param": "messages.0.content.1.video_url"}
    assert watched("what happens?", part) == [{"type": "text", "text": "what happens?"}, video]


def test_a_list_of_frames_is_told_by_its_type():
    (part,) = watched({"video_url": "data:video/jpeg;base64,aGk=,aGk=,aGk="})
    assert (part["data"], part["frames"]) == ("aGk=,aGk=,aGk=", True)


@pytest.mark.parametrize(
    ("video", "param", "words"),
    [
        (None, "video_url", "must be an object with url"),
        (5, "video_url", "must be an object with url"),
        ({}, "video_url", "must be an object with url"),
        ({"url": ""}, "video_url", "must be an object with url"),
        ({"url": "aGk="}, "video_url.url", "data:video/mp4;base64,DATA"),
        ({"url": "file:///etc/passwd"}, "video_url.url", "data:video/mp4;base64,DATA"),
        ({"url": "data:video/mp4,aGk="}, "video_url.url", "data:video/mp4;base64,DATA"),
        ({"url": DATA_URL + "a" * (70 << 20)}, "video_url", "at most 52428800 bytes; send a smaller video"),
        ({"url": "data:video/jpeg;base64," + "a," * 100_000}, "video_url.url", "at most 128 frames, got 100001"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_video_is_refused_at_its_place(video, param, words):
    error = refused({"type": "video_url", "video_url": video})
    assert error.param == f"messages.0.content.0.{param}"
    assert words in error.message


def test_a_request_has_at_most_eight_videos():
    error = refused(*[{"video_url": DATA_URL}] * 9)
    assert error.param == "messages.0.content.8.video_url"


def test_the_bytes_of_images_and_videos_count_together():
    image, video = f"data:image/png;base64,{'a' * (60 << 20)}", f"data:video/mp4;base64,{'a' * (60 << 20)}"
    error = refused({"image_url": image}, {"video_url": video}, {"video_url": video})
    assert error.param == "messages.0.content.2.video_url"
    assert "brings the media of the request above" in error.message


@pytest.mark.parametrize(
    ("is_taken", "words"), [(True, "m takes text and images"), (False, "is not a multimodal model")]
)
def test_a_refusal_names_the_models_that_take_videos(is_taken, words):
    rules = MediaRules(is_taken=is_taken, watching=["qwen3", "qwen2"])
    error = refused({"video_url": DATA_URL}, rules=rules)
    assert (error.code, error.param) == ("unsupported_parameter", "messages.0.content.0.video_url")
    assert words in error.message
    assert error.message.endswith("use a model that takes videos: qwen3, qwen2")


@pytest.mark.parametrize("part", [{"type": "video_url", "uuid": "a"}, {"video_url": None, "uuid": "a"}], ids=str)
def test_a_video_is_named_later(part):
    (video,) = watched(part, rules=replace(WATCHING, named_videos={"a": b"hi"}))
    assert video == {"type": "video", "data": "aGk=", "frames": False, "param": "messages.0.content.0.uuid"}
    error = refused(part)
    assert error.param == "messages.0.content.0.uuid"
    assert "names no video that is kept: 'a'" in error.message


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"video_url": DATA_URL, "uuid": 5}, "must be a string of 1 to 256 characters"),
        ({"video_url": "data:video/jpeg;base64,aGk=,aGk=", "uuid": "a"}, "not lists of frames"),
    ],
    ids=str,
)
def test_a_name_that_cannot_be_is_refused(part, words):
    error = refused(part)
    assert error.param == "messages.0.content.0.uuid"
    assert words in error.message
