"""Programs that send a request: curl, OpenAI's clients, Tzafon's client, plain JSON, and a stream that is resumed.

Each is whole: it runs as it stands, with the key in LIGHTCONE_API_KEY and media in files beside it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from chat.playground.code.media import Media, media_taken_out
from chat.playground.code.notation import FILE, JAVASCRIPT, JSON, PYTHON, json_text, python_text

KEY = "LIGHTCONE_API_KEY"
END = "JSON"
"""The line that ends a body in the shell. No line of JSON that we write is this."""
ROUTE = "/chat/completions"
OPENAI_FIELDS = frozenset(
    {
        *("messages", "model", "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs"),
        *("max_completion_tokens", "max_tokens", "metadata", "modalities", "n", "parallel_tool_calls", "prediction"),
        *("presence_penalty", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort", "response_format"),
        *("safety_identifier", "seed", "service_tier", "stop", "store", "stream", "stream_options", "temperature"),
        *("tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity", "web_search_options"),
    }
)
"""Arguments of OpenAI's clients. Other fields go where these put fields that they do not know."""
TZAFON_FIELDS = frozenset(
    {
        *("messages", "add_generation_prompt", "add_special_tokens", "allowed_token_ids", "bad_words", "cache_salt"),
        *("chat_template", "chat_template_kwargs", "continue_final_message", "documents", "echo", "frequency_penalty"),
        *("ignore_eos", "include_reasoning", "include_stop_str_in_output", "kv_transfer_params", "length_penalty"),
        *("logit_bias", "logits_processors", "logprobs", "max_completion_tokens", "max_tokens", "min_p", "min_tokens"),
        *("mm_processor_kwargs", "model", "n", "parallel_tool_calls", "presence_penalty", "priority"),
        *("prompt_logprobs", "reasoning_effort", "repetition_penalty", "request_id", "response_format"),
        *("return_token_ids", "return_tokens_as_token_ids", "seed", "skip_special_tokens"),
        *("spaces_between_special_tokens", "stop", "stop_token_ids", "stream", "stream_options", "structured_outputs"),
        *("temperature", "tool_choice", "tools", "top_k", "top_logprobs", "top_p", "truncate_prompt_tokens"),
        *("use_beam_search", "user", "vllm_xargs"),
    }
)


@dataclass(frozen=True, slots=True)
class Snippet:
    name: str
    title: str
    language: str
    text: str


def snippets_make(
    request: dict[str, Any], *, root: str, run_name: str = "", answer: str | None = None
) -> list[dict[str, str]]:
    """Return the snippets of a request to the server at `root`, with the answer of the run as a comment if given."""
    shown = media_taken_out(request)
    base_url = f"{root}/v1"
    said = [] if answer is None else [f"The answer of the run {run_name}:" if run_name else "The answer:"]
    said += (answer or "").splitlines()
    shell, slashes = _comment("#", said), _comment("//", said)
    snippets = (
        Snippet("curl", "curl", "shell", _curl(shown, base_url) + shell),
        Snippet("python", "Python (openai)", "python", _openai_python(shown, base_url) + shell),
        Snippet("typescript", "TypeScript (openai)", "typescript", _typescript(shown, base_url) + slashes),
        Snippet("raw", "JSON", "json", JSON.write(request) + "\n"),
        Snippet("tzafon", "Python (tzafon)", "python", _tzafon(shown, root) + shell),
        Snippet("resume", "Resume a stream", "shell", _resume(shown, base_url, run_name or "my-run") + shell),
    )
    return [asdict(snippet) for snippet in snippets]


def _comment(mark: str, lines: list[str]) -> str:
    """Return an empty line and lines of comment; nothing without lines. What ends a line in any language is gone."""
    return "\n" + "".join(f"{mark} {_visible(line)}".rstrip() + "\n" for line in lines) if lines else ""


def _visible(line: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in line.replace("\t", "    "))


# The shell.


def _curl(request: dict[str, Any], base_url: str) -> str:
    return _post(request, base_url, [])


def _resume(request: dict[str, Any], base_url: str, run_name: str) -> str:
    headers = ["X-Lightcone-Resumable: true", f"X-Request-Id: {run_name}"]
    url = f"{base_url}{ROUTE}/chatcmpl-{run_name}/events?starting_after=0"
    return (
        '# A stream that outlives its connection. Each chunk has its number: "lightcone": {"seq": N}.\n'
        f"{_post(request | {'stream': True}, base_url, headers)}\n"
        "# After a break: the chunks behind the last number that came, then live to the end.\n"
        f'curl --no-buffer {_shell_text(url)} \\\n  -H "Authorization: Bearer ${KEY}"\n'
    )


def _post(request: dict[str, Any], base_url: str, headers: list[str]) -> str:
    """Return a command that posts a request. Files go into its JSON as base64, whose line breaks are taken out."""
    lines = [
        f"curl {'--no-buffer ' if request.get('stream') is True else ''}{_shell_text(base_url + ROUTE)}",
        f'-H "Authorization: Bearer ${KEY}"',
        *(f"-H {_shell_text(header)}" for header in ("Content-Type: application/json", *headers)),
    ]
    pieces = FILE.split(JSON.write(request))
    if len(pieces) == 1:
        return " \\\n  ".join([*lines, f"--data-binary @- <<'{END}'"]) + f"\n{pieces[0]}\n{END}\n"
    sources = [
        f"base64 < {_shell_text(piece)}" if index % 2 else f"cat <<'{END}'\n{piece}\n{END}"
        for index, piece in enumerate(pieces)
    ]
    command = " \\\n  ".join([*lines, "--data-binary @-"])
    return "{\n" + "\n".join(sources) + "\n} | tr -d '\\n' | " + command + "\n"


