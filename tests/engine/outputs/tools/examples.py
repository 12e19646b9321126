"""One example answer per tool format: text, then two calls. Every parser must read the same calls."""

WEATHER = '{"city": "Zürich \\"Nord\\" {1}", "days": 3}'
TEXT = "Let me look.\n"


def _json(key="arguments", name_key="name"):
    return f'{{"{name_key}": "get_weather", "{key}": {WEATHER}}}', f'{{"{name_key}": "get_time", "{key}": {{}}}}'


def _tagged(begin, end, value_line="\n"):
    return (
        f'{begin}\n<function=get_weather>\n<parameter=city>{value_line}Zürich "Nord" {{1}}{value_line}</parameter>\n'
        f"<parameter=days>{value_line}3{value_line}</parameter>\n</function>\n{end}\n{begin}\n<function=get_time>\n</function>\n{end}"
    )


def _glm(line):
    return (
        f'<tool_call>get_weather{line}<arg_key>city</arg_key>{line}<arg_value>Zürich "Nord" {{1}}</arg_value>{line}'
        f"<arg_key>days</arg_key>{line}<arg_value>3</arg_value>{line}</tool_call>{line}<tool_call>get_time{line}</tool_call>"
    )


def _invokes(prefix, parameters):
    return (
        f'<{prefix}invoke name="get_weather">\n{parameters}\n</{prefix}invoke>\n<{prefix}invoke '
        f'name="get_time">\n</{prefix}invoke>\n'
    )


def _gemma(begin, end, quote):
    return f'{begin}call:get_weather{{city:{quote}Zürich "Nord" {{1}}{quote},days:3}}{end}{begin}call:get_time{{}}{end}'


FIRST, SECOND = _json()
PYTHON = "get_weather(city='Zürich \"Nord\" {1}', days=3)"
HERMES = f"<tool_call>\n{FIRST}\n</tool_call>\n<tool_call>\n{SECOND}\n</tool_call>"
TOOL_CALLS = f"<tool_calls>[{FIRST}, {SECOND}]</tool_calls>"
DSML_PARAMETERS = (
    '<｜DSML｜parameter name="city" string="true">Zürich "Nord" {1}</｜DSML｜parameter>\n'
    '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>'
)
STEP_3_CALL = "<｜tool_call_begin｜>function<｜tool_sep｜>"
STEP_3_NAMED = (
    '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>get_weather\n<steptml:invoke name="get_weather">'
)

