"""Small model files of zeros: together they need every kernel there is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType
from gguf.constants import GGMLQuantizationType

from worker.gguf.quant_types import SUPPORTED_TYPES, row_bytes
from worker.kernels.attention_tiles import MOST_ROWS
from worker.models.registry import SUPPORTED_ARCHITECTURES

_COLUMNS = 256  # a quant block of every type
_F32, _Q8_0 = GGMLQuantizationType.F32, GGMLQuantizationType.Q8_0
_SPECIAL = {"<unk>": TokenType.UNKNOWN, "<s>": TokenType.CONTROL, "</s>": TokenType.CONTROL}
_TOKENS = [*_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]

# What an architecture's file has besides that of llama.
_KEYS: Mapping[str, Mapping[str, int | float]] = {
    "gemma3": {"attention.sliding_window": 64, "final_logit_softcapping": 30.0},
}
_NORMS: Mapping[str, Sequence[str]] = {
    "gemma3": ("post_attention_norm", "post_ffw_norm"),
}
_HEAD_NORMS: Mapping[str, Sequence[str]] = {
    "gemma3": ("attn_q_norm", "attn_k_norm"),
}


@dataclass(frozen=True, slots=True)
class _Model:
    """A model of one layer.

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
    def norms(self) -> Mapping[str, int]:
        """Name and size of each norm's weight."""
        names = ("attn_norm", "ffn_norm", *_NORMS.get(self.architecture, ()))
        layer = dict.fromkeys(names, _COLUMNS)
        layer |= dict.fromkeys(_HEAD_NORMS.get(self.architecture, ()), self.head_dim)
        return {"output_norm": _COLUMNS, **{f"blk.0.{name}": n for name, n in layer.items()}}

    @property
    def matrices(self) -> Mapping[str, tuple[int, int]]:
        """Name, rows and columns of each matrix."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        layer = {
            "attn_q": (queries, _COLUMNS),
            "attn_k": (keys, _COLUMNS),
            "attn_v": (keys, _COLUMNS),
            "attn_output": (_COLUMNS, queries),
            **dict.fromkeys(("ffn_gate", "ffn_up", "ffn_down"), (_COLUMNS, _COLUMNS)),
        }
        tokens = dict.fromkeys(("token_embd", "output"), (len(_TOKENS), _COLUMNS))
        return {**tokens, **{f"blk.0.{name}": shape for name, shape in layer.items()}}


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
    for name, size in model.norms.items():
        writer.add_tensor(f"{name}.weight", np.ones(size, np.float32))
    for name, (rows, columns) in model.matrices.items():
        if model.qtype == _F32:
            writer.add_tensor(f"{name}.weight", np.zeros((rows, columns), np.float32))
        else:
            stored = np.zeros((rows, row_bytes(columns, model.qtype)), np.uint8)
            writer.add_tensor(f"{name}.weight", stored, raw_dtype=model.qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_keys(writer: GGUFWriter, model: _Model) -> None:
    writer.add_block_count(1)
    writer.add_context_length(256)
    writer.add_embedding_length(_COLUMNS)
    writer.add_feed_forward_length(_COLUMNS)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_key_length(model.head_dim)
    writer.add_value_length(model.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    for key, value in _KEYS.get(model.architecture, {}).items():
        if isinstance(value, int):
            writer.add_uint32(f"{model.architecture}.{key}", value)
        else:
            writer.add_float32(f"{model.architecture}.{key}", value)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(_TOKENS)
    writer.add_token_types([_SPECIAL.get(token, TokenType.BYTE) for token in _TOKENS])
    writer.add_token_scores([0.0] * len(_TOKENS))
