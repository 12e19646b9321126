"""The values of sampling fields that a request leaves out. From the strongest source to the weakest:

1. the request itself;
2. the operator's defaults of the model, in the console;
3. the operator's defaults of the installation (`LIGHTCONE_DEFAULT_MAX_TOKENS`);
4. the model's files, or the card of a known model if they are silent (engine/loading/maker_defaults.py). The worker
   reads these and reports them in its lease;
5. neutral values, which change nothing.

The lists of models and the playground show them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings

NEUTRAL: Mapping[str, Any] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "max_completion_tokens": None,
}
"""Without a token limit an answer may take the rest of the context."""


def sampling_defaults_merge(*, of_operator: Mapping[str, Any], of_files: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that apply to fields left out. None from the operator stands for the neutral value."""
    limit = settings.LIGHTCONE_DEFAULT_MAX_TOKENS
    of_installation = {"max_completion_tokens": limit} if limit else {}
    return {**of_files, **of_installation, **of_operator}


def sampling_defaults_effective(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value for each field that has a default. `defaults`: those of a catalog entry."""
    return {name: neutral if defaults.get(name) is None else defaults[name] for name, neutral in NEUTRAL.items()}
