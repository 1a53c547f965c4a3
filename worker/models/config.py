"""A model's hyperparameters, read from the metadata of its file and checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from worker.errors import GGUFError, UnsupportedModelError
from worker.gguf import ModelFile

from .key_reader import KeyReader
from .rope_config import RopeConfig, RopeLayout, read_rope

EMBEDDING = "token_embd.weight"
OUTPUT = "output.weight"
NormKind = Literal["rms", "layer"]

_TOKENS = "tokenizer.ggml.tokens"
_EPS: Mapping[NormKind, str] = MappingProxyType(
    {
        "rms": "attention.layer_norm_rms_epsilon",
        "layer": "attention.layer_norm_epsilon",
    }
)


@dataclass(frozen=True, slots=True)
class ExpertsConfig:
    """Feed-forward layers of experts, of which each token uses a few.

    Attributes:
        count: experts of a layer.
        used: experts of a token.
        intermediate_size: values inside an expert.
        is_share_of_all: an expert's weight is its share in the softmax over all experts; else in
            that over the token's own, so that these sum to 1.
        scale: factor on the weights.
    """

    count: int
    used: int
    intermediate_size: int
    is_share_of_all: bool
    scale: float


@dataclass(frozen=True, slots=True)
class DeltaConfig:
    """Recurrent layers by the gated delta rule, in the place of attention.

    Attributes:
        layers: whether each layer of the model is one.
        kernel_size: tokens that the convolution before it sees.
        key_heads: heads of queries and of keys.
        value_heads: heads of values, each with a memory; a multiple of key_heads.
        key_dim: values of a query or key head.
        value_dim: values of a value head.
    """

    layers: tuple[bool, ...]
    kernel_size: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int

    @property
    def values(self) -> int:
        """Values of all value heads."""
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """Queries, keys and values of a token."""
        return 2 * self.key_heads * self.key_dim + self.values


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Hyperparameters shared by all architectures.

    Attributes:
        architecture: as the file calls it.
        num_layers: transformer layers.
        hidden_size: values of a token between layers.
        intermediate_size: values inside a dense feed-forward layer.
        num_heads: query heads.
        num_kv_heads: key and value heads; divides num_heads.
        head_dim: values of a head.
        vocab_size: rows of the embedding, and logits of a token.
        num_tokens: tokens of the tokenizer; rows and logits past them are padding.
        context_length: most positions the model was made for.
        norm: kind of the norms: root mean square, or about the mean and with a bias.
        norm_eps: added under the root of a norm.
        rope: rotary embedding of layers with full attention; None for no rotation.
        local_rope: rotary embedding of window layers; None where there are none.
        attention_scale: factor on query-key products.
        embedding_scale: factor on embeddings.
        attention_cap: soft cap of scaled query-key products; None for none.
        logit_cap: soft cap of logits; None for none.
        windows: per layer the attention window in tokens, itself included; None for full attention.
        residual_scale: factor on what a layer's attention and feed-forward add.
        logit_scale: factor on logits.
        tied_embeddings: whether the output head is the embedding.
        experts: of the feed-forward layers; None where they are dense.
        delta: of the recurrent layers; None where there are none.
        guessing_layers: that a file has behind the others, to guess further tokens; not computed.
    """

    architecture: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    num_tokens: int
    context_length: int
    norm: NormKind
    norm_eps: float
    rope: RopeConfig | None
    local_rope: RopeConfig | None
    attention_scale: float
    embedding_scale: float
    attention_cap: float | None
    logit_cap: float | None
    windows: tuple[int | None, ...]
    residual_scale: float
    logit_scale: float
    tied_embeddings: bool
    experts: ExpertsConfig | None = None
    delta: DeltaConfig | None = None
    guessing_layers: int = 0

    def is_recurrent(self, layer: int) -> bool:
        """Whether a layer has a recurrent state in the place of keys and values."""
        return self.delta is not None and self.delta.layers[layer]

    @property
    def long_from(self) -> int | None:
        """Position that short sequences do not reach; None where they are not told apart."""
        return None if self.rope is None else self.rope.original_length

    @property
    def sliding_window(self) -> int | None:
        """Window of the layers that have one; None if all see everything."""
        return next((window for window in self.windows if window is not None), None)


