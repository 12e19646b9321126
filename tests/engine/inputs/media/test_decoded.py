"""The items of a request share the bytes that they may have once decoded; hashes tell forms apart."""

import pytest

from engine.api import RequestError
from engine.api.media import MediaLimits
from engine.inputs.media.decoded import DecodedBudget, content_hash


def test_items_of_a_request_share_the_decoded_bytes():
    budget = DecodedBudget(MediaLimits(max_media_decoded_bytes=100))
    budget.take(60, "messages.0")
    budget.take(40, "messages.0")
    with pytest.raises(RequestError, match="at most 100 bytes once decoded") as refusal:
        budget.take(1, "messages.1")
    assert refusal.value.param == "messages.1"


def test_a_hash_tells_kind_and_form_apart():
    data = memoryview(bytes(48))
    forms = [("image", ("RGB", 2, 8)), ("image", ("RGB", 4, 4)), ("image", ("RGB", 8, 2)), ("audio", ("RGB", 2, 8))]
    assert len({content_hash(kind, form, data) for kind, form in forms}) == 4
