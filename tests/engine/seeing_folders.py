"""Small random models that see, with real processors, as folders of Hugging Face; transformers is the oracle."""

from __future__ import annotations

import base64
import io
import json
import random
from pathlib import Path

import torch
import transformers
from PIL import Image
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

from engine.media.phi_images import PhiImages
from tests.engine.lora import adapter_of, merged, write_adapter
from tests.engine.tiny_tokenizer import VOCAB_SIZE, tiny_tokenizer

SPECIAL = [
    "<image>",
    "<fake_token_around_image>",
    "<global-img>",
    *(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)),
    "<end_of_utterance>",
    "[IMG]",
    "[IMG_BREAK]",
    "[IMG_END]",
    "<IMG_CONTEXT>",
    "<img>",
    "</img>",
    "<video>",
    "<start_of_image>",
    "<image_soft_token>",
    "<end_of_image>",
    "<pad>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
IDS = {text: VOCAB_SIZE + number for number, text in enumerate(SPECIAL)}
TEXT = {
    "vocab_size": VOCAB_SIZE + len(SPECIAL),
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
    "pad_token_id": IDS["<pad>"],
}
QWEN_TEXT = {**TEXT, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}}
QWEN_PATCHES = {"patch_size": 8, "spatial_merge_size": 2, "temporal_patch_size": 2}
QWEN_IDS = {
    "image_token_id": IDS["<|image_pad|>"],
    "video_token_id": IDS["<|video_pad|>"],
    "vision_start_token_id": IDS["<|vision_start|>"],
    "vision_end_token_id": IDS["<|vision_end|>"],
    "tie_word_embeddings": False,
}
VISION = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% if message.content is string %}"
    "{{ message.content }}{% else %}{% for part in message.content %}{% if part.type == 'image' %}PLACE"
    "{% elif part.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>{% else %}"
    "{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def seeing_tokenizer(folder: Path, **names: str) -> PreTrainedTokenizerFast:
    """Return the tiny tokenizer with the special tokens. `names`: those that a processor looks up by an attribute."""
    backend = tiny_tokenizer().backend
    backend.add_special_tokens(SPECIAL)
    backend.save(str(folder / "tokenizer.json"))
    return PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        eos_token="<|im_end|>",
        pad_token="<pad>",
        extra_special_tokens=names,
    )


def _gemma3(folder: Path):
    config = transformers.Gemma3Config(
        vision_config=transformers.SiglipVisionConfig(**VISION, image_size=32, patch_size=4, vision_use_head=False),
        text_config=transformers.Gemma3TextConfig(
            **{**TEXT, "num_hidden_layers": 3, "tie_word_embeddings": True},
            head_dim=8,
            query_pre_attn_scalar=8,
            sliding_window=20,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
        mm_tokens_per_image=16,
        image_token_index=IDS["<image_soft_token>"],
        boi_token_index=IDS["<start_of_image>"],
        eoi_token_index=IDS["<end_of_image>"],
    )
    tokenizer = seeing_tokenizer(
        folder, image_token="<image_soft_token>", boi_token="<start_of_image>", eoi_token="<end_of_image>"
    )
    images = transformers.Gemma3ImageProcessor(size={"height": 32, "width": 32})
    processor = transformers.Gemma3Processor(images, tokenizer, image_seq_length=16)
    return transformers.Gemma3ForConditionalGeneration(config), processor


def _llava(folder: Path):
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**VISION, image_size=28, patch_size=7, projection_dim=16),
        text_config=transformers.LlamaConfig(**TEXT),
        image_token_index=IDS["<image>"],
    )
    images = transformers.CLIPImageProcessor(
        size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}, do_center_crop=True
    )
    processor = transformers.LlavaProcessor(
        images,
        seeing_tokenizer(folder),
        patch_size=7,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )
    return transformers.LlavaForConditionalGeneration(config), processor


