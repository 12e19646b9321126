"""The tensors of an encoder's files under our names: found in any of a family's spellings, with their shapes checked.

Encoders are computed in floats: GGUF files are dequantised, quantised folders refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Protocol

import torch

from engine.api.errors import ModelLoadError
from engine.api.model import ModelKind
from engine.gguf_file import GgufFile
from engine.gguf_pair import text_file
from engine.loading.checkpoint import GgufTensors
from engine.loading.quantization_config import take_quantization
from engine.loading.safetensors_file import SafetensorsFolder, read_config
from engine.model_kind import ModelPurpose, read_purpose
from engine.models.encoder import ACTIVATE, Affine, Encoder, EncoderLayer, EncoderWeights
from engine.models.encoder_config import EncoderActivation, EncoderConfig, ScoreHead
from engine.models.encoder_heads import Head, ScoringHead, VectorHead
from engine.models.encoder_registry import DescribedEncoder, describe_encoder, describe_gguf_encoder
from engine.models.fields import blamed

TABLES = ("embedding", "positions", "segments", "buckets")
"""Those without a bias."""
INERT = ("rotary_emb.inv_freq", ".position_ids")
"""Ends of the names of tensors that hold computed constants."""


class EncoderTensors(Protocol):
    """The tensors of a GGUF file or a folder, by their own names."""

    @property
    def names(self) -> list[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def tensor(self, name: str) -> torch.Tensor: ...


class OpenedGguf:
    """The tensors of a GGUF file, dequantised when they are read."""

    def __init__(self, file: GgufFile) -> None:
        self._tensors = GgufTensors(file)

    @property
    def names(self) -> list[str]:
        return self._tensors.names

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors.shape(name)

    def tensor(self, name: str) -> torch.Tensor:
        return self._tensors.matrix(name).to_dtype(torch.float32).view(self.shape(name))


class EncoderCheckpoint:
    """The files of an encoder, opened and described, with none of its weights read."""

    format = ""

    def __init__(
        self,
        path: Path,
        described: DescribedEncoder,
        tensors: EncoderTensors,
        files: tuple[Path, ...],
        fields: Mapping[str, object],
    ) -> None:
        """`fields`: the description as the file has it, for errors. Raises ModelLoadError for what is not served, and
        for missing, misshapen and unknown tensors.
        """
        self.purpose: ModelPurpose = read_purpose(path)
        self.path, self.files = path, files
        self.family, self.config, self.score_head = described
        self._fields = fields
        self._folder = tensors
        self._names = set(tensors.names)
        self._prefix = self._find_prefix()
        self._sources: dict[str, tuple[str, ...]] = {}
        self._used: set[str] = set()
        for name, shape in encoder_tensors(self.config):
            self._find(name, shape)
        if self.score_head is not None:
            for name, shape in head_tensors(self.config, self.score_head):
                self._check(name, shape)
        self._refuse_unused()
        self.dense = [SafetensorsFolder.open(module.folder) for module in self.purpose.dense]

    @property
    def max_position(self) -> int:
        """The longest text in tokens."""
        most = self.config.max_position
        return min(most, self.purpose.max_tokens or most)

    @property
    def num_weights(self) -> int:
        """The numbers of all tensors of the encoder."""
        return sum(prod(shape) for _, shape in encoder_tensors(self.config))

    def build(self, device: torch.device, dtype: torch.dtype) -> tuple[Encoder, Head]:
        """Read the weights. Raises ModelLoadError for numbers that are not finite."""

        def load(name: str) -> torch.Tensor:
            parts = [self._folder.tensor(part).to(device, dtype) for part in self._sources[name]]
            whole = parts[0].clone() if len(parts) == 1 else torch.cat(parts)
            return self._finite(name, whole)

        def affine(name: str) -> Affine:
            return Affine(load(name), load(f"{name}_bias") if f"{name}_bias" in self._sources else None)

        def optional(name: str) -> Affine | None:
            return affine(name) if name in self._sources else None

        layers = tuple(
            EncoderLayer(
                qkv=affine(f"{number}.qkv"),
                o=affine(f"{number}.o"),
                attention_norm=optional(f"{number}.attention_norm"),
                up=affine(f"{number}.up"),
                down=affine(f"{number}.down"),
                mlp_norm=affine(f"{number}.mlp_norm"),
            )
            for number in range(self.config.num_layers)
        )
        tables = {name: load(name) if name in self._sources else None for name in TABLES}
        weights = EncoderWeights(
            embedding=load("embedding"),
            positions=tables["positions"],
            segments=tables["segments"],
            embedding_norm=affine("embedding_norm"),
            buckets=tables["buckets"],
            layers=layers,
            final_norm=optional("final_norm"),
        )
        return Encoder(self.config, weights), self._head(device, dtype)

    def _head(self, device: torch.device, dtype: torch.dtype) -> Head:
        head = self.score_head
        if head is None:
            return self._vector_head(device, dtype)

        def load(name: str) -> Affine:
            bias = self._folder.tensor(f"{name}.bias").to(device, dtype) if f"{name}.bias" in self._names else None
            weight = self._folder.tensor(f"{name}.weight").to(device, dtype)
            return Affine(self._finite(name, weight), bias)

        return ScoringHead(
            dense=load(head.dense),
            activation=head.activation,
            output=load(head.output),
            norm=load(head.norm) if head.norm else None,
            norm_eps=self.config.norm_eps,
            pools_mean=head.pools_mean,
            is_raw=self.purpose.has_raw_scores,
        )

    def _vector_head(self, device: torch.device, dtype: torch.dtype) -> VectorHead:
        size, layers = self.config.hidden_size, []
        for module, folder in zip(self.purpose.dense, self.dense, strict=True):
            if module.size_in != size:
                raise ModelLoadError(f"{module.folder}: in_features must be {size}, got {module.size_in}")
            expected: dict[str, tuple[int, ...]] = {"linear.weight": (module.size_out, size)}
            expected |= {"linear.bias": (module.size_out,)} if module.has_bias else {}
            for name, shape in expected.items():
                if name not in folder.names or folder.shape(name) != shape:
                    raise ModelLoadError(f"{module.folder}: tensor {name!r} must be there with the shape {shape}")
            weight = self._finite("linear.weight", folder.tensor("linear.weight").to(device, dtype))
            bias = folder.tensor("linear.bias").to(device, dtype) if module.has_bias else None
            identity = module.activation == "identity"
            activate = (lambda x: x) if identity else ACTIVATE[EncoderActivation(module.activation)]
            layers.append((Affine(weight, bias), activate))
            size = module.size_out
        return VectorHead(size, tuple(layers))

    def _find_prefix(self) -> str:
        (name,) = self.family.tensors["embedding"][0]
        spelled = (prefix for prefix in self.family.prefixes if f"{prefix}{name}.weight" in self._names)
        return next(spelled, "")

    def _find(self, name: str, shape: tuple[int, ...]) -> None:
        """Find where the folder has a tensor of ours. Raises ModelLoadError."""
        *layer, kind = name.split(".")
        end = ".bias" if kind.endswith("_bias") else ".weight"
        place = f"{self._prefix}{self.family.layer}.{layer[0]}." if layer else self._prefix
        spellings = [
            tuple(f"{place}{part}{end}" for part in parts) for parts in self.family.tensors[kind.removesuffix("_bias")]
        ]
        parts = next((one for one in spellings if self._names.issuperset(one)), spellings[-1])
        for part in parts:
            self._check(part, (shape[0] // len(parts), *shape[1:]))
        self._sources[name] = parts

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        if name not in self._names:
            raise ModelLoadError(f"{self.path}: tensor {name!r} is missing")
        found = self._folder.shape(name)
        if found != shape:
            raise ModelLoadError(
                f"{self.path}: tensor {name!r} must have the shape {shape}, got {found}"
                f"{blamed(self._fields, shape, found)}"
            )
        self._used.add(name)

    def _refuse_unused(self) -> None:
        left_out = tuple(f"{prefix}{one}" for prefix in self.family.prefixes for one in self.family.ignored)
        unknown = sorted(name for name in self._names - self._used if not name.startswith(left_out))
        unknown = [name for name in unknown if not name.endswith(INERT)]
        if unknown:
            shown = ", ".join(repr(name[:80]) for name in unknown[:5])
            raise ModelLoadError(
                f"{self.path}: holds {len(unknown)} tensors that its architecture does not have: {shown}"
            )

    def _finite(self, name: str, values: torch.Tensor) -> torch.Tensor:
        if not torch.isfinite(values).all():
            raise ModelLoadError(f"{self.path}: tensor {name!r} holds numbers that are not finite")
        return values


def open_encoder(path: Path) -> tuple[EncoderCheckpoint, EncoderConfig, tuple[Path, ...]]:
    """Open the files of an encoder as `open_checkpoint` opens others. Raises ModelLoadError."""
    path = text_file(path)
    checkpoint = _open_folder(path) if path.is_dir() else _open_gguf(path)
    return checkpoint, checkpoint.config, checkpoint.files


def _open_folder(path: Path) -> EncoderCheckpoint:
    source, values = str(path / "config.json"), read_config(path)
    if take_quantization(source, values) is not None:
        raise ModelLoadError(f"{source}: quantised encoders are not served; take the folder of its full weights")
    described = describe_encoder(source, values)
    folder = SafetensorsFolder.open(path)
    return EncoderCheckpoint(path, described, folder, (path / "config.json", *folder.files), values)


def _open_gguf(path: Path) -> EncoderCheckpoint:
    file = GgufFile.open(path)
    shapes = {name: tensor.shape for name, tensor in file.tensors.items()}
    described = describe_gguf_encoder(str(path), file.metadata, shapes, is_scorer=_ranks(path))
    return EncoderCheckpoint(path, described, OpenedGguf(file), file.files, file.metadata)


def _ranks(path: Path) -> bool:
    return read_purpose(path).kind is ModelKind.RERANKER


def encoder_tensors(config: EncoderConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield our name and the shape of every tensor of an encoder."""
    width, inner = config.hidden_size, config.intermediate_size
    yield "embedding", (config.vocab_size, width)
    if config.has_position_table:
        yield "positions", (config.max_position + config.first_position, width)
    if config.num_segments:
        yield "segments", (config.num_segments, width)
    if config.num_buckets:
        yield "buckets", (config.num_buckets, config.num_heads)
    products = {"qkv": (3 * width, width), "o": (width, width)}
    products |= {"up": (inner * (1 + config.is_gated), width), "down": (width, inner)}
    biased = ("qkv", "o") * config.attention_bias + ("up", "down") * config.mlp_bias
    norms = ["embedding_norm", *(["final_norm"] if config.has_input_norms else [])]
    for number in range(config.num_layers):
        for name, shape in products.items():
            yield f"{number}.{name}", shape
            if name in biased:
                yield f"{number}.{name}_bias", shape[:1]
        is_normalised = config.has_input_norms and number == 0
        norms += [f"{number}.attention_norm"] * (not is_normalised) + [f"{number}.mlp_norm"]
    for name in norms:
        yield name, (width,)
        if config.norm_bias:
            yield f"{name}_bias", (width,)


def head_tensors(config: EncoderConfig, head: ScoreHead) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the file's name and the shape of every tensor of a reranker's head."""
    width = config.hidden_size
    yield f"{head.dense}.weight", (width, width)
    if head.has_dense_bias:
        yield f"{head.dense}.bias", (width,)
    if head.norm:
        yield f"{head.norm}.weight", (width,)
        if config.norm_bias:
            yield f"{head.norm}.bias", (width,)
    yield f"{head.output}.weight", (1, width)
    yield f"{head.output}.bias", (1,)
