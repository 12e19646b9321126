"""The formats of tool calls as data for the shared parsers. registry.py gives them names."""

from __future__ import annotations

from dataclasses import replace

from engine.outputs.tools.json_calls import JsonCallFormat
from engine.outputs.tools.python_calls import PythonCallFormat
from engine.outputs.tools.tagged_calls import TaggedCallFormat

HERMES = JsonCallFormat(
    begins=("<tool_call>",), ends=("</tool_call>", "</function_call>", "</tools>"), has_doubled_braces=True
)
LLAMA_3_JSON = JsonCallFormat(begins=("<|python_tag|>",), is_bare=True, is_inline=True)
LLAMA_4_JSON = JsonCallFormat(
    begins=("<|python_tag|>", "<|python_start|>"), ends=("<|python_end|>",), is_bare=True, is_inline=True
)
GRANITE = JsonCallFormat(begins=("<|tool_call|>", "<tool_call>"), ends=("</tool_call>",), is_bare=True)
GRANITE_20B = JsonCallFormat(begins=("<function_call>",), ends=("</function_call>",))
INTERNLM = JsonCallFormat(begins=("<|action_start|>",), openers=("<|plugin|>",), ends=("<|action_end|>",))
TOOL_CALLS = JsonCallFormat(begins=("<tool_calls>",), ends=("</tool_calls>",))
XLAM = JsonCallFormat(
    begins=("[TOOL_CALLS]", "<tool_call>", "</think>", "```"),
    ends=("</tool_call>", "```"),
    openers=("json",),
    is_bare=True,
)
PHI_4_MINI = JsonCallFormat(begins=("functools", "<|tool_call|>"), ends=("<|/tool_call|>",))
NEMOTRON = JsonCallFormat(begins=("<TOOLCALL>",), ends=("</TOOLCALL>",))
LONGCAT = JsonCallFormat(begins=("<longcat_tool_call>",), ends=("</longcat_tool_call>",))
ERNIE = JsonCallFormat(
    begins=("<tool_call>",), ends=("</tool_call>",), dropped=("<response>", "\n</response>", "</response>", "</think>")
)
GIGACHAT = JsonCallFormat(
    begins=("function call", "<|function_call|>"), openers=("<|role_sep|>",), dropped=("<|message_sep|>",)
)
COHERE = JsonCallFormat(
    begins=("<|START_ACTION|>",),
    ends=("<|END_ACTION|>",),
    name_key="tool_name",
    dropped=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
)
APERTUS = JsonCallFormat(begins=("<|tools_prefix|>",), ends=("<|tools_suffix|>",), name_key="")

PYTHONIC = PythonCallFormat(is_bare=True)
LLAMA_4_PYTHONIC = PythonCallFormat(begins=("<|python_start|>",), ends=("<|python_end|>",), is_bare=True)
OLMO_3 = PythonCallFormat(begins=("<function_calls>",), ends=("</function_calls>",), needs_list=False)
LFM_2 = PythonCallFormat(begins=("<|tool_call_start|>",), ends=("<|tool_call_end|>",))

QWEN_CODER = TaggedCallFormat(
    block_begin="<tool_call>",
    block_end="</tool_call>",
    call_begin="<function=",
    name_end=">",
    call_end="</function>",
    key_begin="<parameter=",
    key_end=">",
    value_end="</parameter>",
    is_block_optional=True,
    strips_lines=True,
)
SEED_OSS = replace(QWEN_CODER, block_begin="<seed:tool_call>", block_end="</seed:tool_call>", is_block_optional=False)
MINIMAX_M2 = TaggedCallFormat(
    block_begin="<minimax:tool_call>",
    block_end="</minimax:tool_call>",
    call_begin="<invoke name=",
    name_end=">",
    call_end="</invoke>",
    key_begin="<parameter name=",
    key_end=">",
    value_end="</parameter>",
)
DEEPSEEK_V32 = TaggedCallFormat(
    block_begin="<｜DSML｜function_calls>",
    block_end="</｜DSML｜function_calls>",
    call_begin="<｜DSML｜invoke name=",
    name_end=">",
    call_end="</｜DSML｜invoke>",
    key_begin="<｜DSML｜parameter name=",
    key_end=">",
    value_end="</｜DSML｜parameter>",
    controls=frozenset({"｜DSML｜"}),
)
DEEPSEEK_V4 = replace(DEEPSEEK_V32, block_begin="<｜DSML｜tool_calls>", block_end="</｜DSML｜tool_calls>")
STEP_3 = TaggedCallFormat(
    block_begin="<｜tool_calls_begin｜>",
    block_end="<｜tool_calls_end｜>",
    call_begin="<steptml:invoke name=",
    name_end=">",
    call_end="</steptml:invoke>",
    key_begin="<steptml:parameter name=",
    key_end=">",
    value_end="</steptml:parameter>",
    has_headings=True,
    controls=frozenset({"<｜tool_call_begin｜>", "<｜tool_sep｜>", "<｜tool_call_end｜>"}),
)
GLM = TaggedCallFormat(
    block_begin="<tool_call>",
    block_end="</tool_call>",
    call_begin="<tool_call>",
    name_end="\n",
    call_end="</tool_call>",
    key_begin="<arg_key>",
    key_end="</arg_key>",
    value_begin="<arg_value>",
    value_end="</arg_value>",
    name_stops=("<arg_key>", "</tool_call>"),
    controls=frozenset({"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}),
)
