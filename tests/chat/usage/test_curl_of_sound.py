"""The curl line of a request with a sound: a form, whose file is left to be named."""

import shlex

from chat.usage.log_detail import curl_line
from chat.usage.models import RequestLog


def words_of(model: str) -> list[str]:
    log = RequestLog(route="/v1/audio/translations", model=model, is_stream=True, parameters={"seed": 1})
    return shlex.split(curl_line(log, address="http://server"))


def values_of(words: list[str], option: str) -> list[str]:
    return [words[place + 1] for place, word in enumerate(words) if word == option]


def test_a_sound_is_sent_as_a_form() -> None:
    words = words_of("org/whisper base")
    assert words[:2] == ["curl", "http://server/v1/audio/translations"]
    assert values_of(words, "-F") == ["file=@…"]
    assert values_of(words, "--form-string") == ["model=org/whisper base", "stream=true"]


def test_the_name_of_a_model_sends_no_file() -> None:
    """curl reads a file for `-F model=@…`, and a type behind a semicolon."""
    words = words_of("@/etc/passwd;type=text/html")
    assert values_of(words, "--form-string")[0] == "model=@/etc/passwd;type=text/html"
