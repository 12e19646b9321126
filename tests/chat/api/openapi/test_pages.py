"""The page on chat completions has each field with its type, limits, default and an accepted example."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.request.build import rights_check
from chat.api.request.parse import request_parse
from chat.api.request.schema import ChatCompletionRequest
from chat.errors import ERROR_KINDS

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "api" / "lightcone.md").read_text()
NOT_SERVED_YET = {"insufficient_credits"}
FIELDS = ChatCompletionRequest().fields
SECTIONS = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL))
EXAMPLE = re.compile(r"^Example: `(\{.*\})`$", re.MULTILINE)
REFUSED = {"web_search_options", "kv_transfer_params"}


def facts(schema: dict[str, Any], is_required: bool) -> str:
    """Return what the schema states of a field, as written on the page."""
    kinds = schema.get("type", [branch.get("type") for branch in schema.get("oneOf", [])])
    kinds = list(dict.fromkeys([kinds] if isinstance(kinds, str) else kinds))
    words = [" or ".join(kinds)]
    if "enum" in schema:
        words.append("one of " + ", ".join(f"`{value}`" for value in schema["enum"] if value is not None))
    bounds = {
        "minimum": "at least {:g}",
        "exclusiveMinimum": "above {:g}",
        "maximum": "at most {:g}",
        "minItems": "at least {} item",
        "maxItems": "at most {} items",
        "maxProperties": "at most {} entries",
        "maxLength": "at most {} characters",
    }
    words += [text.format(schema[name]) for name, text in bounds.items() if name in schema]
    if "default" in schema:
        words.append(f"default `{json.dumps(schema['default'])}`")
    if is_required:
        words.append("required")
    return f"*{'; '.join(words)}*"


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_has_its_type_limits_default_effect_and_a_good_example(name):
    section = SECTIONS[name]
    assert section.splitlines()[0] == facts(FIELDS[name].schema_object(), FIELDS[name].required)
    effect = "\n".join(section.splitlines()[1:]).split("Example:")[0]
    assert len(effect.split()) >= 5, "says what it does"
    (example,) = EXAMPLE.findall(section)
    body = json.loads(example)
    assert name in body
    parsed = request_parse({"messages": [{"role": "user", "content": "hi"}], **body})
    if name not in REFUSED:
        rights_check(parsed, model="m", caller=Caller(1, "a", 1, 1, "1", frozenset(Right.values), min_priority=-10))


def test_the_page_describes_no_other_field():
    assert set(SECTIONS) == set(FIELDS)


def test_every_error_code_is_on_the_page():
    assert [code for code in ERROR_KINDS if code not in NOT_SERVED_YET and f"`{code}`" not in PAGE] == []
