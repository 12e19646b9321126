"""Fields that label a request, and fields of OpenAI for features that the server does not have."""

from __future__ import annotations

import pytest


@pytest.mark.parameter("user", "safety_identifier", "metadata")
def test_labels_are_in_the_request_log_and_change_no_answer(ask):
    answer = ask.answer(user="ann", metadata={"team": "blue"}, request_id="labelled-1")
    assert answer["choices"][0]["message"]["content"] == ask.text(safety_identifier="bob", request_id="labelled-2")
    record = ask.record("labelled-1")
    assert record["user_label"] == "ann"
    assert '"blue"' in record["metadata"]
    assert ask.record("labelled-2")["user_label"] == "bob"


@pytest.mark.parametrize(
    "field",
    [
        {"user": 5},
        {"safety_identifier": "x" * 257},
        {"metadata": {"a": 5}},
        {"metadata": {"a" * 65: "b"}},
        {"metadata": {"a": "b" * 513}},
        {"metadata": {str(number): "x" for number in range(17)}},
        {"user": "a\0b"},
    ],
    ids=lambda field: str(field)[:40],
)
@pytest.mark.parameter("user", "safety_identifier", "metadata")
def test_a_label_out_of_its_bounds_is_refused(ask, field):
    assert ask.refusal(**field)[0].startswith(next(iter(field)))


@pytest.mark.parameter("store")
def test_store_is_read_and_nothing_is_kept(ask):
    assert ask.text(store=True) == ask.text()
    assert ask.refusal(store="perhaps")[0] == "store"


@pytest.mark.parameter("modalities", "audio")
def test_text_is_the_only_kind_of_answer(ask):
    audio = {"format": "wav", "voice": "alloy"}
    assert ask.message(modalities=["text"], audio=audio)["audio"] is None
    for bad in ([], ["text", "audio"], ["smell"], "text"):
        assert ask.refusal(modalities=bad)[0].startswith("modalities")
    assert ask.refusal(audio="loud")[0] == "audio"


@pytest.mark.parameter("web_search_options")
def test_the_server_cannot_search(ask):
    assert ask.refusal(web_search_options={}) == ("web_search_options", "unsupported_parameter")
    assert ask.post(web_search_options=None).status_code == 200
