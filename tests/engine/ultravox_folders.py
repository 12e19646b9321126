"""Small random models of Ultravox as folders, and what they answer by Llama of transformers and plain torch.

transformers has no class for the whole. The encoder and the projector are written here once more, from the names of
their tensors and the makers' code (https://github.com/fixie-ai/ultravox).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from torch.nn import functional

from tests.engine.tiny_tokenizer import CHATML, VOCAB_SIZE, tiny_tokenizer

RATE, HOP, STACK, WINDOW_S = 16_000, 160, 8, 2
"""WINDOW_S: published models have windows of 30 seconds."""
WINDOW_FRAMES = 100 * WINDOW_S
BANDS, WIDTH, HEADS, INNER = 16, 16, 2, 48
TEXT_ID, AUDIO_ID = "meta-llama/Tiny-Llama", "openai/whisper-tiny"
AUDIO_TOKEN = "<|audio|>"
NO_END = 10**6


@dataclass
class Ultravox:
    """The parts of a model, and what they answer."""

    text: transformers.LlamaForCausalLM
    encoder: dict[str, torch.Tensor]
    projector: dict[str, torch.Tensor]
    projector_act: str
    tokenizer: transformers.PreTrainedTokenizerFast

    @torch.inference_mode()
    def vectors(self, sound):
        """Return the vectors of a sound: whole windows and a rest, which zeros fill up behind a first window."""
        extractor = transformers.WhisperFeatureExtractor(feature_size=BANDS)
        num_frames = math.ceil(len(sound) / HOP)
        padded = functional.pad(torch.tensor(sound), (0, num_frames * HOP - len(sound))).numpy()
        frames = extractor(padded, sampling_rate=RATE, padding=False, truncation=False, return_tensors="pt")
        (frames,) = frames["input_features"]
        found = []
        for start in range(0, num_frames, WINDOW_FRAMES):
            window = frames[:, start : start + WINDOW_FRAMES]
            length = window.shape[1]
            if start:
                window = functional.pad(window, (0, WINDOW_FRAMES - length))
            found.append(self._projected(self._states(window, length))[: math.ceil(length / 16)])
        return torch.cat(found)

    def _states(self, window, length):
        get = self.encoder.get

        def linear(x, name):
            return functional.linear(x, get(f"{name}.weight"), get(f"{name}.bias"))

        def norm(x, name):
            return functional.layer_norm(x, (WIDTH,), get(f"{name}.weight"), get(f"{name}.bias"))

        x = functional.gelu(functional.conv1d(window, get("conv1.weight"), get("conv1.bias"), padding=1))
        x = functional.gelu(functional.conv1d(x, get("conv2.weight"), get("conv2.bias"), stride=2, padding=1)).T
        x = x + get("embed_positions.weight")[: len(x)]
        is_hidden = torch.arange(len(x)) >= math.ceil(length / 2)
        for layer in ("layers.0", "layers.1"):
            h = norm(x, f"{layer}.self_attn_layer_norm")
            q, k, v = (
                linear(h, f"{layer}.self_attn.{name}_proj").view(len(x), HEADS, -1).transpose(0, 1) for name in "qkv"
            )
            scores = (q @ k.transpose(1, 2)) * (WIDTH // HEADS) ** -0.5
            weights = scores.masked_fill(is_hidden, float("-inf")).softmax(-1)
            x = x + linear((weights @ v).transpose(0, 1).reshape(len(x), -1), f"{layer}.self_attn.out_proj")
            h = functional.gelu(linear(norm(x, f"{layer}.final_layer_norm"), f"{layer}.fc1"))
            x = x + linear(h, f"{layer}.fc2")
        return norm(x, "layer_norm")

    def _projected(self, states):
        def norm(x, name):
            if f"{name}.weight" not in self.projector:
                return x
            return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * self.projector[f"{name}.weight"]

        rest = -len(states) % STACK
        stacked = torch.cat([states, torch.zeros(rest, WIDTH)]).view(-1, STACK * WIDTH)
        x = norm(stacked, "ln_pre") @ self.projector["linear_1.weight"].T
        if self.projector_act == "swiglu":
            value, gate = x[:, : INNER // 2], x[:, INNER // 2 :]
            x = value * gate * gate.sigmoid()
        else:
            x = x.relu()
        return norm(norm(x, "ln_mid") @ self.projector["linear_2.weight"].T, "ln_post")

    @torch.inference_mode()
    def expected(self, conversation, num_tokens):
        """Return the length of the prompt and the greedy answer. `conversation`: the parts of each user message."""
        rows, num_rows = [], 0
        for piece in self._pieces(conversation):
            if isinstance(piece, str):
                ids = torch.tensor(self.tokenizer(piece, add_special_tokens=False)["input_ids"], dtype=torch.int64)
                rows.append(self.text.get_input_embeddings()(ids))
            else:
                rows.append(self.vectors(piece))
            num_rows += len(rows[-1])
        made = self.text.generate(
            inputs_embeds=torch.cat(rows)[None],
            attention_mask=torch.ones(1, num_rows, dtype=torch.int64),
            max_new_tokens=num_tokens,
            eos_token_id=NO_END,
            do_sample=False,
        )
        return num_rows, made[0].tolist()

    def _pieces(self, conversation):
        """Yield texts and sounds of the prompt."""
        messages = [
            {"role": "user", "content": "".join(part if isinstance(part, str) else AUDIO_TOKEN for part in parts)}
            for parts in conversation
        ]
        text = self.tokenizer.apply_chat_template(
            messages, chat_template=CHATML, add_generation_prompt=True, tokenize=False
        )
        sounds = [part for parts in conversation for part in parts if not isinstance(part, str)]
        first, *others = text.split(AUDIO_TOKEN)
        yield first
        for sound, other in zip(sounds, others, strict=True):
            yield sound
            yield other


def write_ultravox(
    folder: Path, *, special=(AUDIO_TOKEN,), has_middle_norm=True, act="swiglu", holds=("text", "audio"), **fields
) -> Ultravox:
    """Write a random float32 model in `folder`, and parts that it does not hold beside it; return it.

    `special`: tokens behind those of the tokenizer, of which the text model has rows. `fields`: of config.json.
    """
    torch.manual_seed(5)
    folder.mkdir(parents=True, exist_ok=True)
    backend = tiny_tokenizer().backend
    backend.add_special_tokens(list(special))
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    (folder / "chat_template.jinja").write_text(CHATML)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    text = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCAB_SIZE + 1,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=2048,
            tie_word_embeddings=False,
        )
    )
    whisper = transformers.WhisperModel(
        transformers.WhisperConfig(
            vocab_size=64,
            num_mel_bins=BANDS,
            d_model=WIDTH,
            encoder_layers=2,
            decoder_layers=1,
            encoder_attention_heads=HEADS,
            decoder_attention_heads=HEADS,
            encoder_ffn_dim=32,
            decoder_ffn_dim=32,
            max_source_positions=WINDOW_FRAMES // 2,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        )
    )
    middle = INNER // 2 if act == "swiglu" else INNER
    projector = {
        "ln_pre.weight": torch.zeros(STACK * WIDTH),
        "linear_1.weight": torch.zeros(INNER, STACK * WIDTH),
        "linear_2.weight": torch.zeros(32, middle),
        **({"ln_mid.weight": torch.zeros(middle)} if has_middle_norm else {"ln_post.weight": torch.zeros(32)}),
    }
    with torch.no_grad():
        for one in (*text.parameters(), *whisper.parameters(), *projector.values()):
            one.copy_(torch.randn_like(one) * 0.3 + (one.dim() == 1))
    text, whisper = text.float().eval(), whisper.float().eval()
    encoder = {name: tensor.detach().clone() for name, tensor in whisper.encoder.state_dict().items()}
    tensors = {f"multi_modal_projector.{name}": tensor for name, tensor in projector.items()}
    config = {
        "architectures": ["UltravoxModel"],
        "model_type": "ultravox",
        "auto_map": {"AutoModel": "ultravox_model.UltravoxModel"},
        "hidden_size": INNER,
        "stack_factor": STACK,
        "projector_act": act,
        "projector_ln_mid": has_middle_norm,
        "vocab_size": text.config.vocab_size,
        "ignore_index": -100,
    }
    if "text" in holds:
        tensors |= {f"language_model.{name}": tensor.detach().clone() for name, tensor in text.state_dict().items()}
        config["text_config"] = text.config.to_dict()
    else:
        config["text_model_id"] = TEXT_ID
        text.save_pretrained(folder.parent / "Tiny-Llama")
    if "audio" in holds:
        tensors |= {f"audio_tower.{name}": tensor for name, tensor in encoder.items()}
        config["audio_config"] = whisper.config.to_dict()
    else:
        config["audio_model_id"] = AUDIO_ID
        speech = transformers.WhisperForConditionalGeneration(whisper.config)
        speech.model.load_state_dict(whisper.state_dict())
        speech.save_pretrained(folder.parent / "whisper-tiny")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config | fields))
    return Ultravox(text, encoder, projector, act, tokenizer)
