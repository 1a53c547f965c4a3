"""What a model file is, in a few figures, for people to look at."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from .file import ARCHITECTURE_KEY
from .model_file import ModelFile
from .quant_types import SUPPORTED_TYPES


@dataclass(frozen=True, slots=True)
class TypeUsage:
    """How much of a model is stored as one tensor type."""

    tensors: int
    n_values: int
    n_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary:
    """A model's key figures. A key that the file does not have gives None.

    Attributes:
        path: the file, or the first shard.
        container: kind of the file, e.g. ``GGUF 3``.
        architecture: e.g. ``llama``.
        name: the model's own name.
        n_bytes: size of the file, or of all shards together.
        n_parameters: number of stored values, all tensors together.
        types: usage by type name, the type with the most bytes first.
        unsupported_types: the names among them that cannot be dequantised.
        context_length: tokens the model was trained for.
        tokenizer: kind of the tokenizer, e.g. ``gpt2`` or ``llama``.
        pre_tokenizer: name of its pre-tokenizer.
        vocab_size: number of tokens.
    """

    path: Path
    container: str
    architecture: str
    name: str | None
    n_bytes: int
    n_parameters: int
    types: Mapping[str, TypeUsage]
    unsupported_types: tuple[str, ...]
    context_length: int | None
    tokenizer: str | None
    pre_tokenizer: str | None
    vocab_size: int | None


def summarize(model: ModelFile) -> ModelSummary:
    """Collect the key figures; no tensor is read and no long array is decoded.

    Raises:
        GGUFError: a key has a value of the wrong type.
    """
    metadata = model.metadata
    architecture = metadata.text(ARCHITECTURE_KEY)
    types = _usage(model)
    supported = {qtype.name for qtype in SUPPORTED_TYPES}
    return ModelSummary(
        path=model.path,
        container=model.container,
        architecture=architecture,
        name=metadata.text("general.name", None),
        n_bytes=model.n_bytes,
        n_parameters=sum(usage.n_values for usage in types.values()),
        types=types,
        unsupported_types=tuple(name for name in types if name not in supported),
        context_length=metadata.integer(f"{architecture}.context_length", None),
        tokenizer=metadata.text("tokenizer.ggml.model", None),
        pre_tokenizer=metadata.text("tokenizer.ggml.pre", None),
        vocab_size=metadata.array_length("tokenizer.ggml.tokens"),
    )


def _usage(model: ModelFile) -> Mapping[str, TypeUsage]:
    found: dict[str, TypeUsage] = {}
    for info in model.tensors.values():
        before = found.get(info.qtype.name, TypeUsage(0, 0, 0))
        found[info.qtype.name] = TypeUsage(
            before.tensors + 1, before.n_values + info.n_values, before.n_bytes + info.n_bytes
        )
    by_size = sorted(found.items(), key=lambda item: (-item[1].n_bytes, item[0]))
    return MappingProxyType(dict(by_size))
