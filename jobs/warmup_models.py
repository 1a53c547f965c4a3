"""Small model files of zeros: together they need every kernel there is."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from gguf import GGUFWriter, TokenType
from gguf.constants import GGMLQuantizationType

from worker.gguf.quant_types import SUPPORTED_TYPES, row_bytes
from worker.kernels.attention_tiles import MOST_ROWS
from worker.models.registry import SUPPORTED_ARCHITECTURES

_COLUMNS = 256  # a quant block of every type
_CONTEXT = 256
_F32, _Q8_0 = GGMLQuantizationType.F32, GGMLQuantizationType.Q8_0
_SPECIAL = {"<unk>": TokenType.UNKNOWN, "<s>": TokenType.CONTROL, "</s>": TokenType.CONTROL}
_TOKENS = [*_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]

_BEFORE = ("attn_norm", "ffn_norm")
_AFTER = ("post_attention_norm", "post_ffw_norm")


@dataclass(frozen=True, slots=True)
class _Family:
    """How the files of an architecture look.

    Attributes:
        keys: its own.
        norms: of a layer, as wide as a token.
        norm_of_heads: shape of the norms of queries and of keys, from the number of heads and their
            width; None for none.
        is_centred: norms are about the mean, and have biases.
        matrices: of the feed-forward layer, and rows of each in units of its width.
        qkv: "three" tensors or "one".
        positions: whether an embedding of positions is learned.
        experts: of a mixture; 0 for none.
        sinks: whether attention has them, and experts have biases.
        recurrent: whether there is another layer, a gated delta net, and attention is gated.
    """

    keys: Mapping[str, int | float | list[bool]] = field(default_factory=dict)
    norms: Sequence[str] = _BEFORE
    norm_of_heads: Callable[[int, int], tuple[int, ...]] | None = None
    is_centred: bool = False
    matrices: Mapping[str, int] = field(
        default_factory=lambda: {"ffn_gate": 1, "ffn_up": 1, "ffn_down": 1}
    )
    qkv: Literal["three", "one"] = "three"
    positions: bool = False
    experts: int = 0
    sinks: bool = False
    recurrent: bool = False


_EXPERT_KEYS = {
    "expert_count": 2,
    "expert_used_count": 1,
    "expert_feed_forward_length": _COLUMNS,
}
_DELTA_HEADS, _DELTA_DIM = 4, 64
_CHANNELS = (2 + _DELTA_HEADS) * _DELTA_DIM
_DELTA_FLOATS = {
    "ssm_a": (_DELTA_HEADS,),
    "ssm_dt.bias": (_DELTA_HEADS,),
    "ssm_norm.weight": (_DELTA_DIM,),
    "ssm_conv1d.weight": (_CHANNELS, 4),
}
_DELTA_MATRICES = {
    "attn_qkv": (_CHANNELS, _COLUMNS),
    "attn_gate": (_DELTA_HEADS * _DELTA_DIM, _COLUMNS),
    "ssm_beta": (_DELTA_HEADS, _COLUMNS),
    "ssm_alpha": (_DELTA_HEADS, _COLUMNS),
    "ssm_out": (_COLUMNS, _DELTA_HEADS * _DELTA_DIM),
}
_UNGATED = {"ffn_up": 1, "ffn_down": 1}
_FAMILIES: Mapping[str, _Family] = {
    "gemma2": _Family(keys={"attention.sliding_window": 64}, norms=_BEFORE + _AFTER),
    "gemma3": _Family(
        keys={"attention.sliding_window": 64, "final_logit_softcapping": 30.0},
        norms=_BEFORE + _AFTER,
        norm_of_heads=lambda _, width: (width,),
    ),
    "gpt2": _Family(is_centred=True, matrices=_UNGATED, qkv="one", positions=True),
    "gpt-oss": _Family(
        keys={**_EXPERT_KEYS, "attention.sliding_window": 64},
        norms=("attn_norm", "post_attention_norm"),
        matrices={},
        experts=2,
        sinks=True,
    ),
    "granite": _Family(),
    "llama": _Family(),
    "olmo2": _Family(norms=_AFTER, norm_of_heads=lambda heads, width: (heads * width,)),
    "phi3": _Family(matrices={"ffn_up": 2, "ffn_down": 1}, qkv="one"),
    "qwen2": _Family(),
    "qwen3": _Family(norm_of_heads=lambda _, width: (width,)),
    "qwen35": _Family(
        keys={
            "attention.recurrent_layers": [False, True],
            "ssm.conv_kernel": 4,
            "ssm.state_size": _DELTA_DIM,
            "ssm.group_count": 1,
            "ssm.time_step_rank": _DELTA_HEADS,
            "ssm.inner_size": _DELTA_HEADS * _DELTA_DIM,
        },
        norms=("attn_norm", "post_attention_norm"),
        norm_of_heads=lambda _, width: (width,),
        recurrent=True,
    ),
    "qwen3moe": _Family(
        keys=_EXPERT_KEYS,
        norm_of_heads=lambda _, width: (width,),
        matrices={},
        experts=2,
    ),
    "smollm3": _Family(),
    "stablelm": _Family(is_centred=True, norm_of_heads=lambda heads, width: (heads, width)),
    "starcoder2": _Family(is_centred=True, matrices=_UNGATED),
}


@dataclass(frozen=True, slots=True)
class _Model:
    """A model of one layer, or of one of each kind.

    Attributes:
        architecture: its name in the file.
        qtype: type of all matrices.
        heads: of queries.
        kv_heads: of keys and values.
        head_dim: values of a head.
    """

    architecture: str
    qtype: GGMLQuantizationType
    heads: int = 4
    kv_heads: int = 1
    head_dim: int = 64

    @property
    def family(self) -> _Family:
        """How its file looks."""
        return _FAMILIES[self.architecture]

    @property
    def floats(self) -> Mapping[str, tuple[int, ...]]:
        """Name and shape of each tensor that stays in floats."""
        family = self.family
        norms = ["output_norm", *(f"blk.0.{name}" for name in family.norms)]
        kinds = ("weight", "bias") if family.is_centred else ("weight",)
        found: dict[str, tuple[int, ...]] = {f"{n}.{k}": (_COLUMNS,) for n in norms for k in kinds}
        if family.norm_of_heads is not None:
            for part, heads in (("q", self.heads), ("k", self.kv_heads)):
                shape = family.norm_of_heads(heads, self.head_dim)
                found[f"blk.0.attn_{part}_norm.weight"] = shape
        if family.experts:
            found["blk.0.ffn_gate_inp.weight"] = (family.experts, _COLUMNS)
        if family.sinks:
            found["blk.0.attn_sinks.weight"] = (self.heads,)
            names = [f"blk.0.ffn_{part}_exps.bias" for part in ("gate", "up", "down")]
            found |= dict.fromkeys(names, (family.experts, _COLUMNS))
        if family.recurrent:
            found |= {f"blk.1.{norm}.weight": (_COLUMNS,) for norm in family.norms}
            found |= {f"blk.1.{name}": shape for name, shape in _DELTA_FLOATS.items()}
        if family.positions:
            found["position_embd.weight"] = (_CONTEXT, _COLUMNS)
        return found

    @property
    def matrices(self) -> Mapping[str, tuple[int, ...]]:
        """Name and shape of each matrix, or of the matrices of all experts."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        gates = queries if self.family.recurrent else 0
        qkv = {"attn_q": queries + gates, "attn_k": keys, "attn_v": keys}
        if self.family.qkv == "one":
            qkv = {"attn_qkv": sum(qkv.values())}
        ffn = {name: rows * _COLUMNS for name, rows in self.family.matrices.items()}
        layer: dict[str, tuple[int, ...]] = {
            name: (rows, _COLUMNS) for name, rows in (qkv | ffn).items()
        }
        layer["attn_output"] = (_COLUMNS, queries)
        if self.family.experts:
            names = [f"ffn_{part}_exps" for part in ("gate", "up", "down")]
            layer |= dict.fromkeys(names, (self.family.experts, _COLUMNS, _COLUMNS))
        found = {f"blk.0.{name}": shape for name, shape in layer.items()}
        if self.family.recurrent:
            other = {name: (rows, _COLUMNS) for name, rows in ffn.items()} | _DELTA_MATRICES
            found |= {f"blk.1.{name}": shape for name, shape in other.items()}
        tokens = dict.fromkeys(("token_embd", "output"), (len(_TOKENS), _COLUMNS))
        return {**tokens, **found}


