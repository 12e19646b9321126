"""Random LoRA adapters as PEFT saves them, and the same changes merged into models of transformers."""

from __future__ import annotations

import copy
import json
import math
import re
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from transformers.pytorch_utils import Conv1D

ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def adapter_of(model, *, seed: int, modules=ALL, rank: int = 4, spread: float = 0.2, **config):
    """Return the config and the tensors of a random adapter for these modules of a model of transformers.

    `config`: further fields, of which `rank_pattern` is obeyed.
    """
    generator = torch.Generator().manual_seed(seed)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": list(modules)} | config
    tensors = {}
    for name, part in linear_layers(model):
        if name.rpartition(".")[2] in modules:
            own = int(_by_pattern(config.get("rank_pattern"), name, config["r"]))
            outputs, inputs = sizes(part)
            for half, shape in (("A", (own, inputs)), ("B", (outputs, own))):
                values = torch.randn(shape, generator=generator) * spread
                tensors[f"base_model.model.{name}.lora_{half}.weight"] = values
    return config, tensors


def linear_layers(model):
    return [(name, part) for name, part in model.named_modules() if isinstance(part, nn.Linear | Conv1D)]


def sizes(part):
    """Return outputs and inputs."""
    return part.weight.shape[:: -1 if isinstance(part, Conv1D) else 1]


def write_adapter(folder: Path, config, tensors) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def merged(model, config, tensors):
    """Return the model with W + scale * B A in the place of each W that the adapter changes."""
    model = copy.deepcopy(model)
    for name, part in linear_layers(model):
        down, up = (tensors.get(f"base_model.model.{name}.lora_{half}.weight") for half in "AB")
        if down is not None and up is not None:
            rank = len(down)
            alpha = _by_pattern(config.get("alpha_pattern"), name, config["lora_alpha"])
            scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
            change = (up @ down).T if isinstance(part, Conv1D) else up @ down
            part.weight.data += scale * change
    return model


def _by_pattern(numbers, name, default):
    found = [number for pattern, number in (numbers or {}).items() if re.match(rf"(.*\.)?({pattern})$", name)]
    return found[0] if found else default


def greedy_tokens(model, prompt_ids, count):
    """Return the most likely next tokens by transformers, without a cache."""
    ids = list(prompt_ids)
    with torch.inference_mode():
        for _ in range(count):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt_ids) :]
