"""Tool formats by name, and the choice of one from a model's chat template and family.

To add a format that a shared parser can read, write its data in formats.py and give it a name in `FORMATS`:

    "my_family": ToolFormat(_json(JsonCallFormat(begins=("<call>",), ends=("</call>",))), "<call>")

Otherwise write a `ScriptedParser` in a module of its own. Add the texts that identify the family's templates to
`TEMPLATE_MARKS`, an example to tests/engine/outputs/tools/examples.py, and the name to docs/operations.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.api.errors import ModelLoadError
from engine.api.request import Tool
from engine.outputs.pieces import OutputParser
from engine.outputs.tools import formats
from engine.outputs.tools.call_ids import CallIdStyle
from engine.outputs.tools.gemma_calls import FUNCTION_GEMMA, GEMMA_4, GemmaCallFormat, GemmaCallParser
from engine.outputs.tools.harmony import CHANNEL, COMMENTARY, MESSAGE, START, HarmonyCallParser
from engine.outputs.tools.json_calls import JsonCallFormat, JsonCallParser
from engine.outputs.tools.lenient_calls import LenientCallParser
from engine.outputs.tools.mistral import ARGUMENTS, MARKER, MistralParser
from engine.outputs.tools.named_calls import DEEPSEEK, KIMI_K2, DeepseekV3Parser, DeepseekV31Parser, KimiK2Parser
from engine.outputs.tools.python_calls import PythonCallFormat, PythonCallParser
from engine.outputs.tools.tagged_calls import TaggedCallFormat, TaggedCallParser

Make = Callable[[frozenset[str], tuple[Tool, ...]], OutputParser]
FindToken = Callable[[str], int | None]
"""Returns a token's id by its text, None if the vocabulary lacks it."""


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How one call is written, so that a grammar can hold it to a schema: `begin` NAME `middle` ARGUMENTS `end`."""

    trigger: str
    """The beginning of `begin`; the grammar applies once the model writes it."""
    begin: str
    middle: str
    end: str
    number_end: str = ""
    """Set: a decimal number and this text come between `middle` and the arguments."""
    style: str = "json"
    """How arguments are written: "json" or one of the styles of structural tags."""


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """A format of tool calls."""

    make: Make
    """Makes a parser from the functions that may be called and the tools of the request."""
    start_marker: str | None = None
    """The text that opens calls, None if they may begin without any."""
    call_format: CallFormat | None = None
    """None: calls of this format cannot be held to a schema."""
    special: tuple[str, ...] = ()
    """Markers that the vocabulary must have as tokens."""
    id_style: CallIdStyle = CallIdStyle.DEFAULT
    """The ids that the family's templates accept."""


def _json(call_format: JsonCallFormat) -> Make:
    return lambda names, tools: JsonCallParser(names, call_format)


def _lenient(call_format: JsonCallFormat) -> Make:
    return lambda names, tools: LenientCallParser(
        names, frozenset(tool.name for tool in tools if tool.is_strict), call_format
    )


def _python(call_format: PythonCallFormat) -> Make:
    return lambda names, tools: PythonCallParser(names, call_format)


def _tagged(tags: TaggedCallFormat) -> Make:
    return lambda names, tools: TaggedCallParser(names, tools, tags)


def _gemma(call_format: GemmaCallFormat) -> ToolFormat:
    tokens = (call_format.begin, call_format.end, call_format.delimiter)
    return ToolFormat(
        lambda names, tools: GemmaCallParser(names, tools, call_format), call_format.begin, special=tokens
    )


def _dsml(tags: TaggedCallFormat) -> ToolFormat:
    invoke = CallFormat(
        "<｜DSML｜invoke", '<｜DSML｜invoke name="', '">\n', "</｜DSML｜invoke>\n", style="deepseek_xml"
    )
    return ToolFormat(_tagged(tags), tags.block_begin, invoke)


def _json_call(trigger: str, opening: str, closing: str, key: str = "arguments", name_key: str = "name") -> CallFormat:
    return CallFormat(trigger, f'{trigger}{opening}{{"{name_key}": "', f'", "{key}": ', "}" + closing)


