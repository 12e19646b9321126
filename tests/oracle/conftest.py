import warnings

import pytest
import torch
import transformers

from tests.oracle.default_model import SMOLLM2


@pytest.fixture(scope="session")
def default_reference():
    """Return the default model as read by transformers, in float32. Reading takes ten seconds of a core."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformers.AutoModelForCausalLM.from_pretrained(
            SMOLLM2.parent, gguf_file=SMOLLM2.name, dtype=torch.float32
        ).eval()
