"""What a model is for, as its files say: to chat, to make vectors of texts, to rank documents, to write down speech.

No torch. A folder of sentence-transformers lists its modules in modules.json (https://sbert.net): the model, a pooling,
dense layers, a normalisation. Read by the worker, which prepares prompts, and by the core, which computes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.api.errors import ModelLoadError
from engine.api.model import ModelKind
from engine.gguf_file import GgufFile
from engine.gguf_pair import find_projector, text_file
from engine.tokenizers.folder_files import read_object, read_objects, read_text
from engine.ultravox_folder import ULTRAVOX, described, is_ultravox

SCORER = "ForSequenceClassification"
ENCODERS = ("Bert", "Roberta", "XLMRoberta", "Camembert", "MPNet", "NomicBert", "ModernBert")
"""How the names of architectures begin that see a whole text in both directions."""
GGUF_ENCODERS = ("bert", "nomic-bert")
"""`general.architecture` of encoders."""
GGUF_POOLINGS, RANK = {1: "mean", 2: "cls", 3: "last"}, 4
"""Values of `pooling_type` in GGUF files, and that of rerankers."""
RANKERS = ("Qwen3ForCausalLM",)
"""Causal models that may be rerankers by a prompt that ends in yes or no."""
POOLINGS = {"cls": "cls", "mean": "mean", "lasttoken": "last"}
"""How modules call the poolings that are served, and our names."""
OLD_POOLING = "pooling_mode_"
OLD_NAMES = {"cls_token": "cls", "mean_tokens": "mean"}
DENSE_ACTIVATIONS = {"Identity": "identity", "Tanh": "tanh", "ReLU": "relu", "GELU": "gelu", "SiLU": "silu"}
IDENTITY = "Identity"
SEEING = (
    "Gemma3ForConditionalGeneration",
    "Idefics3ForConditionalGeneration",
    "InternVLForConditionalGeneration",
    "LlavaForConditionalGeneration",
    "LlavaNextForConditionalGeneration",
    "LlavaOnevisionForConditionalGeneration",
    "Mistral3ForConditionalGeneration",
    "Phi4MMForCausalLM",
    "Phi4MultimodalForCausalLM",
    "Qwen2VLForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen3VLForConditionalGeneration",
    "SmolVLMForConditionalGeneration",
)
"""Architectures whose images are served: a tower, a projector, and a text model that sees their vectors as tokens."""
WATCHING = tuple(name for name in SEEING if name.startswith("Qwen"))
"""Those whose videos are served too."""
HEARING = ("Qwen2AudioForConditionalGeneration", ULTRAVOX, "VoxtralForConditionalGeneration")
"""Architectures whose sounds are served: an encoder, a projector, and a text model that takes vectors as tokens."""
TEXT_MODELS = {
    "gemma3_text": "Gemma3ForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "phi4_multimodal": "Phi3ForCausalLM",
    "phi4mm": "Phi4MMForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_5_vl": "Qwen2ForCausalLM",
    "qwen2_5_vl_text": "Qwen2ForCausalLM",
    "qwen2_vl": "Qwen2ForCausalLM",
    "qwen2_vl_text": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_vl_text": "Qwen3ForCausalLM",
}
"""`model_type` of the text model in one that sees or hears -> its architecture, which layers of ours compute."""
IMAGE_ADAPTERS = {"Phi4MMForCausalLM": "vision-lora", "Phi4MultimodalForCausalLM": "vision-lora"}
"""Architectures whose text model sees images by an adapter -> its place in the folder."""
WHISPER, MOONSHINE = "WhisperForConditionalGeneration", "MoonshineForConditionalGeneration"
"""Architectures that write down speech."""
WHISPER_RATE, MOONSHINE_RATE = 50.0, 16_000 / 384
"""States of their encoders for a second of sound, which count as tokens."""
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
RANKING_TAG = "text-ranking"
CARD_CHARS = 1 << 16
MOST_TOKENS = 1 << 20
"""More than any text may have: tokenizers without a limit of their own name a huge number."""


@dataclass(frozen=True, slots=True)
class DenseModule:
    """A layer behind the pooling. `folder` holds its weights."""

    folder: Path
    size_in: int
    size_out: int
    has_bias: bool
    activation: str


@dataclass(frozen=True, slots=True)
class SpeechPurpose:
    """What a model that writes down speech can do."""

    family: str
    """The architecture."""
    tokens_per_second: float
    languages: tuple[str, ...]
    """Codes; the first counts where there is one alone."""
    hears_language: bool = False
    """It says which one is spoken."""
    translates: bool = False
    """Into English."""
    takes_prompt: bool = False
    has_word_times: bool = False


@dataclass(frozen=True, slots=True)
class ModelPurpose:
    """What a model is for, and how its states become vectors or scores."""

    kind: ModelKind = ModelKind.CHAT
    is_encoder: bool = False
    """It sees whole texts, in both directions, and generates nothing."""
    pooling: str = "mean"
    """ "mean", "cls" or "last"."""
    dense: tuple[DenseModule, ...] = ()
    normalizes: bool = True
    """Vectors get length 1."""
    max_tokens: int = 0
    """The longest text; 0: as long as the model's positions."""
    lowers: bool = False
    """Texts are put into small letters first."""
    has_raw_scores: bool = False
    """Scores are not made numbers from 0 to 1."""
    score_ids: tuple[int, int] | None = None
    """Of a causal reranker the tokens for no and yes, if its files name them."""
    takes_images: bool = False
    takes_videos: bool = False
    takes_sounds: bool = False
    is_ultravox: bool = False
    """Its encoder of sound is that of Ultravox."""
    image_adapter: Path | None = None
    """The adapter of requests with images; None if the model sees without one."""
    speech: SpeechPurpose | None = None

    @property
    def modalities(self) -> list[str]:
        """What messages may have beside text: "image", "video", "audio"."""
        marks = {"image": self.takes_images, "video": self.takes_videos, "audio": self.takes_sounds}
        return [name for name, is_taken in marks.items() if is_taken]