HERMES = ToolFormat(_lenient(formats.HERMES), "<tool_call>", _json_call("<tool_call>", "\n", "\n</tool_call>"))
TOOL_CALLS = ToolFormat(_json(formats.TOOL_CALLS), "<tool_calls>", _json_call("<tool_calls>", "[", "]</tool_calls>"))
QWEN_CODER = ToolFormat(
    _tagged(formats.QWEN_CODER),
    "<tool_call>",
    CallFormat("<function=", "<function=", ">\n", "</function>", style="qwen_xml"),
)
GLM = ToolFormat(
    _tagged(formats.GLM), "<tool_call>", CallFormat("<tool_call>", "<tool_call>", "", "</tool_call>", style="glm_xml")
)

FORMATS: dict[str, ToolFormat] = {
    "hermes": HERMES,
    "mistral": ToolFormat(
        lambda names, tools: MistralParser(names),
        MARKER,
        _json_call(MARKER, "[", "]"),
        special=(MARKER,),
        id_style=CallIdStyle.MISTRAL,
    ),
    "llama3_json": ToolFormat(_json(formats.LLAMA_3_JSON)),
    "llama4_json": ToolFormat(_json(formats.LLAMA_4_JSON)),
    "llama4_pythonic": ToolFormat(_python(formats.LLAMA_4_PYTHONIC)),
    "pythonic": ToolFormat(_python(formats.PYTHONIC)),
    "olmo3": ToolFormat(_python(formats.OLMO_3), "<function_calls>"),
    "granite": ToolFormat(_json(formats.GRANITE)),
    "granite-20b-fc": ToolFormat(_json(formats.GRANITE_20B), "<function_call>", _json_call("<function_call>", " ", "")),
    "internlm": ToolFormat(
        _json(formats.INTERNLM),
        "<|action_start|>",
        _json_call("<|action_start|>", "<|plugin|>\n", "<|action_end|>", key="parameters"),
        special=("<|action_start|>", "<|plugin|>", "<|action_end|>"),
    ),
    "jamba": ToolFormat(
        TOOL_CALLS.make, TOOL_CALLS.start_marker, TOOL_CALLS.call_format, special=("<tool_calls>", "</tool_calls>")
    ),
    "hunyuan_a13b": TOOL_CALLS,
    "xlam": ToolFormat(_json(formats.XLAM)),
    "phi4_mini_json": ToolFormat(_json(formats.PHI_4_MINI), "functools[", _json_call("functools[", "", "]")),
    "deepseek_v3": ToolFormat(
        lambda names, tools: DeepseekV3Parser(names),
        DEEPSEEK.section_begin,
        CallFormat(
            DEEPSEEK.call_begin,
            f"{DEEPSEEK.call_begin}function{DEEPSEEK.separator}",
            "\n```json\n",
            f"\n```{DEEPSEEK.call_end}",
        ),
        special=tuple(sorted(DEEPSEEK.markers)),
    ),
    "deepseek_v31": ToolFormat(
        lambda names, tools: DeepseekV31Parser(names),
        DEEPSEEK.section_begin,
        CallFormat(DEEPSEEK.call_begin, DEEPSEEK.call_begin, DEEPSEEK.separator, DEEPSEEK.call_end),
        special=tuple(sorted(DEEPSEEK.markers)),
    ),
    "deepseek_v32": _dsml(formats.DEEPSEEK_V32),
    "kimi_k2": ToolFormat(
        lambda names, tools: KimiK2Parser(names),
        KIMI_K2.section_begin,
        CallFormat(
            KIMI_K2.call_begin, f"{KIMI_K2.call_begin}functions.", ":", KIMI_K2.call_end, number_end=KIMI_K2.separator
        ),
        special=tuple(sorted(KIMI_K2.usual_markers)),
        id_style=CallIdStyle.KIMI_K2,
    ),
    "glm45": GLM,
    "glm47": GLM,
    "qwen3_coder": QWEN_CODER,
    "qwen3_xml": QWEN_CODER,
    "seed_oss": ToolFormat(
        _tagged(formats.SEED_OSS),
        "<seed:tool_call>",
        CallFormat("<function=", "<function=", ">\n", "</function>", style="qwen_xml"),
        special=("<seed:tool_call>", "</seed:tool_call>"),
    ),
    "minimax": ToolFormat(
        _json(formats.TOOL_CALLS), "<tool_calls>", _json_call("<tool_calls>", "\n", "\n</tool_calls>")
    ),
    "minimax_m2": ToolFormat(
        _tagged(formats.MINIMAX_M2),
        "<minimax:tool_call>",
        CallFormat("<invoke name=", '<invoke name="', '">\n', "</invoke>\n", style="minimax_xml"),
        special=("<minimax:tool_call>", "</minimax:tool_call>"),
    ),
    "step3": ToolFormat(
        _tagged(formats.STEP_3),
        formats.STEP_3.block_begin,
        special=(
            "<｜tool_calls_begin｜>",
            "<｜tool_call_begin｜>",
            "<｜tool_sep｜>",
            "<｜tool_call_end｜>",
            "<｜tool_calls_end｜>",
        ),
    ),
    "longcat": ToolFormat(
        _json(formats.LONGCAT),
        "<longcat_tool_call>",
        _json_call("<longcat_tool_call>", "\n", "\n</longcat_tool_call>"),
        special=("<longcat_tool_call>", "</longcat_tool_call>"),
    ),
    "ernie45": ToolFormat(_json(formats.ERNIE), "<tool_call>", HERMES.call_format),
    "gigachat3": ToolFormat(
        _json(formats.GIGACHAT),
        "function call<|role_sep|>",
        _json_call("function call<|role_sep|>", "\n", ""),
        special=("<|role_sep|>",),
    ),
    "functiongemma": _gemma(FUNCTION_GEMMA),
    "openai": ToolFormat(
        lambda names, tools: HarmonyCallParser(names),
        COMMENTARY,
        CallFormat(COMMENTARY, COMMENTARY, f" <|constrain|>json{MESSAGE}", ""),
        special=(START, CHANNEL, MESSAGE, "<|call|>"),
    ),
    "deepseek_v4": _dsml(formats.DEEPSEEK_V4),
    "gemma4": _gemma(GEMMA_4),
    "lfm2": ToolFormat(
        _python(formats.LFM_2), "<|tool_call_start|>", special=("<|tool_call_start|>", "<|tool_call_end|>")
    ),
    "cohere_command": ToolFormat(
        _json(formats.COHERE),
        "<|START_ACTION|>",
        CallFormat(
            "<|START_ACTION|>",
            '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "',
            '", "parameters": ',
            "}\n]<|END_ACTION|>",
        ),
        special=("<|START_ACTION|>", "<|END_ACTION|>"),
    ),
    "apertus": ToolFormat(
        _json(formats.APERTUS),
        "<|tools_prefix|>",
        CallFormat("<|tools_prefix|>", '<|tools_prefix|>[{"', '": ', "}]<|tools_suffix|>"),
        special=("<|tools_prefix|>", "<|tools_suffix|>"),
    ),
    "granite4": HERMES,
    "nemotron_json": ToolFormat(_json(formats.NEMOTRON), "<TOOLCALL>", _json_call("<TOOLCALL>", "[", "]</TOOLCALL>")),
    "qwen3_json": HERMES,
    "mimo": QWEN_CODER,
    "step3p5": QWEN_CODER,
}

