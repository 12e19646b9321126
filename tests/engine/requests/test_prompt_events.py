"""The first event of a run carries the prompt if requested; a prompt that cannot be rendered is refused by name."""

import dataclasses

import pytest

from engine.api import Admitted, PromptOptions, Rejected
from tests.engine.stage import Stage
from tests.engine.tiny_tokenizer import tiny_tokenizer, write_tokenizer

TEXT = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
IDS = tuple(tiny_tokenizer().encode(TEXT))


@pytest.fixture
def stage(tmp_path):
    write_tokenizer(tmp_path)
    made = Stage(tmp_path)
    made.core.answers_aborts = True
    made.engine.start()
    yield made
    made.engine.close()


def first_event(stage, **options):
    stage.submit(prompt=PromptOptions(**options))
    return stage.publication()["run"][0].payload


@pytest.mark.parametrize("returns_ids", [True, False])
@pytest.mark.parametrize("returns_text", [True, False])
def test_the_first_event_has_the_requested_forms_of_the_prompt(stage, returns_ids, returns_text):
    admitted = first_event(stage, returns_ids=returns_ids, returns_text=returns_text)
    assert isinstance(admitted, Admitted)
    assert admitted.num_prompt_tokens == len(IDS)
    assert admitted.prompt_ids == (IDS if returns_ids else None)
    assert admitted.prompt_text == (TEXT if returns_text else None)


def test_a_truncated_prompt_is_counted_and_returned_as_truncated(stage):
    admitted = first_event(stage, returns_ids=True, returns_text=True, truncate_to=5)
    assert dataclasses.astuple(admitted)[0] == 5
    assert admitted.prompt_ids == IDS[-5:]
    assert TEXT.endswith(admitted.prompt_text)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"truncate_to": 10**9}, "truncate_prompt_tokens"),
        ({"chat_template": "{{ nothing.at.all }}"}, "chat_template"),
        ({"chat_template": ""}, "messages"),
        ({"chat_template": "fixed", "continue_final_message": True}, "messages"),
    ],
)
def test_a_prompt_that_cannot_be_rendered_is_refused_by_name(stage, options, param):
    rejected = first_event(stage, **options)
    assert isinstance(rejected, Rejected)
    assert rejected.param == param
