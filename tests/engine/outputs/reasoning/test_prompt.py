"""Where a prompt leaves the reasoning, read behind its last header."""

import pytest

from engine.api import GenerationRequest, PromptOptions
from engine.outputs.reasoning.formats import FORMATS, HARMONY
from engine.outputs.reasoning.parser import Beginning
from engine.outputs.reasoning.prompt import harmony_head, prompt_beginning
from tests.engine.outputs.marked_tokenizer import marked_tokenizer

TOKENIZER = marked_tokenizer(
    control=["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "[THINK]", "[/THINK]"], markers=["</think>"]
)
USER = "<|im_start|>user\nhi<|im_end|>\n"
HEADER = "<|im_start|>assistant\n"
UNSAID, OPEN, OVER = Beginning.UNSAID, Beginning.OPEN, Beginning.OVER


def beginning(name, prompt, typed="", tokenizer=TOKENIZER, **options):
    """`typed`: ordinary text of the user, in front."""
    request = GenerationRequest("run", "tiny", (), 0.0, prompt=PromptOptions(**options))
    prompt_ids = (
        tokenizer.encode("<|im_start|>user\n")
        + tokenizer.encode_ordinary(typed)
        + tokenizer.encode("<|im_end|>\n" + prompt)
    )
    return prompt_beginning(FORMATS[name], tokenizer, request, prompt_ids)


@pytest.mark.parametrize("name", ["qwen3", "deepseek_r1", "olmo3"])
@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (HEADER, UNSAID),
        (f"{HEADER}<think>\n", OPEN),
        (f"{HEADER}<think>\n\n</think>\n\n", OVER),
        (f"{HEADER}</think>", OVER),
        (f"{HEADER}<think>why</think>so <think>", OPEN),
        (f"{HEADER}<think>why</think>so<|im_end|>\n{USER}{HEADER}", UNSAID),
        (f"{HEADER}<think>why<|im_end|>\n{USER}{HEADER}", UNSAID),
    ],
)
def test_the_last_marker_behind_the_last_header_tells(name, prompt, expected):
    assert beginning(name, prompt) is expected


@pytest.mark.parametrize("name", ["qwen3", "olmo3"])
def test_markers_that_a_user_has_typed_tell_nothing(name):
    assert beginning(name, HEADER, typed="a <think> b") is UNSAID


def test_markers_that_are_special_tokens_are_no_headers():
    assert beginning("mistral", f"{HEADER}[THINK]why") is OPEN
    assert beginning("mistral", f"{HEADER}[THINK]why[/THINK]so") is OVER


@pytest.mark.parametrize("name", ["deepseek_r1", "glm45", "qwen3"])
def test_a_message_that_is_continued_without_reasoning_has_none(name):
    assert beginning(name, f"{HEADER}The answer", continue_final_message=True) is OVER
    assert beginning(name, f"{HEADER}<think>The", continue_final_message=True) is OPEN


@pytest.mark.parametrize(
    ("name", "switches", "expected"),
    [
        ("deepseek_v3", {}, OVER),
        ("deepseek_v3", {"thinking": True}, UNSAID),
        ("deepseek_v3", {"enable_thinking": True}, UNSAID),
        ("deepseek_v3", {"thinking": False, "enable_thinking": False}, OVER),
        ("glm45", {}, UNSAID),
        ("glm45", {"enable_thinking": False}, OVER),
        ("holo2", {"thinking": False}, OVER),
        ("qwen3", {"enable_thinking": False}, UNSAID),
    ],
)
def test_some_formats_follow_the_thinking_switch(name, switches, expected):
    assert beginning(name, HEADER, template_kwargs=switches) is expected


def test_a_prompt_that_opens_the_reasoning_beats_a_switch_that_nobody_has_set():
    assert beginning("deepseek_v3", f"{HEADER}<think>") is OPEN
    assert beginning("deepseek_v3", f"{HEADER}<think>", template_kwargs={"thinking": False}) is OVER


def test_harmony_goes_on_with_the_message_that_the_prompt_has_begun():
    past = "<|start|>user<|message|>hi<|end|>"
    assert harmony_head(TOKENIZER, TOKENIZER.encode(f"{past}<|start|>assistant")) == "assistant"
    begun = TOKENIZER.encode(f"{past}<|start|>assistant<|channel|>final<|message|>par")
    assert harmony_head(TOKENIZER, begun) == "assistant<|channel|>final<|message|>par"
    assert beginning(HARMONY, f"{past}<|start|>assistant") is OPEN
    assert beginning(HARMONY, f"{past}<|start|>assistant<|channel|>final<|message|>par") is OVER
