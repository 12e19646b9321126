"""The reasoning formats of model families, by the names that operators use.

The markers are those of the models' published chat templates. A new format is an entry of `_ALL` here and, if its
template should select it, a row of `SIGNS` in registry.py.
"""

from __future__ import annotations

from dataclasses import dataclass

HARMONY = "openai_gptoss"

THOUGHT = ("Here is my thought process:", "Here's my thought process:")
RESPONSE = ("Here is my response:", "Here's my response:")


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """A format with reasoning between one of `starts` and one of `ends`; the first of each is the usual one.

    ReasoningFormat("my_family", ("[THINK]",), ("[/THINK]",), needs_start=True, vocabulary=("[THINK]", "[/THINK]"))
    """

    name: str
    starts: tuple[str, ...] = ("<think>",)
    ends: tuple[str, ...] = ("</think>",)
    needs_start: bool = False
    """An answer without the start tag at its beginning is all content. Otherwise every answer begins with reasoning,
    and a start tag is optional."""
    vocabulary: tuple[str, ...] = ("<think>", "</think>")
    """Texts that must be single tokens."""
    switch: bool | None = None
    """Set: reasoning follows the template's variables `thinking` and `enable_thinking`; this is their default."""
    wrapper: tuple[str, str] | None = None
    """Tags around the content."""
    takes_breaks: bool = False
    """Line breaks beside the tags belong to the tags."""
    is_shown: bool = False
    """Reasoning and its tags go into the content."""

    @property
    def sure_ends(self) -> tuple[str, ...]:
        """The texts that the core recognises as the end; it forces the first.

        A plain-text tag counts only together with the tag that opens the content.
        """
        return (
            tuple(f"{end}\n{self.wrapper[0]}\n" for end in self.ends)
            if self.wrapper and not self.vocabulary
            else self.ends
        )

    @property
    def control_texts(self) -> frozenset[str]:
        return frozenset((*self.starts, *self.ends, *(self.wrapper or ())))


_ALL = (
    ReasoningFormat("deepseek_r1"),
    ReasoningFormat("kimi_k2"),
    ReasoningFormat("qwen3", needs_start=True),
    ReasoningFormat("deepseek_v3", switch=False),
    ReasoningFormat("glm45", switch=True),
    ReasoningFormat("holo2", switch=True),
    ReasoningFormat("step3", vocabulary=("</think>",)),
    ReasoningFormat("olmo3", vocabulary=()),
    ReasoningFormat("ernie45", wrapper=("<response>", "</response>"), takes_breaks=True),
    ReasoningFormat("minimax_m2", vocabulary=("</think>",)),
    ReasoningFormat("minimax_m2_append_think", vocabulary=("</think>",), is_shown=True),
    ReasoningFormat("mistral", ("[THINK]",), ("[/THINK]",), needs_start=True, vocabulary=("[THINK]", "[/THINK]")),
    ReasoningFormat("seed_oss", ("<seed:think>",), ("</seed:think>",), vocabulary=("<seed:think>", "</seed:think>")),
    ReasoningFormat("granite", THOUGHT, RESPONSE, needs_start=True, vocabulary=()),
    ReasoningFormat(
        "granite33", needs_start=True, vocabulary=(), wrapper=("<response>", "</response>"), takes_breaks=True
    ),
    ReasoningFormat(
        "cohere_command",
        ("<|START_THINKING|>",),
        ("<|END_THINKING|>",),
        needs_start=True,
        vocabulary=("<|START_THINKING|>", "<|END_THINKING|>"),
    ),
    ReasoningFormat("think_text", needs_start=True, vocabulary=()),
    ReasoningFormat(
        "hunyuan_a13b", needs_start=True, vocabulary=(), wrapper=("<answer>", "</answer>"), takes_breaks=True
    ),
    ReasoningFormat(
        HARMONY,
        ("<|channel|>analysis<|message|>",),
        ("<|channel|>final<|message|>",),
        vocabulary=("<|start|>", "<|channel|>", "<|message|>", "<|end|>"),
    ),
)

FORMATS = {format.name: format for format in _ALL}
