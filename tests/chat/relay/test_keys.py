"""A model's slug is a function of its name alone, and no two names share one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.relay.state.keys import model_slug, queue_of


def test_a_plain_name_is_its_own_slug() -> None:
    assert queue_of(model_slug("tiny-1b")) == "model.tiny-1b"


@pytest.mark.parametrize("names", [("acme small", "acme.small", "acme-small", "Acme-Small"), ("模型", "型模", "-")])
def test_names_that_differ_in_other_characters_get_different_slugs(names: tuple[str, ...]) -> None:
    assert len({model_slug(name) for name in names}) == len(names)


@given(st.text(min_size=1, max_size=200))
def test_a_slug_has_letters_digits_and_dashes_only(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]*", model_slug(name))