def _idefics3(folder: Path):
    config = transformers.Idefics3Config(
        vision_config={**VISION, "image_size": 32, "patch_size": 8},
        text_config=transformers.LlamaConfig(**TEXT),
        image_token_id=IDS["<image>"],
        pad_token_id=IDS["<pad>"],
        scale_factor=2,
        tie_word_embeddings=False,
    )
    images = transformers.Idefics3ImageProcessor(size={"longest_edge": 96}, max_image_size={"longest_edge": 32})
    return (
        transformers.Idefics3ForConditionalGeneration(config),
        transformers.Idefics3Processor(images, seeing_tokenizer(folder), image_seq_len=4),
    )


class SpelledProcessor:
    """Stands in for a processor of transformers that needs torchvision: writes the text of images by a rule."""

    def __init__(self, images, tokenizer, image_token, text_of):
        self.image_processor = images
        self.tokenizer = tokenizer
        self.image_token = image_token
        self.chat_template = ""
        self._text_of = text_of

    def apply_chat_template(self, messages, add_generation_prompt):
        self.tokenizer.chat_template = self.chat_template
        return self.tokenizer.apply_chat_template(messages, add_generation_prompt=add_generation_prompt, tokenize=False)

    def __call__(self, text, images, **options):
        made, (text,) = {}, text
        if images:
            own = {name: options[name] for name in ("size", "dynamic_hd") if name in options}
            made = [self.image_processor(images=[image], return_tensors="pt", **own) for image in images]
            first, *others = text.split(self.image_token)
            text = first + "".join(self._text_of(one) + other for one, other in zip(made, others, strict=True))
            made = self._joined(made)
        return {**self.tokenizer(text, return_tensors="pt", add_special_tokens=False), **made}

    def _joined(self, made):
        pixels = [one["pixel_values"] for one in made]
        height, width = (max(part.shape[place] for part in pixels) for place in (2, 3))
        padded = [functional.pad(part, (0, width - part.shape[3], 0, height - part.shape[2])) for part in pixels]
        sizes = [one["image_sizes"] for one in made if "image_sizes" in one]
        return {"pixel_values": torch.cat(padded), **({"image_sizes": torch.cat(sizes)} if sizes else {})}

    def save_pretrained(self, folder):
        self.tokenizer.save_pretrained(folder)
        self.image_processor.save_pretrained(folder)
        (folder / "chat_template.jinja").write_text(self.chat_template)


class QwenProcessor(SpelledProcessor):
    """Says which tokens are of images, as processors of Qwen-VL do: positions come of it."""

    def __call__(self, text, images, **options):
        made = super().__call__(text, images, **options)
        ids = made["input_ids"]
        kinds = (ids == IDS["<|image_pad|>"]).int() + 2 * (ids == IDS["<|video_pad|>"]).int()
        return {**made, "mm_token_type_ids": kinds}

    def save_pretrained(self, folder):
        super().save_pretrained(folder)
        size = {"shortest_edge": 256, "longest_edge": 8 * 96 * 96}
        (folder / "video_preprocessor_config.json").write_text(json.dumps({"size": size, "fps": 2}))

    def _joined(self, made):
        return {name: torch.cat([one[name] for one in made]) for name in made[0]}


def _smolvlm(folder: Path):
    config = transformers.SmolVLMConfig(
        vision_config={**VISION, "image_size": 32, "patch_size": 8},
        text_config=transformers.LlamaConfig(**TEXT),
        image_token_id=IDS["<image>"],
        pad_token_id=IDS["<pad>"],
        scale_factor=2,
        tie_word_embeddings=False,
    )
    images = transformers.SmolVLMImageProcessor(size={"longest_edge": 96}, max_image_size={"longest_edge": 32})
    processor = transformers.Idefics3Processor(images, seeing_tokenizer(folder), image_seq_len=4)
    return transformers.SmolVLMForConditionalGeneration(config), processor