DEFAULT = "hermes"
LLAMA_PROMPT = '"parameters": dictionary of argument name'
"""A sentence in the templates of Llama 3.1 to 4, most of which have no marker."""

TEMPLATE_MARKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("openai", (CHANNEL, MESSAGE)),
    ("gemma4", (GEMMA_4.begin,)),
    ("functiongemma", (FUNCTION_GEMMA.begin,)),
    ("kimi_k2", (KIMI_K2.section_begin,)),
    ("deepseek_v32", (formats.DEEPSEEK_V32.block_begin,)),
    ("deepseek_v4", (formats.DEEPSEEK_V4.block_begin,)),
    ("deepseek_v3", (DEEPSEEK.section_begin, "```json")),
    ("deepseek_v31", (DEEPSEEK.section_begin,)),
    ("step3", ("<steptml:invoke",)),
    ("mistral", (MARKER,)),
    ("cohere_command", ("<|START_ACTION|>",)),
    ("apertus", ("<|tools_prefix|>",)),
    ("lfm2", ("<|tool_list_start|>",)),
    ("lfm2", ("<|tool_call_start|>",)),
    ("internlm", ("<|action_start|>",)),
    ("seed_oss", ("<seed:tool_call>",)),
    ("minimax_m2", ("<minimax:tool_call>",)),
    ("longcat", ("<longcat_tool_call>",)),
    ("gigachat3", ("function call", "<|role_sep|>")),
    ("gigachat3", ("<|function_call|>",)),
    ("glm45", ("<arg_key>",)),
    ("qwen3_coder", ("<function=", "<parameter=")),
    ("ernie45", ("<tool_call>", "<response>")),
    ("phi4_mini_json", ("<|tool|>", "<|/tool|>")),
    ("granite", ("<|tool_call|>",)),
    ("nemotron_json", ("<TOOLCALL>",)),
    ("olmo3", ("<function_calls>",)),
    ("granite-20b-fc", ("<function_call>",)),
    ("minimax", ("<tool_calls>", "<beginning_of_sentence>")),
    ("jamba", ("<tool_calls>", "<|bom|>")),
    ("hunyuan_a13b", ("<tool_calls>",)),
    ("llama4_json", ("<|python_start|>", LLAMA_PROMPT)),
    ("llama4_pythonic", ("<|python_start|>",)),
    ("llama3_json", (LLAMA_PROMPT,)),
    ("llama3_json", ("<|python_tag|>",)),
)
"""Parsers, each with texts that all occur in the templates of its models. The first row that fits decides."""

