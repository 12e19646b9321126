"""The family that docs/adding-a-model.md shows is served as transformers serves it."""

import re
import textwrap
from pathlib import Path

import torch

from engine.loading.loader import load_model
from engine.models import registry
from tests.engine.models.test_decoder import run, small_model

PAGE = Path(__file__).resolve().parents[3] / "docs" / "adding-a-model.md"


def test_the_family_of_the_page_gives_the_logits_of_transformers(tmp_path, monkeypatch):
    (example,) = re.findall(r"^ *```python\n(.*?)^ *```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(example.splitlines()) <= 40
    made: dict[str, object] = {}
    exec(textwrap.dedent(example), made)  # noqa: S102
    family = made["FAMILY"]
    monkeypatch.setitem(registry.HF_FAMILIES, family.hf_names[0], family)
    changes = {"num_key_value_heads": 2, "head_dim": 24, "attention_bias": True, "attention_out_bias": True}
    reference = small_model("SeedOss", changes)
    reference.save_pretrained(tmp_path)
    prompt = torch.arange(60)
    with torch.inference_mode():
        expected = reference(prompt[None]).logits[0]
    (logits,) = run(load_model(tmp_path, weights="float32"), [prompt], [25])
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
