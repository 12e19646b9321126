"""Defaults of absent fields: the model's operator, then the installation, then the model's files."""

from __future__ import annotations

from typing import Any

import pytest

from chat.catalog.services import NEUTRAL, sampling_defaults_effective, sampling_defaults_merge

FILES = {"temperature": 0.6, "top_k": 20, "max_completion_tokens": 4096}


def effective(of_operator: dict[str, Any]) -> dict[str, Any]:
    return sampling_defaults_effective(sampling_defaults_merge(of_operator=of_operator, of_files=FILES))


def test_operator_defaults_precede_model_files_and_neutral_values() -> None:
    assert effective({"top_k": 5}) == {**NEUTRAL, "temperature": 0.6, "top_k": 5, "max_completion_tokens": 4096}


def test_null_removes_a_default_of_the_model_files() -> None:
    assert effective({"temperature": None, "max_completion_tokens": None}) == {**NEUTRAL, "top_k": 20}


@pytest.mark.parametrize(
    ("of_operator", "limit"), [({}, 512), ({"max_completion_tokens": 9}, 9), ({"max_completion_tokens": None}, None)]
)
def test_the_installation_token_limit_ranks_between_operator_and_model_files(
    settings: Any, of_operator: dict[str, Any], limit: int | None
) -> None:
    settings.LIGHTCONE_DEFAULT_MAX_TOKENS = 512
    assert effective(of_operator)["max_completion_tokens"] == limit