def read_purpose(path: Path, projector: str = "") -> ModelPurpose:
    """Read what a GGUF file or a folder is for. `projector`: the choice of `EngineConfig`.

    Raises ModelLoadError for modules and projectors that are not served.
    """
    path = text_file(path)
    if not path.is_dir():
        purpose = _gguf_purpose(GgufFile.read_metadata(path, before="tokenizer."))  # which is long, and comes last
        found = find_projector(path, projector) if purpose.kind is ModelKind.CHAT else None
        if found is None:
            return purpose
        return replace(purpose, takes_images=True, takes_videos=found.kind.takes_videos)
    config = described(path, read_object(path / "config.json"))
    architectures = config.get("architectures")
    name = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    if name in (WHISPER, MOONSHINE):
        return _transcriber(path, name)
    modules = list(_modules(path))
    if is_encoder_name(name):
        if name.endswith(SCORER):
            return _scorer(path, config, name)
        return _embedder(path, modules, is_encoder=True)
    if any(kind == "LogitScore" for kind, _ in modules) or (name in RANKERS and _says_ranker(path, config)):
        return _causal_ranker(path, name, modules)
    if any(kind == "Pooling" for kind, _ in modules):
        if config.get("is_causal") is False or config.get("use_bidirectional_attention"):
            raise ModelLoadError(
                f"{path / 'config.json'}: {name[:80]} that sees texts in both directions is not served"
            )
        return _embedder(path, modules, is_encoder=False)
    takes = name in (*SEEING, *HEARING) and _takes_media(path, config)
    adapter = path / IMAGE_ADAPTERS[name] if name in IMAGE_ADAPTERS else None
    if adapter is not None and not adapter.is_dir():
        return ModelPurpose()
    return ModelPurpose(
        takes_images=takes and name in SEEING,
        takes_videos=takes and name in WATCHING,
        takes_sounds=takes and name in HEARING,
        is_ultravox=name == ULTRAVOX,
        image_adapter=adapter if takes else None,
    )


def _transcriber(path: Path, name: str) -> ModelPurpose:
    """Read what a model that writes down speech knows. Raises ModelLoadError without generation_config.json."""
    if name == MOONSHINE:
        return ModelPurpose(ModelKind.TRANSCRIBER, speech=SpeechPurpose(name, MOONSHINE_RATE, ("en",)))
    file = path / "generation_config.json"
    known = read_object(file)
    if type(known.get("no_timestamps_token_id")) is not int:
        raise ModelLoadError(f"{file}: no_timestamps_token_id is missing; take the file of the model's makers")
    listed, tasks = known.get("lang_to_id"), known.get("task_to_id")
    languages = tuple(str(token).strip("<|>") for token in listed) if isinstance(listed, dict) else ()
    if languages and not (isinstance(tasks, dict) and "transcribe" in tasks):
        raise ModelLoadError(f"{file}: task_to_id is missing beside lang_to_id; take the file of the model's makers")
    speech = SpeechPurpose(
        name,
        WHISPER_RATE,
        languages or ("en",),
        hears_language=bool(languages),
        translates=isinstance(tasks, dict) and "translate" in tasks,
        takes_prompt=True,
        has_word_times=bool(known.get("alignment_heads")),
    )
    return ModelPurpose(ModelKind.TRANSCRIBER, speech=speech)


