"""What the page of a request shows beside its columns: a time line, the sum of its cost, a curl line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from chat.catalog.prices import TOKENS_PER_PRICE, price_book, prices_by_id
from chat.console.figures import milliseconds, short_number
from chat.console.figures import number as figure
from chat.usage.models import RequestLog
from chat.usage.prices import NANOS, cost_nanos, cost_text

WIDTH = 1000
"""Of the drawing, whose unit is a thousandth of the duration."""
LEAST_WIDTH = 2
AUDIO = "/audio/"
"""In the routes that take a form with a sound."""
CURL_ROUTE = "/v1/chat/completions"
CURL_NAMES = (
    *("temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "seed"),
    *("max_tokens", "min_tokens", "ignore_eos", "n", "thinking_token_budget", "priority"),
)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a request's time: its name, a class of its colour, its length, and its place in the drawing."""

    name: str
    kind: str
    text: str
    ends_at: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class CostLine:
    """A factor of the cost: tokens of a kind, the price of a million of them, and what both come to."""

    name: str
    tokens: int
    price: str
    text: str


@dataclass(frozen=True, slots=True)
class CostSum:
    """How the cost comes about. `is_exact`: the known prices give what was charged."""

    lines: tuple[CostLine, ...]
    factor: Decimal | None
    total: str
    is_exact: bool


def stretches(log: RequestLog) -> tuple[Stretch, ...]:
    """Return the parts of a request's time in their order: in the queue, to the first token, the answer."""
    if not log.duration_ms:
        return ()
    ends = [("queue", _("In the queue"), log.queue_ms)]
    if log.ttft_ms is None:
        ends.append(("answer", _("Computing"), log.duration_ms))
    else:
        ends += [("prompt", _("Prompt, to the first token"), log.ttft_ms), ("answer", _("Answer"), log.duration_ms)]
    found, start = [], 0.0
    for kind, name, end in ends:
        if end is None:
            continue
        end = min(max(end, start), log.duration_ms)
        x, width = start / log.duration_ms * WIDTH, (end - start) / log.duration_ms * WIDTH
        width = min(max(width, LEAST_WIDTH), WIDTH)
        x = min(x, WIDTH - width)
        found.append(Stretch(name, kind, milliseconds(end - start), milliseconds(end), round(x, 1), round(width, 1)))
        start = end
    return tuple(found)


def cost_sum(log: RequestLog) -> CostSum | None:
    """Return how the cost comes about by the prices that were in force; None without a price and a cost."""
    ended = log.arrived_at + timedelta(milliseconds=log.duration_ms or 0)
    prices = prices_by_id(log.price_id or 0) or price_book([log.model]).at(log.model, ended)
    if prices is None:
        return CostSum((), None, cost_text(log.cost_nanos), is_exact=False) if log.cost_nanos else None
    cached = min(log.cached_tokens, log.prompt_tokens)
    reasoning = min(log.reasoning_tokens or 0, log.completion_tokens)
    kinds = (
        (_("prompt"), log.prompt_tokens - cached, prices.input),
        (_("prompt, cached"), cached, prices.cached),
        (_("completion"), log.completion_tokens - reasoning, prices.output),
        (_("reasoning"), reasoning, prices.reasoning),
    )
    lines = tuple(
        CostLine(name, tokens, price_text(price), cost_text(int(tokens * price * NANOS / TOKENS_PER_PRICE)))
        for name, tokens, price in kinds
        if tokens
    )
    factor = settings.LIGHTCONE_BATCH_PRICE_FACTOR if log.batch_id else None
    is_exact = cost_nanos(log, prices) == log.cost_nanos
    return CostSum(lines if is_exact else (), factor, cost_text(log.cost_nanos), is_exact=is_exact)


def media_text(media: Mapping[str, Mapping[str, int]] | None) -> str:
    """Return what a request had beside text, such as "2 images, 1.3 MB, 640 tokens · 1 file, 3 kB"; or empty."""
    return " · ".join(_media_text(kind, sums) for kind, sums in (media or {}).items())


