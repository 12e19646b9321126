"""The reasoning state at the end of a prompt, read after its last header."""

import pytest

from engine.api import GenerationRequest, PromptOptions
from engine.outputs.reasoning.formats import FORMATS, HARMONY
from engine.outputs.reasoning.parser import ReasoningState
from engine.outputs.reasoning.prompt import harmony_head, prompt_reasoning_state
from tests.engine.outputs.marked_tokenizer import marked_tokenizer

TOKENIZER = marked_tokenizer(
    control=["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "[THINK]", "[/THINK]"], markers=["</think>"]
)
USER = "<|im_start|>user\nhi<|im_end|>\n"
HEADER = "<|im_start|>assistant\n"
UNKNOWN, OPEN, CLOSED = ReasoningState.UNKNOWN, ReasoningState.OPEN, ReasoningState.CLOSED


def state(name, prompt, typed="", tokenizer=TOKENIZER, **options):
    """Return the reasoning state; `typed` is ordinary text of the user in front."""
    request = GenerationRequest("run", "tiny", (), 0.0, prompt=PromptOptions(**options))
    prompt_ids = (
        tokenizer.encode("<|im_start|>user\n")
        + tokenizer.encode_ordinary(typed)
        + tokenizer.encode("<|im_end|>\n" + prompt)
    )
    return prompt_reasoning_state(FORMATS[name], tokenizer, request, prompt_ids)


@pytest.mark.parametrize("name", ["qwen3", "deepseek_r1", "olmo3"])
@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (HEADER, UNKNOWN),
        (f"{HEADER}<think>\n", OPEN),
        (f"{HEADER}<think>\n\n</think>\n\n", CLOSED),
        (f"{HEADER}</think>", CLOSED),
        (f"{HEADER}<think>why</think>so <think>", OPEN),
        (f"{HEADER}<think>why</think>so<|im_end|>\n{USER}{HEADER}", UNKNOWN),
        (f"{HEADER}<think>why<|im_end|>\n{USER}{HEADER}", UNKNOWN),
    ],
)
def test_last_marker_after_the_last_header_decides(name, prompt, expected):
    assert state(name, prompt) is expected


@pytest.mark.parametrize("name", ["qwen3", "olmo3"])
def test_markers_typed_by_a_user_are_ignored(name):
    assert state(name, HEADER, typed="a <think> b") is UNKNOWN


def test_markers_that_are_special_tokens_are_no_headers():
    assert state("mistral", f"{HEADER}[THINK]why") is OPEN
    assert state("mistral", f"{HEADER}[THINK]why[/THINK]so") is CLOSED


@pytest.mark.parametrize("name", ["deepseek_r1", "glm45", "qwen3"])
def test_a_message_that_is_continued_without_reasoning_has_none(name):
    assert state(name, f"{HEADER}The answer", continue_final_message=True) is CLOSED
    assert state(name, f"{HEADER}<think>The", continue_final_message=True) is OPEN


@pytest.mark.parametrize(
    ("name", "switches", "expected"),
    [
        ("deepseek_v3", {}, CLOSED),
        ("deepseek_v3", {"thinking": True}, UNKNOWN),
        ("deepseek_v3", {"enable_thinking": True}, UNKNOWN),
        ("deepseek_v3", {"thinking": False, "enable_thinking": False}, CLOSED),
        ("glm45", {}, UNKNOWN),
        ("glm45", {"enable_thinking": False}, CLOSED),
        ("holo2", {"thinking": False}, CLOSED),
        ("qwen3", {"enable_thinking": False}, UNKNOWN),
    ],
)
def test_some_formats_follow_the_thinking_switch(name, switches, expected):
    assert state(name, HEADER, template_kwargs=switches) is expected


def test_open_marker_in_the_prompt_beats_an_unset_switch():
    assert state("deepseek_v3", f"{HEADER}<think>") is OPEN
    assert state("deepseek_v3", f"{HEADER}<think>", template_kwargs={"thinking": False}) is CLOSED


def test_harmony_state_is_that_of_the_begun_message():
    past = "<|start|>user<|message|>hi<|end|>"
    assert harmony_head(TOKENIZER, TOKENIZER.encode(f"{past}<|start|>assistant")) == "assistant"
    begun = TOKENIZER.encode(f"{past}<|start|>assistant<|channel|>final<|message|>par")
    assert harmony_head(TOKENIZER, begun) == "assistant<|channel|>final<|message|>par"
    assert state(HARMONY, f"{past}<|start|>assistant") is OPEN
    assert state(HARMONY, f"{past}<|start|>assistant<|channel|>final<|message|>par") is CLOSED
