"""The page on Scale's routes has each parameter with its type, limits, default and an accepted example."""

from __future__ import annotations

import json
import re

import pytest
from django.urls import resolve

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.request.build import rights_check
from chat.api.scale.fields import ScaleChatRequest
from chat.api.scale.read import scale_parse
from chat.api.scale.text_read import ScaleTextRequest, scale_text_parse
from tests.chat.api.openapi.test_pages import EXAMPLE, facts
from tests.chat.api.openapi.test_prompt_docs import PAGES

PAGE = (PAGES / "scale.md").read_text()
CHAT, PROMPT_FORM = PAGE.split("## The prompt form")
SECTIONS = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^#|\Z)", CHAT, re.MULTILINE | re.DOTALL))
FIELDS = ScaleChatRequest().fields
CALLER = Caller(1, "a", 1, 1, "1", frozenset(Right.values), min_priority=-10)


@pytest.mark.parametrize("name", FIELDS)
def test_a_parameter_has_its_type_limits_default_effect_and_a_good_example(name):
    section = SECTIONS[name]
    assert section.splitlines()[0] == facts(FIELDS[name].schema_object(), FIELDS[name].required)
    assert len("\n".join(section.splitlines()[1:]).split("Example:")[0].split()) >= 5, "says what it does"
    (example,) = EXAMPLE.findall(section)
    body = json.loads(example)
    assert name in body
    parsed = scale_parse({"model": "m", "messages": [{"role": "user", "content": "hi"}], **body})
    rights_check(parsed, model="m", caller=CALLER)


def test_the_page_describes_no_other_parameter():
    assert set(SECTIONS) == set(FIELDS)


def test_every_parameter_of_the_prompt_form_is_named_and_its_example_is_good():
    named = set(re.findall(r"`(\w+)`", PROMPT_FORM.split("## Errors")[0]))
    assert set(ScaleTextRequest().fields) - named == set()
    (example,) = EXAMPLE.findall(PROMPT_FORM)
    assert scale_text_parse({"model": "m", **json.loads(example)}).has_chat_logprobs


@pytest.mark.parametrize("route", sorted(set(re.findall(r"`(?:GET |POST )?(/v[45]/[\w/{}]+)`", PAGE))))
def test_every_route_of_the_page_is_served(route):
    assert resolve(route.replace("{id}", "a")).url_name


def test_every_link_leads_to_a_heading():
    for page, anchor in re.findall(r"\((\w+\.md)?#([\w-]+)\)", PAGE):
        headings = re.findall(r"^#+ (.*)$", PAGE if not page else (PAGES / page).read_text(), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}, (
            page,
            anchor,
        )
