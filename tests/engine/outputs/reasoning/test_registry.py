"""Reasoning parsers are found by name and by template; one that does not fit the model stops the start."""

from pathlib import Path

import pytest

from engine.api import ModelLoadError
from engine.outputs.reasoning.formats import FORMATS, HARMONY
from engine.outputs.reasoning.registry import reasoning_format
from tests.engine.outputs.marked_tokenizer import marked_tokenizer, template_of
from tests.engine.tiny_tokenizer import CHATML, tiny_tokenizer

ALL_MARKERS = sorted({text for form in FORMATS.values() for text in form.vocabulary} - {"<think>"})
NAMES = """deepseek_r1 kimi_k2 qwen3 deepseek_v3 glm45 holo2 step3 olmo3 ernie45 minimax_m2
minimax_m2_append_think mistral seed_oss granite hunyuan_a13b openai_gptoss"""


def chosen(template, markers=ALL_MARKERS):
    form = reasoning_format("auto", marked_tokenizer(markers=markers, **template_of(template)))
    return form.name if form else None


@pytest.mark.parametrize("name", NAMES.split())
def test_every_promised_name_is_known(name):
    assert reasoning_format(name, marked_tokenizer(markers=ALL_MARKERS)).name == name


def test_the_operators_page_lists_every_name():
    page = (Path(__file__).parents[4] / "docs/operations.md").read_text(encoding="utf-8")
    assert [name for name in FORMATS if f"`{name}`" not in page.partition("Reasoning parsers:")[2]] == []


def test_an_unknown_parser_stops_the_start_with_the_known_names():
    with pytest.raises(ModelLoadError, match="no reasoning parser 'clever'.*auto, none, deepseek_r1.*openai_gptoss"):
        reasoning_format("clever", tiny_tokenizer())


def test_a_marker_that_the_vocabulary_lacks_stops_the_start():
    with pytest.raises(ModelLoadError, match=r"'qwen3'.*lacks </think>;.*none.*olmo3"):
        reasoning_format("qwen3", tiny_tokenizer())


def test_none_disables_reasoning_and_unknown_templates_have_none():
    assert reasoning_format("none", marked_tokenizer(markers=ALL_MARKERS, **template_of("<think></think>"))) is None
    assert chosen(CHATML) is None
    assert reasoning_format("auto", tiny_tokenizer(**{"tokenizer.chat_template": None})) is None


QWEN_3 = "{%- if add_generation_prompt %}{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
QWEN_THINKING = (
    "{{ content.split('</think>') }}{%- if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        (QWEN_3, "qwen3"),
        (QWEN_THINKING, "deepseek_r1"),
        ("<|start|>assistant<|channel|>analysis<|message|>", HARMONY),
        ("[THINK][/THINK][INST]", "mistral"),
        ("<seed:think></seed:think>", "seed_oss"),
        ("<|START_THINKING|>{{ message.tool_plan }}<|END_THINKING|>", "cohere_command"),
        ("Write your thoughts after 'Here is my thought process:' and", "granite"),
        ("Write your thoughts between <think></think> and your response between <response></response>", "granite33"),
        ("]~b]ai\n<think>\n", "minimax_m2"),
        ("<think></think><response></response>", "ernie45"),
        ("<think></think><answer></answer>", "hunyuan_a13b"),
        ("<|BOT|>assistant\n<think>\n", "step3"),
        ("<|im_assistant|>assistant<|im_middle|><think></think>", "kimi_k2"),
        ("[gMASK]<sop><|assistant|>\n<think></think>", "glm45"),
        ("{% if thinking %}<｜Assistant｜><think>{% else %}</think>{% endif %}", "deepseek_v3"),
        ("{{ content.split('</think>')[-1] }}<｜Assistant｜><think>\n", "deepseek_r1"),
    ],
)
def test_template_determines_the_reasoning_format(template, name):
    assert chosen(template) == name


def test_a_family_decides_where_the_template_is_silent():
    def of(architecture, markers):
        names = {"general.architecture": architecture}
        form = reasoning_format("auto", marked_tokenizer(markers=markers, **template_of(CHATML), **names))
        return form and form.name

    assert of("llama", ["[THINK]", "[/THINK]"]) == "mistral"
    assert of("llama", []) is None
    assert of("qwen2", ["[THINK]", "[/THINK]"]) is None


def test_think_tags_that_are_no_tokens_are_read_as_plain_text():
    assert chosen("{% if add_generation_prompt %}<|im_start|>assistant\n<think>{% endif %}", markers=[]) == "olmo3"
    assert chosen(QWEN_3, markers=[]) == "think_text"
    assert chosen("[THINK][/THINK]", markers=[]) is None