MISTRAL_NAMES = (
    *("MistralForCausalLM", "Mistral3ForConditionalGeneration", "MinistralForCausalLM", "Ministral3ForCausalLM"),
    *("MixtralForCausalLM", "llama", "mistral3"),
)
FAMILIES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("mistral", MISTRAL_NAMES, (MARKER,)),
    (
        "phi4_mini_json",
        ("Phi3ForCausalLM", "Phi4MMForCausalLM", "Phi4MultimodalForCausalLM", "phi3"),
        ("<|tool_call|>",),
    ),
    ("granite", ("GraniteForCausalLM", "granite"), ("<|tool_call|>",)),
    ("functiongemma", ("Gemma3ForCausalLM", "gemma3"), (FUNCTION_GEMMA.begin,)),
    ("cohere_command", ("CohereForCausalLM", "Cohere2ForCausalLM"), ("<|START_ACTION|>",)),
    ("openai", ("GptOssForCausalLM",), (CHANNEL, MESSAGE)),
)
"""Parsers for models whose template says nothing of calls: their architectures, and tokens that their vocabulary has.

One architecture has several families: a GGUF file of Mistral says `llama`. Their tokens tell them apart.
"""


def known_tool_parsers() -> tuple[str, ...]:
    """Return the names of all parsers, sorted."""
    return tuple(sorted(FORMATS))


def tool_format(name: str, find_token: FindToken | None = None) -> ToolFormat:
    """Return the format of this name, as a model with this vocabulary writes it. Raises ModelLoadError."""
    if name not in FORMATS:
        raise ModelLoadError(f"there is no tool parser {name!r}; known are {', '.join(known_tool_parsers())}")
    format = FORMATS[name]
    if name == "mistral" and find_token is not None and find_token(ARGUMENTS) is not None:
        return replace(format, call_format=CallFormat(MARKER, MARKER, ARGUMENTS, ""))
    return format


def make_tool_parser(name: str, tools: tuple[Tool, ...], names: tuple[str, ...] = ()) -> OutputParser:
    """Make a parser for one choice. `names`: the functions that may be called; if empty, all `tools`."""
    allowed = frozenset(tool.name for tool in tools)
    return tool_format(name).make(allowed.intersection(names) if names else allowed, tools)


def check_tool_parser(name: str, find_token: FindToken) -> None:
    """Raise ModelLoadError unless the parser exists and the vocabulary has its markers."""
    missing = [marker for marker in tool_format(name).special if find_token(marker) is None]
    if missing:
        raise ModelLoadError(
            f"the tool parser {name!r} looks for {', '.join(missing)}, which the model's vocabulary does not have; "
            "choose the parser of the model's own format"
        )


def choose_tool_parser(
    chat_template: str | None, architecture: str = "", find_token: FindToken = lambda text: None
) -> str:
    """Return the parser whose markers occur in the template. If none do, that of the family; else `DEFAULT`."""
    template = chat_template or ""
    for name, marks in TEMPLATE_MARKS:
        if all(mark in template for mark in marks):
            return name
    if "<tool_call>" in template:
        return DEFAULT
    for name, architectures, tokens in FAMILIES:
        if architecture in architectures and all(find_token(token) is not None for token in tokens):
            return name
    return DEFAULT