def write_warmup_models(folder: Path) -> Iterator[Path]:
    """Write a file for each tensor type, each architecture, and each shape of attention."""
    models = [
        *(_Model("llama", qtype) for qtype in sorted(SUPPORTED_TYPES)),
        *(_Model(architecture, _Q8_0) for architecture in SUPPORTED_ARCHITECTURES),
        *(_Model("llama", _F32, heads=heads) for heads in range(1, MOST_ROWS + 1)),
    ]
    for number, model in enumerate(models):
        path = folder / f"{number}.gguf"
        _write(path, model)
        yield path


def _write(path: Path, model: _Model) -> None:
    writer = GGUFWriter(path, model.architecture)
    _add_keys(writer, model)
    for name, shape in model.floats.items():
        writer.add_tensor(name, np.ones(shape, np.float32))
    for name, shape in model.matrices.items():
        if model.qtype == _F32:
            writer.add_tensor(f"{name}.weight", np.zeros(shape, np.float32))
        else:
            *rows, columns = shape
            stored = np.zeros((*rows, row_bytes(columns, model.qtype)), np.uint8)
            writer.add_tensor(f"{name}.weight", stored, raw_dtype=model.qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_keys(writer: GGUFWriter, model: _Model) -> None:
    writer.add_block_count(2 if model.family.recurrent else 1)
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(_COLUMNS)
    writer.add_feed_forward_length(_COLUMNS)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_key_length(model.head_dim)
    writer.add_value_length(model.head_dim)
    if model.family.is_centred:
        writer.add_layer_norm_eps(1e-5)
    else:
        writer.add_layer_norm_rms_eps(1e-5)
    for key, value in model.family.keys.items():
        if isinstance(value, list):
            writer.add_array(f"{model.architecture}.{key}", value)
        elif isinstance(value, int):
            writer.add_uint32(f"{model.architecture}.{key}", value)
        else:
            writer.add_float32(f"{model.architecture}.{key}", value)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(_TOKENS)
    writer.add_token_types([_SPECIAL.get(token, TokenType.BYTE) for token in _TOKENS])
    writer.add_token_scores([0.0] * len(_TOKENS))
