"""The models on this machine: a folder with a manifest for each. Which of them are served is the catalogue's to say."""

import os

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
"""Read by huggingface_hub when it is first imported: it then asks the hub for nothing but models."""