def _mistral3(folder: Path):
    config = transformers.Mistral3Config(
        vision_config=transformers.PixtralVisionConfig(**VISION, image_size=64, patch_size=8, head_dim=8),
        text_config=transformers.MistralConfig(**TEXT, head_dim=8),
        image_token_index=IDS["[IMG]"],
        spatial_merge_size=2,
        vision_feature_layer=-1,
    )
    images = transformers.PixtralImageProcessor(size={"longest_edge": 64}, patch_size={"height": 16, "width": 16})

    def text_of(made):
        (height, width), text = made["image_sizes"][0].tolist(), ""
        for _ in range(height // 16):
            text += "[IMG]" * (width // 16) + "[IMG_BREAK]"
        return text.removesuffix("[IMG_BREAK]") + "[IMG_END]"

    processor = SpelledProcessor(images, seeing_tokenizer(folder), "[IMG]", text_of)
    return transformers.Mistral3ForConditionalGeneration(config), processor


def _pixtral(folder: Path):
    config = transformers.LlavaConfig(
        vision_config=transformers.PixtralVisionConfig(**VISION, image_size=64, patch_size=8, head_dim=8),
        text_config=transformers.MistralConfig(**TEXT, head_dim=8),
        image_token_index=IDS["[IMG]"],
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
    )
    images = transformers.PixtralImageProcessor(size={"longest_edge": 64}, patch_size={"height": 8, "width": 8})

    def text_of(made):
        (height, width), text = made["image_sizes"][0].tolist(), ""
        for _ in range(height // 8):
            text += "[IMG]" * (width // 8) + "[IMG_BREAK]"
        return text.removesuffix("[IMG_BREAK]") + "[IMG_END]"

    processor = SpelledProcessor(images, seeing_tokenizer(folder), "[IMG]", text_of)
    return transformers.LlavaForConditionalGeneration(config), processor


GRID = [[28, 56], [56, 28], [56, 56], [28, 84]]


def _llava_next(folder: Path):
    config = transformers.LlavaNextConfig(
        vision_config=transformers.CLIPVisionConfig(**VISION, image_size=28, patch_size=7, projection_dim=16),
        text_config=transformers.MistralConfig(**TEXT, head_dim=8),
        image_token_index=IDS["<image>"],
        image_grid_pinpoints=GRID,
    )
    images = transformers.LlavaNextImageProcessor(
        size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}, image_grid_pinpoints=GRID
    )
    processor = transformers.LlavaNextProcessor(
        images,
        seeing_tokenizer(folder),
        patch_size=7,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )
    return transformers.LlavaNextForConditionalGeneration(config), processor


class OnevisionProcessor:
    """Stands in for LlavaOnevisionProcessor, which cannot be built without torchvision: its own method writes text."""

    def __init__(self, images, tokenizer, num_image_tokens):
        self.image_processor = images
        self.tokenizer = tokenizer
        self.image_token = "<image>"
        self.num_image_tokens = num_image_tokens
        self.chat_template = ""

    apply_chat_template = SpelledProcessor.apply_chat_template
    save_pretrained = SpelledProcessor.save_pretrained

    def __call__(self, text, images, **options):
        made, (text,) = {}, text
        if images:
            made = self.image_processor(images=[images], return_tensors="pt")
            writer = transformers.LlavaOnevisionProcessor.__new__(transformers.LlavaOnevisionProcessor)
            writer.image_processor = self.image_processor
            writer.image_token = self.image_token
            writer.num_image_tokens = self.num_image_tokens
            writer.vision_feature_select_strategy = "full"
            writer.vision_aspect_ratio = "anyres_max_2"
            first, *others = text.split(self.image_token)
            texts = [writer.replace_image_token(made, number) for number in range(len(images))]
            text = first + "".join(one + other for one, other in zip(texts, others, strict=True))
        return {**self.tokenizer(text, return_tensors="pt", add_special_tokens=False), **made}


def _llava_onevision(folder: Path):
    config = transformers.LlavaOnevisionConfig(
        vision_config=transformers.SiglipVisionConfig(**VISION, image_size=28, patch_size=7, vision_use_head=False),
        text_config=transformers.Qwen2Config(**TEXT),
        image_token_index=IDS["<image>"],
        video_token_index=IDS["<video>"],
        image_grid_pinpoints=GRID,
        vision_aspect_ratio="anyres_max_2",
    )
    images = transformers.LlavaOnevisionImageProcessor(size={"height": 28, "width": 28}, image_grid_pinpoints=GRID)
    processor = OnevisionProcessor(images, seeing_tokenizer(folder), num_image_tokens=16)
    return transformers.LlavaOnevisionForConditionalGeneration(config), processor


def _internvl(folder: Path):
    config = transformers.InternVLConfig(
        vision_config=transformers.InternVLVisionConfig(**VISION, image_size=[32, 32], patch_size=[8, 8]),
        text_config=transformers.Qwen2Config(**TEXT),
        image_token_id=IDS["<IMG_CONTEXT>"],
        image_seq_length=4,
        downsample_ratio=0.5,
    )
    images = transformers.GotOcr2ImageProcessor(
        size={"height": 32, "width": 32}, crop_to_patches=True, min_patches=1, max_patches=4
    )

    def text_of(made):
        return "<img>" + len(made["pixel_values"]) * 4 * "<IMG_CONTEXT>" + "</img>"

    processor = SpelledProcessor(images, seeing_tokenizer(folder), "<IMG_CONTEXT>", text_of)
    return transformers.InternVLForConditionalGeneration(config), processor


class PhiProcessor(SpelledProcessor):
    """Stands in for Phi4MultimodalProcessor, which needs torchvision. tests/engine/media/test_phi_images.py compares
    images with those of it.
    """

    def _joined(self, made):
        most = max(one["image_pixel_values"].shape[1] for one in made)

        def filled(name, value):
            missing = (most - one[name].shape[1] for one in made)
            parts = [
                torch.cat([one[name], torch.full((1, count, *one[name].shape[2:]), value)], 1)
                for one, count in zip(made, missing, strict=True)
            ]
            return torch.cat(parts)

        return {
            "image_pixel_values": filled("image_pixel_values", 0.0),
            "image_attention_mask": filled("image_attention_mask", True),
            "image_sizes": torch.cat([one["image_sizes"] for one in made]),
        }

    def save_pretrained(self, folder):
        self.tokenizer.save_pretrained(folder)
        (folder / "preprocessor_config.json").write_text(json.dumps({"dynamic_hd": PHI_SQUARES}))
        (folder / "chat_template.jinja").write_text(self.chat_template)


class SwitchedModel:
    """A model that has its adapter for prompts with images, as its makers switch it on and off."""

    def __init__(self, model, adapted):
        self.model, self.adapted = model, adapted

    def generate(self, **inputs):
        return (self.adapted if "image_pixel_values" in inputs else self.model).generate(**inputs)


PHI_SQUARES = 6
PHI_MODULES = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")


def _phi4_multimodal(folder: Path):
    sound = {"intermediate_size": 32, "num_blocks": 1, "num_attention_heads": 2, "input_size": 16, "hidden_size": 16}
    channels = ("ext_pw_out_channel", "depthwise_separable_out_channel", "nemo_conv_channels")
    config = transformers.Phi4MultimodalConfig(
        **TEXT,
        bos_token_id=0,
        eos_token_id=1,
        original_max_position_embeddings=TEXT["max_position_embeddings"],
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.75,
            "short_factor": [1.0, 1.5, 2.0],
            "long_factor": [2.0, 3.0, 4.0],
        },
        vision_config={**VISION, "image_size": 28, "patch_size": 7, "crop_size": 28, "image_token_id": IDS["<image>"]},
        audio_config={**sound, **dict.fromkeys(channels, 16), "audio_token_id": IDS["<video>"]},
    )
    maker = PhiImages("<image>", side=28, patch=7, most_squares=PHI_SQUARES)

    def make(images, return_tensors, **options):
        return maker.prepare(images[0], 1, options)[1]

    def text_of(made):
        return "<image>" * int(made["num_vectors"])

    processor = PhiProcessor(make, seeing_tokenizer(folder), "<image>", text_of)
    # NOTE: with torch's attention the tower of transformers 5.23 sees forwards alone where no patch is masked.
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager"), processor


def _qwen2_vl(folder: Path):
    vision = {"embed_dim": 16, "hidden_size": 32, "depth": 2, "num_heads": 2, "mlp_ratio": 2, **QWEN_PATCHES}
    config = transformers.Qwen2VLConfig(vision_config=vision, text_config=QWEN_TEXT, **QWEN_IDS)
    return transformers.Qwen2VLForConditionalGeneration(config), _qwen_processor(folder)


def _qwen2_5_vl(folder: Path):
    vision = {"hidden_size": 16, "out_hidden_size": 32, "depth": 2, "num_heads": 2, "intermediate_size": 32}
    blocks = {"window_size": 32, "fullatt_block_indexes": [1], "tokens_per_second": 2}
    config = transformers.Qwen2_5_VLConfig(
        vision_config={**vision, **blocks, **QWEN_PATCHES}, text_config=QWEN_TEXT, **QWEN_IDS
    )
    return transformers.Qwen2_5_VLForConditionalGeneration(config), _qwen_processor(folder)


def _qwen3_vl(folder: Path):
    vision = {"hidden_size": 16, "out_hidden_size": 32, "depth": 3, "num_heads": 2, "intermediate_size": 32}
    vision |= {"deepstack_visual_indexes": [0, 1], "num_position_embeddings": 16}
    text = {**QWEN_TEXT, "num_hidden_layers": 3, "head_dim": 16}
    text["rope_parameters"] = {**QWEN_TEXT["rope_parameters"], "mrope_section": [4, 2, 2]}
    config = transformers.Qwen3VLConfig(vision_config={**vision, **QWEN_PATCHES}, text_config=text, **QWEN_IDS)
    return transformers.Qwen3VLForConditionalGeneration(config), _qwen_processor(folder)


def _qwen_processor(folder: Path) -> SpelledProcessor:
    images = transformers.Qwen2VLImageProcessor(
        size={"shortest_edge": 24 * 24, "longest_edge": 96 * 96}, patch_size=8, temporal_patch_size=2, merge_size=2
    )

    def text_of(made):
        return "<|image_pad|>" * (int(made["image_grid_thw"].prod()) // 4)

    return QwenProcessor(images, seeing_tokenizer(folder), "<|image_pad|>", text_of)


FAMILIES = {
    "gemma3": _gemma3,
    "idefics3": _idefics3,
    "internvl": _internvl,
    "llava": _llava,
    "llava_next": _llava_next,
    "llava_onevision": _llava_onevision,
    "mistral3": _mistral3,
    "phi4_multimodal": _phi4_multimodal,
    "pixtral": _pixtral,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen2_vl": _qwen2_vl,
    "qwen3_vl": _qwen3_vl,
    "smolvlm": _smolvlm,
}


def write_seeing(folder: Path, family: str, spread: float = 0.3):
    """Write a random float32 model of a family with its processor, and its adapter if it sees by one; return both."""
    torch.manual_seed(5)
    model, processor = FAMILIES[family](folder)
    model = model.float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * spread + (parameter.dim() == 1))
    around = ("<|vision_start|>", "<|vision_end|>") if isinstance(processor, QwenProcessor) else ("", "")
    processor.chat_template = TEMPLATE.replace("PLACE", processor.image_token.join(around))
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    if isinstance(processor, PhiProcessor):
        config, tensors = adapter_of(model, seed=6, modules=PHI_MODULES)
        tensors = {name: tensor for name, tensor in tensors.items() if "model.layers." in name}
        write_adapter(folder / "vision-lora", config, tensors)
        model = SwitchedModel(model, merged(model, config, tensors))
    return model, processor


def image_of(width: int, height: int, seed: int = 0) -> Image.Image:
    """Return a picture of coloured rectangles."""
    choose = random.Random(seed)
    image = Image.new("RGB", (width, height), tuple(choose.randrange(256) for _ in range(3)))
    for _ in range(12):
        left, top = choose.randrange(width), choose.randrange(height)
        colour = tuple(choose.randrange(256) for _ in range(3))
        image.paste(colour, (left, top, min(width, left + width // 3 + 1), min(height, top + height // 3 + 1)))
    return image


def encoded(image: Image.Image, kind: str = "PNG") -> str:
    """Return an image file in base64."""
    file = io.BytesIO()
    image.save(file, kind)
    return base64.b64encode(file.getvalue()).decode()
