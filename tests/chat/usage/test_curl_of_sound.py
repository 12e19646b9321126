"""The curl line of a request with a sound: a form, whose file is left to be named."""

import shlex

from chat.usage.log_detail import curl_line
from chat.usage.models import RequestLog


def test_a_sound_is_sent_as_a_form() -> None:
    log = RequestLog(route="/v1/audio/translations", model="org/whisper base", is_stream=True, parameters={"seed": 1})
    words = shlex.split(curl_line(log, address="http://server"))
    assert words[:2] == ["curl", "http://server/v1/audio/translations"]
    assert [words[place + 1] for place, word in enumerate(words) if word == "-F"] == [
        "file=@…",
        "model=org/whisper base",
        "stream=true",
    ]