def base_config(
    gguf: ModelFile, keys: KeyReader, rope_layout: RopeLayout | None, norm: NormKind = "rms"
) -> ModelConfig:
    """What decoders have in common; all layers with full attention.

    Args:
        gguf: the file.
        keys: of the file.
        rope_layout: of heads that are rotated; None where positions are not rotations.
        norm: kind of the norms.

    Raises:
        GGUFError: a key is missing or has a value that cannot be, or does not fit the tensors.
        UnsupportedModelError: a key asks for something tokenmill does not compute.
    """
    num_blocks = keys.positive("block_count")
    _check_block_count(gguf, keys, num_blocks)
    guessing_layers = _guessing_layers(keys, num_blocks)
    num_layers = num_blocks - guessing_layers
    num_heads = keys.layer_size("attention.head_count", num_blocks)
    hidden_size = keys.positive("embedding_length")
    head_dim = _head_dim(keys, hidden_size, num_heads)
    vocab_size = _vocab_size(gguf, hidden_size)
    return ModelConfig(
        architecture=keys.architecture,
        num_layers=num_layers,
        hidden_size=hidden_size,
        intermediate_size=keys.layer_size("feed_forward_length", num_blocks),
        num_heads=num_heads,
        num_kv_heads=_num_kv_heads(keys, num_blocks, num_heads),
        head_dim=head_dim,
        vocab_size=vocab_size,
        num_tokens=gguf.metadata.array_length(_TOKENS) or vocab_size,
        context_length=keys.positive("context_length"),
        norm=norm,
        norm_eps=keys.number_between(_EPS[norm], 0.0, 1.0),
        rope=None if rope_layout is None else read_rope(gguf, keys, head_dim, rope_layout),
        local_rope=None,
        attention_scale=head_dim**-0.5,
        embedding_scale=1.0,
        attention_cap=None,
        logit_cap=None,
        windows=(None,) * num_layers,
        residual_scale=1.0,
        logit_scale=1.0,
        tied_embeddings=OUTPUT not in gguf.tensors,
        guessing_layers=guessing_layers,
    )


def _guessing_layers(keys: KeyReader, num_blocks: int) -> int:
    """The last of the layers, which guess the tokens after the next one."""
    count = keys.optional_unless_zero("nextn_predict_layers") or 0
    if count >= num_blocks:
        raise GGUFError(
            f"{keys.path}: key {keys.key('nextn_predict_layers')} is {count}, but "
            f"{keys.key('block_count')} is {num_blocks}; convert the model again"
        )
    return count


def _check_block_count(gguf: ModelFile, keys: KeyReader, num_layers: int) -> None:
    """The layers promised are there, and no others. Stops at the first that is missing."""
    found = {name.split(".")[1] for name in gguf.tensors if name.startswith("blk.")}
    if num_layers > len(found):
        missing = next(i for i in range(len(found) + 1) if str(i) not in found)
        raise GGUFError(
            f"{keys.path}: key {keys.key('block_count')} is {num_layers}, but there are no tensors "
            f"blk.{missing}.*, as in blk.{missing}.attn_norm.weight: the file holds {len(found)} "
            "layers; take a complete file, or convert the model again"
        )
    extra = found - {str(i) for i in range(num_layers)}
    if extra:
        raise GGUFError(
            f"{keys.path}: key {keys.key('block_count')} is {num_layers}, but there are tensors "
            f"blk.{min(extra)}.*; convert the model again"
        )


def _head_dim(keys: KeyReader, hidden_size: int, num_heads: int) -> int:
    head_dim = keys.optional_positive("attention.key_length")
    if head_dim is None:
        if hidden_size % num_heads:
            raise GGUFError(
                f"{keys.path}: key {keys.key('embedding_length')} is {hidden_size}, not a multiple "
                f"of {keys.key('attention.head_count')}, {num_heads}; convert the model again"
            )
        head_dim = hidden_size // num_heads
    value_dim = keys.optional_positive("attention.value_length")
    if value_dim is not None and value_dim != head_dim:
        raise UnsupportedModelError(
            f"{keys.path}: key {keys.key('attention.value_length')} is {value_dim} but keys have "
            f"{head_dim} values; tokenmill supports heads of one size"
        )
    return head_dim


def _num_kv_heads(keys: KeyReader, num_layers: int, num_heads: int) -> int:
    num_kv_heads = keys.optional_layer_size("attention.head_count_kv", num_layers) or num_heads
    if num_heads % num_kv_heads:
        raise GGUFError(
            f"{keys.path}: key {keys.key('attention.head_count')} is {num_heads}, not a multiple of"
            f" {keys.key('attention.head_count_kv')}, {num_kv_heads}; convert the model again"
        )
    return num_kv_heads


def _vocab_size(gguf: ModelFile, hidden_size: int) -> int:
    """Rows of the embedding, at least one for each token of the tokenizer."""
    tokens = gguf.metadata.array_length(_TOKENS)
    embedding = gguf.tensor(EMBEDDING)
    found = embedding.shape
    rows = embedding.rows if len(found) <= 2 and found[-1] == hidden_size else None
    if rows is None:
        expected = tokens if tokens is not None else found[-1]
        gguf.tensor(EMBEDDING, (expected, hidden_size))
        raise AssertionError("the shape differs from the one expected")
    if tokens is not None and tokens > rows:
        raise GGUFError(
            f"{gguf.path}: {_TOKENS} has {tokens} tokens, but {EMBEDDING} has only"
            f" {rows} rows: the last tokens have no embedding; convert the model again after "
            "resizing its embedding"
        )
    return rows