def _media_text(kind: str, sums: Mapping[str, int]) -> str:
    number, size = sums.get("number", 0), filesizeformat(sums.get("bytes", 0))
    words = {
        "image": ngettext("%(number)s image, %(size)s", "%(number)s images, %(size)s", number),
        "audio": ngettext("%(number)s sound, %(size)s", "%(number)s sounds, %(size)s", number),
        "video": ngettext("%(number)s video, %(size)s", "%(number)s videos, %(size)s", number),
    }
    other = ngettext("%(number)s file, %(size)s", "%(number)s files, %(size)s", number)
    text = words.get(kind, other) % {"number": figure(number), "size": size}
    if duration_ms := sums.get("duration_ms", 0):
        text = f"{text}, {milliseconds(duration_ms)}"
    if tokens := sums.get("tokens", 0):
        return ngettext("%(media)s, %(number)s token", "%(media)s, %(number)s tokens", tokens) % {
            "media": text,
            "number": figure(tokens),
        }
    return text


def price_text(price: Decimal) -> str:
    """Format a price without the zeros of its column."""
    return short_number(price, 20)


def curl_line(log: RequestLog, *, address: str, request: Mapping[str, Any] | None = None) -> str:
    """Return a command that sends a request such as this. Its key is the shell's variable `LIGHTCONE_API_KEY`.

    `address`: of the server. `request`: the kept texts; without them the question is left to be filled in.
    """
    if AUDIO in log.route:
        fields = {"model": log.model_asked or log.model, **({"stream": "true"} if log.is_stream else {})}
        written = "".join(f" \\\n  --form-string {shlex.quote(f'{name}={value}')}" for name, value in fields.items())
        return (
            f"curl {shlex.quote(address + log.route)} \\\n"
            '  -H "Authorization: Bearer $LIGHTCONE_API_KEY" \\\n'
            f"  -F file=@…{written}"
        )
    parameters = log.parameters or {}
    body: dict[str, Any] = {"model": log.model_asked or log.model}
    route = CURL_ROUTE
    if request is None:
        body["messages"] = [{"role": "user", "content": "…"}]
    elif "prompt" in request:
        route = "/v1/completions"
        body |= {name: request[name] for name in ("prompt", "suffix") if name in request}
    else:
        body |= {name: request[name] for name in ("messages", "tools") if request.get(name)}
    if request and request.get("stop"):
        body["stop"] = request["stop"]
    body |= {name: parameters[name] for name in CURL_NAMES if name in parameters}
    if log.is_stream:
        body["stream"] = True
    text = json.dumps(body, ensure_ascii=False, indent=2)
    return (
        f"curl {shlex.quote(address + route)} \\\n"
        '  -H "Authorization: Bearer $LIGHTCONE_API_KEY" \\\n'
        "  -H 'Content-Type: application/json' \\\n"
        f"  -d {shlex.quote(text)}"
    )


def answer_texts(answers: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return title and text of each part of the answers."""
    titles = {"reasoning": _("Reasoning"), "content": _("Answer"), "tool_calls": _("Calls of tools")}
    parts = []
    for index, answer in enumerate(answers):
        number = f" {index + 1}" if len(answers) > 1 else ""
        for name, title in titles.items():
            if answer.get(name):
                parts.append((f"{title}{number}", shown_text(answer[name])))
    return parts


def message_texts(request: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return role and text of each message, or the prompt."""
    if "prompt" in request:
        return [(_("Prompt"), shown_text(request["prompt"]))]
    shown = []
    for message in request.get("messages", []):
        rest = {name: value for name, value in message.items() if name not in ("role", "content")}
        content = message.get("content")
        text = shown_text(content) if content else ""
        shown.append((str(message.get("role", "")), "\n".join(filter(None, (text, shown_text(rest) if rest else "")))))
    return shown


def shown_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