EXAMPLES = {
    "hermes": TEXT + HERMES,
    "hermes, in a fence": f"{TEXT}\n```json\n{FIRST}\n{SECOND}\n```",
    "hermes, in two fences": f"{TEXT}\n```json\n{FIRST}\n```\n\n```\n{SECOND}\n```\n",
    "hermes, in tags in a fence": f"{TEXT}\n```xml\n{HERMES}\n```",
    "hermes, bare": f"{FIRST}\n{SECOND}",
    "hermes, bare on lines of their own": f"{TEXT}\n{FIRST}\n\n{SECOND}",
    "hermes, in a bare list": f"[{FIRST}, {SECOND}]",
    "hermes, in another tag": TEXT + HERMES.replace("tool_call>", "function_call>"),
    "hermes, with doubled braces": f"{TEXT}\n{{{FIRST}}}\n{{{SECOND}}}",
    "hermes, with braces doubled twice": f"{TEXT}\n```json\n"
    f"{{{FIRST.replace(WEATHER, '{' + WEATHER + '}')}}}\n{{{SECOND}}}\n```",
    "mistral": TEXT + f"[TOOL_CALLS] [{FIRST}, {SECOND}]",
    "mistral, newer": TEXT + f"[TOOL_CALLS]get_weather{WEATHER}[TOOL_CALLS]get_time[ARGS]{{}}",
    "llama3_json": TEXT + "<|python_tag|>" + "; ".join(_json("parameters")),
    "llama3_json, bare": "; ".join(_json("parameters")),
    "llama3_json, inline": TEXT + "\n".join(_json("parameters")) + "\nDone.",
    "llama4_json, marked": TEXT + "<|python_start|>" + "".join(_json("parameters")) + "<|python_end|>",
    "llama4_json": "\n".join(_json("parameters")),
    "llama4_pythonic": TEXT + f"<|python_start|>[{PYTHON}, get_time()]<|python_end|>",
    "pythonic": f"[{PYTHON}, get_time()]",
    "olmo3": TEXT + f"<function_calls>\n{PYTHON}\nget_time()\n</function_calls>",
    "granite": TEXT + f"<|tool_call|>[{FIRST}, {SECOND}]",
    "granite, bare": f"[{FIRST}, {SECOND}]",
    "granite, text marker": TEXT + f"<tool_call>[{FIRST}, {SECOND}]",
    "granite-20b-fc": TEXT + f"<function_call> {FIRST}\n<function_call> {SECOND}",
    "internlm": TEXT + "".join(f"<|action_start|><|plugin|>\n{call}<|action_end|>" for call in _json("parameters")),
    "jamba": TEXT + TOOL_CALLS,
    "hunyuan_a13b": TEXT + TOOL_CALLS,
    "xlam": f"[{FIRST}, {SECOND}]",
    "xlam, fenced": TEXT + f"```json\n[{FIRST}, {SECOND}]\n```",
    "xlam, fenced alone": f"```json\n[{FIRST}, {SECOND}]\n```",
    "xlam, marked": TEXT + f"[TOOL_CALLS][{FIRST}, {SECOND}]",
    "xlam, tagged": TEXT + f"<tool_call>[{FIRST}, {SECOND}]</tool_call>",
    "xlam, after a thought": TEXT + f"</think>\n\n[{FIRST}, {SECOND}]",
    "phi4_mini_json": TEXT + f"functools[{FIRST}, {SECOND}]",
    "deepseek_v3": TEXT + f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
    f"```json\n{WEATHER}\n```<｜tool▁call▁end｜>\n"
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v31": TEXT
    + f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{WEATHER}<｜tool▁call▁end｜>"
    "<｜tool▁call▁begin｜>get_time<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek_v32": TEXT
    + f"<｜DSML｜function_calls>\n{_invokes('｜DSML｜', DSML_PARAMETERS)}</｜DSML｜function_calls>",
    "deepseek_v4": TEXT + f"<｜DSML｜tool_calls>\n{_invokes('｜DSML｜', DSML_PARAMETERS)}</｜DSML｜tool_calls>",
    "kimi_k2": TEXT + f"<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
    f"<|tool_call_argument_begin|>{WEATHER}<|tool_call_end|>"
    "<|tool_call_begin|>functions.get_time:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
    "glm45": TEXT + _glm("\n"),
    "glm47": TEXT + _glm(""),
    "glm47, name on its own line": TEXT + _glm("").replace("<tool_call>", "<tool_call>\n"),
    "qwen3_coder": TEXT + _tagged("<tool_call>", "</tool_call>"),
    "qwen3_xml": TEXT + _tagged("<tool_call>", "</tool_call>"),
    "seed_oss": TEXT + _tagged("<seed:tool_call>", "</seed:tool_call>", ""),
    "minimax": TEXT + f"<tool_calls>\n{FIRST}\n{SECOND}\n</tool_calls>",
    "minimax_m2": TEXT
    + "<minimax:tool_call>\n"
    + _invokes("", '<parameter name="city">Zürich "Nord" {1}</parameter>\n<parameter name="days">3</parameter>')
    + "</minimax:tool_call>",
    "step3": TEXT
    + f'<｜tool_calls_begin｜>{STEP_3_CALL}<steptml:invoke name="get_weather"><steptml:parameter name="city">Zürich '
    '"Nord" {1}</steptml:parameter><steptml:parameter '
    f'name="days">3</steptml:parameter></steptml:invoke><｜tool_call_end｜>{STEP_3_CALL}<steptml:invoke '
    'name="get_time"></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>',
    "step3, with headings": TEXT
    + STEP_3_NAMED
    + '<steptml:parameter name="city">Zürich "Nord" {1}</steptml:parameter><steptml:parameter name="days"> 3 '
    "</steptml:parameter>"
    "</steptml:invoke><｜tool_call_end｜>\n<｜tool_call_begin｜>function<｜tool_sep｜>get_time\n<steptml:invoke "
    'name="get_time">'
    "</steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
    "nemotron_json": TEXT + f"<TOOLCALL>[{FIRST}, {SECOND}]</TOOLCALL>",
    "longcat": TEXT + HERMES.replace("tool_call>", "longcat_tool_call>"),
    "ernie45": f"<response>\n{TEXT[:-1]}\n</response>\n\n{HERMES}",
    "gigachat3": TEXT
    + f"<|message_sep|>\n\nfunction call<|role_sep|>\n{FIRST}<|message_sep|>\n\nfunction call<|role_sep|>\n{SECOND}",
    "gigachat3, newer": TEXT + f"<|function_call|>{FIRST}<|function_call|>{SECOND}",
    "functiongemma": TEXT + _gemma("<start_function_call>", "<end_function_call>", "<escape>"),
    "openai": f"<|channel|>commentary<|message|>{TEXT}<|end|>"
    f"<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{WEATHER}<|call|>"
    "<|start|>assistant to=functions.get_time<|channel|>commentary json<|message|>{}<|call|>",
    "gemma4": TEXT + _gemma("<|tool_call>", "<tool_call|>", '<|"|>'),
    "lfm2": TEXT + f"<|tool_call_start|>[{PYTHON}, get_time()]<|tool_call_end|>",
    "cohere_command": TEXT
    + "<|START_ACTION|>[\n    "
    + ",\n    ".join(f'{{"tool_call_id": "{i}", {call[1:]}' for i, call in enumerate(_json("parameters", "tool_name")))
    + "\n]<|END_ACTION|>",
    "apertus": TEXT + f'<|tools_prefix|>[{{"get_weather": {WEATHER}}}, {{"get_time": {{}}}}]<|tools_suffix|>',
    "granite4": TEXT + HERMES,
    "qwen3_json": TEXT + HERMES,
    "mimo": TEXT + _tagged("<tool_call>", "</tool_call>", ""),
    "step3p5": TEXT + _tagged("<tool_call>", "</tool_call>"),
}
"""By the parser's name, with a word after a comma where it reads several forms."""


def parser_of(label):
    return label.partition(",")[0]
