"""Sounds in messages of a served model that hears, sent by a published client."""

from __future__ import annotations

import base64
import io

import numpy as np
import openai
import pytest

from tests.engine.hearing_folders import encoded, sound_of, write_hearing
from tests.served import ServedLightcone

pytestmark = pytest.mark.live

FIRST, SECOND = (encoded(sound_of(1.0, seed)) for seed in (1, 2))
MOST = 6


@pytest.fixture(scope="module")
def hearing(tmp_path_factory):
    """A served model that hears. Its answers mean nothing, and are the same for the same input."""
    folder = tmp_path_factory.mktemp("hearing")
    (folder / "qwen2-audio").mkdir()
    write_hearing(folder / "qwen2-audio", "qwen2_audio")
    served = ServedLightcone(folder / "served", model="qwen2-audio")
    served.environment = {
        "LIGHTCONE_MODEL": str(folder / "qwen2-audio"),
        "LIGHTCONE_MODEL_NAME": "qwen2-audio",
        "LIGHTCONE_WEIGHTS": "float32",
        "LIGHTCONE_EMBEDS": "1",
    }
    with served.running():
        yield served


def sound(data, **fields):
    return {"type": "input_audio", "input_audio": data and {"data": data, "format": "wav"}, **fields}


def test_a_served_model_hears_what_a_client_sends(hearing):
    file = io.BytesIO()
    np.save(file, np.full((7, 32), 0.5, np.float32))
    vectors = {"type": "audio_embeds", "audio_embeds": base64.b64encode(file.getvalue()).decode()}
    key = hearing.make_key(rights=["inference", "embeds"])
    with openai.OpenAI(api_key=key, base_url=hearing.api_url, max_retries=0) as client:

        def ask(*parts):
            content = [{"type": "text", "text": "what is said?"}, *parts]
            messages = [{"role": "user", "content": content}]
            return client.chat.completions.create(
                model="qwen2-audio", messages=messages, temperature=0, max_tokens=MOST
            )

        by_url = {"type": "audio_url", "audio_url": {"url": f"data:audio/wav;base64,{SECOND}"}}
        first, second, named, again, both, given = (
            ask(*parts)
            for parts in (
                (sound(FIRST, uuid="greeting"),),
                (by_url,),
                (sound(None, uuid="greeting"),),
                (sound(SECOND),),
                (sound(FIRST), by_url),
                (vectors,),
            )
        )
        with pytest.raises(openai.BadRequestError, match="at most 2 seconds") as caught:
            ask(sound(encoded(sound_of(3.0))))
        (model,) = (one for one in client.models.list() if one.id == "qwen2-audio")
    texts = [answer.choices[0].message.content for answer in (first, second, named, again)]
    assert texts[0] == texts[2] != texts[1] == texts[3]
    counts = [answer.usage.prompt_tokens_details.audio_tokens for answer in (first, second, both, given)]
    assert counts == [25, 25, 50, 7]
    assert caught.value.param == "messages.0.content.1.input_audio"
    assert "audio" in model.model_extra["capabilities"]