def _takes_media(path: Path, config: Mapping[str, Any]) -> bool:
    """Return True for a folder whose text model has layers of ours, and that says how media become inputs.

    Of Ultravox the encoder says it. Raises ModelLoadError for one with another text model: nothing else reads it.
    """
    text = config.get("text_config")
    kind = str(text.get("model_type", "llama") if isinstance(text, Mapping) else config.get("model_type"))
    if is_ultravox(config):
        if kind not in TEXT_MODELS:
            raise ModelLoadError(
                f"{path}: Ultravox is not served with the text model {kind[:80]!r}; {', '.join(TEXT_MODELS)} are"
            )
        return True
    return kind in TEXT_MODELS and any((path / name).is_file() for name in PROCESSOR_FILES)


def _gguf_purpose(metadata: Mapping[str, Any]) -> ModelPurpose:
    """Read what a GGUF file is for: converters name a pooling where the model has one (gguf.PoolingType)."""
    architecture = metadata.get("general.architecture")
    pooling = metadata.get(f"{architecture}.pooling_type", 0)
    is_encoder = architecture in GGUF_ENCODERS
    if is_encoder and pooling == RANK:
        return ModelPurpose(ModelKind.RERANKER, is_encoder=True)
    if is_encoder or pooling in GGUF_POOLINGS:
        chosen = GGUF_POOLINGS.get(pooling, "mean")
        return ModelPurpose(ModelKind.EMBEDDING, is_encoder=is_encoder, pooling=chosen)
    return ModelPurpose()


def is_encoder_name(architecture: str) -> bool:
    """Return True for the name of an architecture that is an encoder."""
    return any(architecture.startswith((f"{name}Model", f"{name}For")) for name in ENCODERS)


