"""The default model's logits equal those of transformers on the same file."""

import pytest
import torch

from engine.loading.loader import load_model
from tests.engine.loading.test_loader import run
from tests.oracle.default_model import SMOLLM2


@pytest.mark.slow
def test_the_default_model_gives_the_logits_of_transformers_on_the_same_file(default_reference):
    model = load_model(SMOLLM2, weights="float32")
    prompt = torch.tensor(
        [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2]
    )
    with torch.inference_mode():
        expected = default_reference(prompt[None]).logits[0]
    # Logits reach 40 here; thirty layers of float32 sums in two orders.
    torch.testing.assert_close(run(model, [prompt], cuts=[5])[0], expected, atol=2e-3, rtol=0)
