"""Read the video parts of messages. Nothing is decoded here: base64 goes on to the worker."""

from __future__ import annotations

import base64
from typing import Any

from django.conf import settings

from chat.api.request.fields import echo
from chat.api.request.image_parts import (
    DATA_URL,
    ECHO_CHARS,
    HEAD_CHARS,
    ImagePartReader,
    MediaRules,
    image_url,
    is_name,
    refuse_name,
)
from chat.errors import ApiError, Problems
from engine.api import Json

VIDEO = "video"
"""The word for videos among the modalities of a model."""
VIDEO_URL = "video_url"
FRAMES_TYPE = "video/jpeg"
"""Of a data URL whose data are frames, with commas between."""


class VideoPartReader:
    """Reads the videos of all messages of one request; counts them. `images`: which counts the bytes of all media."""

    def __init__(self, problems: Problems, rules: MediaRules, images: ImagePartReader) -> None:
        self._problems = problems
        self._rules = rules
        self._images = images

    def read(self, video: Any, path: str, uuid: Any = None) -> list[Json]:
        """Return the part for the worker, with the path for its errors; nothing after a problem.

        `video`, and its `uuid` beside it: as sent.
        """
        if not self._images.is_one_more(path, VIDEO, "videos", self._rules.watching):
            return []
        url, place = image_url(video), f"{path.removesuffix(VIDEO_URL)}uuid"
        if uuid is not None and not is_name(uuid):
            refuse_name(self._problems, uuid, place)
        elif url is None and uuid is not None:
            return self._named(uuid, place)
        elif not isinstance(url, str) or not url:
            message = "must be an object with url, the video as a data: URL with base64"
            self._problems.refuse(path, message, "missing_required_parameter" if url is None else "invalid_type")
        elif isinstance(found := self._rules.fetched_videos.get(url), ApiError):
            self._problems.refuse(f"{path}.url", found.message, found.code)
        elif isinstance(found, bytes):
            return self._part(base64.b64encode(found).decode(), path, is_list=False)
        elif (head := DATA_URL.match(url[:HEAD_CHARS])) is None:
            message = f"must have a url of the form data:video/mp4;base64,DATA, got {echo(url[:ECHO_CHARS])}"
            self._problems.refuse(f"{path}.url", message)
        else:
            is_list = head.group(1).lower() == FRAMES_TYPE
            if uuid is None or not is_list:
                return self._part(url[head.end() :], path, is_list=is_list)
            self._problems.refuse(place, "names files, not lists of frames; leave it out, or send a file")
        return []

    def _named(self, name: str, place: str) -> list[Json]:
        """Return the part of a video that was sent before."""
        found = self._rules.named_videos.get(name)
        if found is None:
            message = f"names no video that is kept: {echo(name)}; send the video with its uuid again"
            self._problems.refuse(place, message)
            return []
        return self._part(base64.b64encode(found).decode(), place, is_list=False)

    def _part(self, data: str, path: str, *, is_list: bool) -> list[Json]:
        most = settings.LIGHTCONE_MEDIA_LIMITS.max_video_frames
        if is_list and data.count(",") >= most:
            message = f"must have at most {most} frames, got {data.count(',') + 1}; send fewer"
            self._problems.refuse(f"{path}.url", message)
        elif self._images.has_room(data, path, VIDEO):
            return [{"type": "video", "data": data, "frames": is_list, "param": path}]
        return []
