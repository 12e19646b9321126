"""Reasoning parsers by name: the format of a model, a parser for each answer, and the tokens of its markers."""

from __future__ import annotations

from collections.abc import Iterable

from engine.api.errors import ModelLoadError
from engine.outputs.reasoning.formats import FORMATS, HARMONY, ReasoningFormat
from engine.outputs.reasoning.harmony import HarmonyReasoningParser
from engine.outputs.reasoning.parser import ReasoningParser, ReasoningState
from engine.outputs.reasoning.tags import TagParser
from engine.outputs.tools.registry import MISTRAL_NAMES
from engine.tokenizers.tokenizer import Tokenizer

AUTO, NONE = "auto", "none"
BEFORE = ("", " ", "\n", "\n\n", ".", ".\n", ".\n\n", "!", "?", ")", '"', "`", ":", ",")
AFTER = ("", "\n", "\n\n", " ")
"""Text with which the tokens of a plain-text marker may merge: before it and after it."""

SIGNS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("<|channel|>", "analysis"), HARMONY),
    (("[THINK]",), "mistral"),
    (("<seed:think>",), "seed_oss"),
    (("<|START_THINKING|>",), "cohere_command"),
    (("Here is my thought process:",), "granite"),
    (("between <think></think>", "between <response></response>"), "granite33"),
    (("]~b]", "<think>"), "minimax_m2"),
    (("<response>", "<think>"), "ernie45"),
    (("<answer>", "<think>"), "hunyuan_a13b"),
    (("<|BOT|>", "<think>"), "step3"),
    (("<|im_middle|>", "<think>"), "kimi_k2"),
    (("[gMASK]", "<think>"), "glm45"),
    (("<｜Assistant｜>", "thinking", "</think>"), "deepseek_v3"),
    (("<｜Assistant｜>", "</think>"), "deepseek_r1"),
)
"""Texts that identify a family by its chat template; the first row whose texts all occur decides."""

FAMILIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("mistral", MISTRAL_NAMES),
    (HARMONY, ("GptOssForCausalLM",)),
)
"""Formats of models whose template says nothing of reasoning, as Magistral, which learns its tags from a system prompt.

They are taken if the vocabulary has their markers.
"""
PLAIN = {True: "think_text", False: "olmo3"}
"""The formats whose think tags are plain text: by whether an answer may come without reasoning."""


def reasoning_format(name: str, tokenizer: Tokenizer) -> ReasoningFormat | None:
    """Return the format of this name: for "auto" the one of the model's template, for "none" None.

    Raises ModelLoadError for an unknown name, or if the vocabulary lacks a marker of the format.
    """
    if name == AUTO:
        return _choose(tokenizer)
    if name == NONE:
        return None
    format = FORMATS.get(name)
    if format is None:
        raise ModelLoadError(
            f"there is no reasoning parser {name[:80]!r}; known are {', '.join((AUTO, NONE, *FORMATS))}"
        )
    missing = _missing(format, tokenizer)
    if missing:
        raise ModelLoadError(
            f"the reasoning parser {name!r} does not fit the model, whose vocabulary lacks {', '.join(missing)}; "
            f"take {AUTO}, {NONE}, or another of {', '.join(FORMATS)}"
        )
    return format


def make_reasoning_parser(
    format: ReasoningFormat,
    state: ReasoningState = ReasoningState.UNKNOWN,
    *,
    keeps_calls: bool = False,
    head: str = "",
) -> ReasoningParser:
    """Make a parser for one answer. HarmonyReasoningParser uses `keeps_calls` and `head`, all others `state`."""
    if format.name == HARMONY:
        return HarmonyReasoningParser(keeps_calls, head)
    return TagParser(format, state)


def _choose(tokenizer: Tokenizer) -> ReasoningFormat | None:
    """Return the format of the model's template; of its family if that has no sign; None if neither is known."""
    template = tokenizer.chat_template or ""
    name = next((name for signs, name in SIGNS if all(sign in template for sign in signs)), None)
    if name is None and "think>" in template:
        name = _plain_tags(template)
    if name is None:
        return _of_family(tokenizer)
    format = FORMATS[name]
    if not _missing(format, tokenizer):
        return format
    plain = FORMATS[PLAIN[format.needs_start]]
    return plain if format.ends == plain.ends else None


def _of_family(tokenizer: Tokenizer) -> ReasoningFormat | None:
    for name, architectures in FAMILIES:
        if tokenizer.architecture in architectures and not _missing(FORMATS[name], tokenizer):
            return FORMATS[name]
    return None


def _plain_tags(template: str) -> str:
    """Return the format of a template with think tags and no other sign of its family.

    "deepseek_r1" if the template always opens the tag itself; "qwen3" if the model or a switch decides.
    """
    generation = template[template.rfind("add_generation_prompt") :] if "add_generation_prompt" in template else ""
    opens = generation.rfind("<think>") > generation.rfind("</think>")
    if opens and "enable_thinking" not in generation:
        return "deepseek_r1"
    return "qwen3"


def _missing(format: ReasoningFormat, tokenizer: Tokenizer) -> list[str]:
    return [text for text in format.vocabulary if tokenizer.backend.token_to_id(text) is None]


def marker_spellings(texts: Iterable[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Return the token sequences in which a plain-text marker may come, the first text on its own first.

    Tokens merge with the spaces, line breaks and punctuation beside a marker. No sequence contains another.
    """
    spaced = [before + text + after for text in texts for before in BEFORE for after in AFTER]
    spellings = [list(ids) for ids in dict.fromkeys(tuple(tokenizer.encode(text)) for text in spaced)]
    return [ids for ids in spellings if not any(other != ids and _holds(ids, other) for other in spellings)]


def _holds(ids: list[int], other: list[int]) -> bool:
    return any(ids[start : start + len(other)] == other for start in range(len(ids) - len(other) + 1))