def _shell_text(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# Programs.


def _openai_python(request: dict[str, Any], base_url: str) -> str:
    client = f'client = OpenAI(base_url={python_text(base_url)}, api_key=os.environ["{KEY}"])'
    call = _python_call("client.chat.completions.create", request, OPENAI_FIELDS)
    head = [*_python_imports(request), "", "from openai import OpenAI", "", client]
    if request.get("stream") is True:
        body = [f"stream = {call}", *_python_stream(request)]
    else:
        body = [f"answer = {call}", "for choice in answer.choices:", "    print(choice.message.content)"]
        if request.get("tools"):
            body += ["    for call in choice.message.tool_calls or []:", "        print(call.to_json())"]
    return "\n".join([*head, *body, ""])


def _python_stream(request: dict[str, Any]) -> list[str]:
    lines = ["for chunk in stream:", "    for choice in chunk.choices:"]
    if request.get("n", 1) not in (1, None):
        return [*lines, "        print(choice.index, repr(choice.delta.content))"]
    lines.append('        print(choice.delta.content or "", end="", flush=True)')
    if request.get("tools"):
        lines += ["        for piece in choice.delta.tool_calls or []:", "            print(piece.to_json())"]
    return [*lines, "print()"]


def _tzafon(request: dict[str, Any], root: str) -> str:
    client = f'client = Lightcone(base_url={python_text(root)}, api_key=os.environ["{KEY}"])'
    imports = [line for line in _python_imports(request) if line != "import json"]
    if request.get("stream") is True:
        call = _python_call("client.chat.with_streaming_response.create_completion", request, TZAFON_FIELDS)
        body = [
            f"with {call} as response:",
            "    for line in response.iter_lines():",
            '        if line.startswith("data: {"):',
            '            for choice in json.loads(line.removeprefix("data: "))["choices"]:',
            '                print(choice["delta"].get("content") or "", end="", flush=True)',
            "print()",
        ]
        imports.insert(imports.index("import os"), "import json")
    else:
        call = _python_call("client.chat.create_completion", request, TZAFON_FIELDS)
        body = [f"answer = {call}", 'for choice in answer["choices"]:', '    print(choice["message"]["content"])']
        if request.get("tools"):
            body += ['    for call in choice["message"].get("tool_calls") or []:', "        print(call)"]
    return "\n".join([*imports, "", "from tzafon import Lightcone", "", client, *body, ""])


def _python_imports(request: dict[str, Any]) -> list[str]:
    return ["import base64", "import os", "from pathlib import Path"] if _has_media(request) else ["import os"]


def _python_call(function: str, request: dict[str, Any], known: frozenset[str]) -> str:
    arguments = {name: value for name, value in request.items() if name in known}
    further = {name: value for name, value in request.items() if name not in known}
    lines = [f"    {name}={PYTHON.write(value, 1)}," for name, value in arguments.items()]
    if further:
        lines.append(f"    extra_body={PYTHON.write(further, 1)},")
    return "\n".join([f"{function}(", *lines, ")"])


def _typescript(request: dict[str, Any], base_url: str) -> str:
    known = {name: value for name, value in request.items() if name in OPENAI_FIELDS}
    further = {name: value for name, value in request.items() if name not in OPENAI_FIELDS}
    lines = ['import { readFileSync } from "node:fs";'] if _has_media(request) else []
    lines += [
        'import OpenAI from "openai";',
        "",
        f"const client = new OpenAI({{ baseURL: {json_text(base_url)}, apiKey: process.env.{KEY} }});",
    ]
    if further:
        lines += ["// Fields that OpenAI's types do not have.", f"const further = {JAVASCRIPT.write(further)};"]
    fields = [f"  {name}: {JAVASCRIPT.write(value, 1)}," for name, value in known.items()]
    fields += ["  ...further,"] if further else []
    is_stream = request.get("stream") is True
    lines += [f"const {'stream' if is_stream else 'answer'} = await client.chat.completions.create({{", *fields, "});"]
    return "\n".join([*lines, *(_typescript_stream() if is_stream else _typescript_answer(request)), ""])


def _typescript_stream() -> list[str]:
    return [
        "for await (const chunk of stream) {",
        '  for (const choice of chunk.choices) process.stdout.write(choice.delta.content ?? "");',
        "}",
        'process.stdout.write("\\n");',
    ]


def _typescript_answer(request: dict[str, Any]) -> list[str]:
    lines = ["for (const choice of answer.choices) {", "  console.log(choice.message.content);"]
    if request.get("tools"):
        lines.append("  for (const call of choice.message.tool_calls ?? []) console.log(JSON.stringify(call));")
    return [*lines, "}"]


def _has_media(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_media, value.values()))
    return any(map(_has_media, value)) if isinstance(value, list) else isinstance(value, Media)