def _modules(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the modules of a folder, by the last word of their type, with their folders. Raises ModelLoadError."""
    for module in read_objects(path / "modules.json"):
        place = str(module.get("path", ""))
        if Path(place).is_absolute() or ".." in Path(place).parts:
            raise ModelLoadError(f"{path / 'modules.json'}: {place[:80]!r} is no folder of the model")
        yield str(module.get("type", "")).rpartition(".")[2], path / place


def _embedder(path: Path, modules: list[tuple[str, Path]], *, is_encoder: bool) -> ModelPurpose:
    """Read the chain behind the model. Without modules.json the states' mean gets length 1."""
    sentences = read_object(path / "sentence_bert_config.json")
    values: dict[str, Any] = {}
    dense: list[DenseModule] = []
    if modules:
        values["normalizes"] = False
    for place, (kind, folder) in enumerate(modules):
        if kind == "Pooling":
            values["pooling"] = _pooling(folder / "config.json")
        elif kind == "Dense":
            dense.append(_dense(folder))
        elif kind == "Normalize" and place == len(modules) - 1:
            values["normalizes"] = True
        elif kind not in ("Transformer", "Dropout"):
            raise ModelLoadError(
                f"{path / 'modules.json'}: the module {kind[:80]!r} at place {place} is not served; a Transformer, a "
                "Pooling, Dense layers and a last Normalize are"
            )
    if dense and not is_encoder:
        raise ModelLoadError(f"{path / 'modules.json'}: Dense layers are served behind encoders only")
    return ModelPurpose(
        kind=ModelKind.EMBEDDING,
        is_encoder=is_encoder,
        dense=tuple(dense),
        max_tokens=_longest(path, sentences),
        lowers=sentences.get("do_lower_case") is True,
        **values,
    )


def _pooling(file: Path) -> str:
    """Read the one pooling of a module, in the spelling of any version. Raises ModelLoadError."""
    config = read_object(file)
    chosen = config.get("pooling_mode")
    if chosen is None:
        named = [name.removeprefix(OLD_POOLING) for name, value in config.items() if value is True]
        chosen = [OLD_NAMES.get(name, name) for name in named if f"{OLD_POOLING}{name}" in config]
    listed = [chosen] if isinstance(chosen, str) else chosen
    if not isinstance(listed, list) or len(listed) != 1 or listed[0] not in POOLINGS:
        raise ModelLoadError(f"{file}: the pooling must be one of {', '.join(POOLINGS)}, got {str(chosen)[:80]!r}")
    return POOLINGS[listed[0]]


def _dense(folder: Path) -> DenseModule:
    config, source = read_object(folder / "config.json"), folder / "config.json"
    size_in, size_out = _count(config.get("in_features")), _count(config.get("out_features"))
    activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
    if not size_in or not size_out:
        raise ModelLoadError(f"{source}: in_features and out_features must be positive integers")
    if activation not in DENSE_ACTIVATIONS:
        known = ", ".join(DENSE_ACTIVATIONS)
        raise ModelLoadError(f"{source}: activation_function must be one of {known}, got {activation[:80]!r}")
    for name in ("module_input_name", "module_output_name"):
        if config.get(name, "sentence_embedding") not in (None, "sentence_embedding"):
            raise ModelLoadError(f"{source}: {name} must be sentence_embedding, got {str(config[name])[:80]!r}")
    if config.get("use_residual"):
        raise ModelLoadError(f"{source}: use_residual is not served")
    return DenseModule(folder, size_in, size_out, config.get("bias", True) is True, DENSE_ACTIVATIONS[activation])


def _scorer(path: Path, config: Mapping[str, Any], name: str) -> ModelPurpose:
    """Read a cross-encoder: a pair of texts has one score. Raises ModelLoadError for a classifier."""
    labels = config.get("id2label")
    num_labels = len(labels) if isinstance(labels, dict) else config.get("num_labels", 2)
    if num_labels != 1:
        raise ModelLoadError(
            f"{path / 'config.json'}: {name} with {num_labels} labels is a classifier; one label, as rerankers have, "
            "is served"
        )
    own = config.get("sentence_transformers")
    places = (read_object(path / "config_sentence_transformers.json"), own if isinstance(own, dict) else {})
    named = [place["activation_fn"] for place in places if place.get("activation_fn")]
    activation = next(iter(named), config.get("sbert_ce_default_activation_function") or "")
    max_tokens = _longest(path, read_object(path / "sentence_bert_config.json"))
    is_raw = str(activation).rpartition(".")[2] == IDENTITY
    return ModelPurpose(ModelKind.RERANKER, is_encoder=True, max_tokens=max_tokens, has_raw_scores=is_raw)


def _causal_ranker(path: Path, name: str, modules: list[tuple[str, Path]]) -> ModelPurpose:
    """Read a causal reranker. Raises ModelLoadError for one whose prompt is not known."""
    if name not in RANKERS:
        known = ", ".join(RANKERS)
        raise ModelLoadError(f"{path}: a reranker of the architecture {name[:80]} is not served; {known} is")
    ids = None
    for kind, folder in modules:
        if kind == "LogitScore":
            config = read_object(folder / "config.json")
            ids = (_token(folder, config, "false_token_id"), _token(folder, config, "true_token_id"))
    return ModelPurpose(ModelKind.RERANKER, score_ids=ids)


def _token(folder: Path, config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if type(value) is not int or value < 0:
        raise ModelLoadError(f"{folder / 'config.json'}: {name} must be a token id, got {str(value)[:80]!r}")
    return value


def _says_ranker(path: Path, config: Mapping[str, Any]) -> bool:
    """Return True if a description, the model card or the folder's name says that a causal model ranks documents."""
    if config.get("classifier_from_token") is not None or config.get("is_original_qwen3_reranker") is True:
        return True
    if "reranker" in path.name.lower():
        return True
    card = path / "README.md"
    text = read_text(card)[:CARD_CHARS] if card.is_file() else ""
    front = text.split("\n---", 1)[0] if text.startswith("---") else ""
    return any(line.replace(" ", "") == f"pipeline_tag:{RANKING_TAG}" for line in front.splitlines())


def _longest(path: Path, sentences: Mapping[str, Any]) -> int:
    """Return the tokens of the longest text: those of the module, else of the tokenizer, as newer versions write it."""
    own = _count(sentences.get("max_seq_length"))
    of_tokenizer = _count(read_object(path / "tokenizer_config.json").get("model_max_length"))
    return own or (of_tokenizer if of_tokenizer <= MOST_TOKENS else 0)


def _count(value: object) -> int:
    return value if type(value) is int and value > 0 else 0
