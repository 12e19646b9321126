"""Files whose pages a model may see: how closely, and who sees where the model does not."""

from __future__ import annotations

import pytest

from chat.errors import ApiError
from tests.chat.api.test_image_embeds import READING, served, walked

pytestmark = pytest.mark.usefixtures(served.__name__)
PLACE = "messages.0.content.0.file"


def part(**file):
    return {"type": "file", "file": {"file_data": "AAAA", **file}}


async def test_a_model_that_reads_text_gets_the_names_of_those_that_see():
    (message,) = await walked(part(), model=READING)
    assert message["content"] == [
        {"type": "file", "file": {"file_data": "AAAA", "filename": None}, "param": PLACE, "seeing": ["seeing"]}
    ]
    (message,) = await walked(part())
    assert message["content"] == [{"type": "file", "file": {"file_data": "AAAA", "filename": None}, "param": PLACE}]


@pytest.mark.parametrize("detail", ["auto", "low", "high"])
async def test_the_detail_of_a_file_goes_to_the_worker(detail):
    (message,) = await walked(part(detail=detail))
    assert message["content"][0]["file"] == {"file_data": "AAAA", "filename": None, "detail": detail}


@pytest.mark.parametrize("detail", ["ultra", 5, [], {}])
async def test_another_detail_is_refused(detail):
    with pytest.raises(ApiError) as caught:
        await walked(part(detail=detail))
    assert caught.value.param == f"{PLACE}.detail"
    assert "must be one of auto, low, high" in caught.value.message
