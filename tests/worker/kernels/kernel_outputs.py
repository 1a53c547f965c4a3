"""Kernel outputs on fixed inputs, to be compared between instruction sets and machines by hash.

Every case of `CASES` gives arrays of bits that must be the same everywhere. Inputs come from
integer arithmetic and exact scaling alone: a random generator's or a mathematics library's floats
could differ themselves. Runs without pytest: `tests/arm64` calls it on an emulated CPU.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as QType

from tests.worker.kernels.array_kernels import attention, gated_activation, rms_norm, rope, soft_cap
from tests.worker.models.feeding import logits_of, open_model
from worker.kernels.argmax import best_token
from worker.kernels.attention import ITEM_WORDS
from worker.kernels.attention_items import attention_items, most_attention_items
from worker.kernels.dequantize import KERNELS
from worker.kernels.jit import kernel
from worker.kernels.layouts import layout_of
from worker.kernels.matmul import matmul
from worker.kernels.native import address_of
from worker.kernels.pack import pack_rows
from worker.kernels.penalties import penalise
from worker.kernels.philox import philox
from worker.kernels.quantize import RECORD_BYTES, quantized
from worker.kernels.rotate_and_write import (
    rotate_and_write_arguments,
    rotate_and_write_task,
)
from worker.kernels.sampling import choose, likeliest
from worker.kernels.scratch import make_scratch
from worker.kernels.tile import tiles
from worker.kernels.vector import exp8, load8, store8
from worker.models.rope_config import RopeConfig
from worker.models.rotary import RotaryEmbedding
from worker.thread_team import ThreadTeam

# Where the float16 numbers of a quant block lie, in bytes from its start.
HALVES = {
    QType.Q4_0: (0,),
    QType.Q4_1: (0, 2),
    QType.Q5_0: (0,),
    QType.Q5_1: (0, 2),
    QType.Q8_0: (0,),
    QType.Q2_K: (80, 82),
    QType.Q3_K: (108,),
    QType.Q4_K: (0, 2),
    QType.Q5_K: (0, 2),
    QType.Q6_K: (208,),
    QType.IQ4_NL: (0,),
    QType.IQ4_XS: (0,),
    QType.IQ1_S: (0,),
    QType.IQ1_M: (),
    QType.IQ2_XXS: (0,),
    QType.IQ2_XS: (0,),
    QType.IQ2_S: (0,),
    QType.IQ3_XXS: (0,),
    QType.IQ3_S: (0,),
    QType.TQ1_0: (52,),
    QType.TQ2_0: (64,),
    QType.MXFP4: (),
    QType.NVFP4: (),
    QType.Q1_0: (0,),
}
TINY = Path(__file__).parents[2] / "data" / "tiny"
MODELS = (
    *("llama-k-Q4_K_M", "llama-IQ4_NL", "gemma3-Q8_0"),
    *("mixtral-Q4_0", "gpt-oss-Q8_0", "qwen35-Q8_0"),
)
FLOATS = (QType.F32, QType.F16, QType.BF16)
SPECIAL = np.array(
    [0, -0.0, 1e-45, -1e-40, 1.17549435e-38, 3.4028235e38, -3.4028235e38, np.inf, -np.inf, np.nan],
    np.float32,
)


def words(seed, *shape):
    """Pseudo-random uint64 of a shape (SplitMix64 of a counter)."""
    z = np.arange(1, 1 + int(np.prod(shape)), dtype=np.uint64) + np.uint64(seed << 32)
    z *= np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))).reshape(shape)


def floats(seed, *shape, reach=1.0):
    """float32 of a shape between -reach and reach, a power of two: multiples of reach / 2^23."""
    integers = (words(seed, *shape) >> np.uint64(40)).astype(np.int64) - (1 << 23)
    return integers.astype(np.float32) * np.float32(reach / (1 << 23))


def with_specials(x):
    """The same values, with every special number among them at three places."""
    flat = x.reshape(-1)
    for at in (0, flat.size // 2, flat.size - len(SPECIAL)):
        flat[at : at + len(SPECIAL)] = SPECIAL
    return x


def stored_rows(seed, qtype, rows, columns, reach=1.0):
    """Rows as a GGUF file stores them: random codes and scales up to `reach`, finite numbers."""
    length, n_bytes = GGML_QUANT_SIZES[qtype]
    if qtype in FLOATS:
        values = floats(seed, rows, columns)
        if qtype == QType.BF16:
            return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(np.uint8)
        return values.astype(np.float16 if qtype == QType.F16 else np.float32).view(np.uint8)
    raw = words(seed, rows, columns // length, n_bytes).astype(np.uint8)
    for number, at in enumerate(HALVES[qtype]):
        halves = floats(seed + 1 + number, rows, columns // length, reach=reach).astype(np.float16)
        raw[:, :, at : at + 2] = halves[..., None].view(np.uint8)
    if qtype == QType.IQ1_M:  # the first nibble of its float16: 2^-7 to 2^-3
        raw[:, :, 55] = raw[:, :, 55] & 15 | 32
    if qtype == QType.MXFP4:  # 2^-9 to 2^-6
        raw[:, :, 0] = raw[:, :, 0] & 3 | 120
    if qtype == QType.NVFP4:
        raw[:, :, :4] &= 31
    return raw.reshape(rows, -1)


@kernel
def _exp(x, out):
    for i in range(0, x.size, 8):
        store8(out, i, exp8(load8(x, i)))


def _exp8():
    x = np.concatenate([floats(1, 4096, reach=128.0), floats(2, 4096), SPECIAL, SPECIAL[:6]])
    out = np.empty_like(x)
    _exp(x, out)
    return [out]


def _rms_norm():
    narrow, heads = floats(3, 5, 52), floats(4, 3, 96, reach=64.0)
    narrow[4] = np.float32(2.0**66)  # squares overflow
    outputs = [np.empty_like(narrow), heads.copy()]
    rms_norm(narrow, floats(5, 52), outputs[0], 1e-6)
    rms_norm(heads, floats(6, 24), outputs[1], 1e-5, first_column=16, vectors=3)
    return outputs


def _rope():
    positions = np.array([0, 3, 17, 30, 31], np.int32)
    rotated = []
    for distance in (1, 12):
        x = floats(7, 5, 100)
        rope(x, positions, floats(8, 32, 12), floats(9, 32, 12), 3, 32, distance)
        rotated.append(x)
    return rotated


def _rotary_tables():
    """Cosines and sines, which NumPy makes."""
    rotary = RotaryEmbedding(RopeConfig(base=100_000.0, dimensions=64, layout="pairs"), 8192)
    rotary.reach(8191)
    return [rotary.cos, rotary.sin]


def _activation(kind):
    gate_up = with_specials(floats(10, 6, 2 * 76, reach=32.0))
    out = np.empty((6, 76), np.float32)
    gated_activation(gate_up, out, kind)
    return [out]


def _soft_cap():
    x = with_specials(floats(11, 1003, reach=128.0))
    soft_cap(x, 30.0)
    return [x]


def _quantize():
    x = floats(12, 24, 256)
    x = np.ldexp(x, np.arange(-120, 120, 10)[:, None])
    x[5] = 0
    x[6, :80:8] = SPECIAL
    records = quantized(x).reshape(24, 8, RECORD_BYTES)
    return [records[..., :16].copy().view(np.float32), records[..., 16:]]


def _best_token():
    logits = floats(13, 4, 1003, reach=16.0)
    logits[1, 700] = logits[1, 41] = 16.0
    logits[2, 1002] = np.nan
    logits[3, 0] = np.inf
    found = [best_token(row) for row in logits]
    return [np.array([token for token, _ in found]), np.array(found[:2])]


def _sampling():
    row, scratch = floats(14, 5003, reach=16.0), make_scratch(5003)
    filters = ((0, 1.0), (0, 0.9), (0, 0.999), (50, 1.0), (700, 0.8))
    outputs = []
    for temperature, min_p in ((1.0, 0.0), (8.0, 0.05), (0.01, 0.0)):
        for top_k, top_p in filters:
            arguments = (row, temperature, min_p, top_k, top_p)
            tokens = [choose(*arguments, share / 97, scratch) for share in range(97)]
            outputs += [np.array(tokens), scratch.prefixes.copy()]
    outputs.append(np.array(likeliest(row, 200, scratch)))
    return [*outputs, scratch.candidates[:200].copy(), scratch.prefixes.copy()]


def _penalties():
    row, before = floats(15, 1003, reach=16.0), np.empty(1003, np.float32)
    tokens = np.arange(0, 1003, 2, dtype=np.int32)
    factors = [np.float32(factor) for factor in (1.3, 0.7, 0.1)]
    penalise(row, tokens, tokens % 7, *factors, before)
    return [row]


def _philox():
    keys = words(16, 20, 3)
    return [np.array([philox(*key) for key in keys], np.uint64)]


def _matmul():
    out = np.full((6, 21), np.nan, np.float32)
    matmul(floats(15, 21, 100), floats(16, 6, 100), out, 0, 21)
    return [out]


def _attention(
    seed, *, kv_heads, group, head_dim, block_size, longest=150, window=None, cap=None, dtype="f4"
):
    """Two sequences in scattered blocks: a long one's last 21 tokens, and a decoding one."""
    lengths, fed = (longest, 77), (21, 1)
    columns = [-(-length // block_size) for length in lengths]
    order = np.argsort(words(seed, sum(columns))).astype(np.int32)
    table = np.full((2, max(columns)), -1, np.int32)
    table[0, : columns[0]], table[1, : columns[1]] = order[: columns[0]], order[columns[0] :]
    pool = (sum(columns), kv_heads, block_size, head_dim)
    keys = floats(seed + 2, *pool, reach=4.0).transpose(0, 1, 3, 2)
    positions = [np.arange(n - new, n) for n, new in zip(lengths, fed, strict=True)]
    heads = kv_heads * group
    qkv = floats(seed + 1, sum(fed), (heads + 2 * kv_heads) * head_dim, reach=4.0)
    out = np.zeros((sum(fed), heads * head_dim), np.float32)
    places, starts = np.concatenate(positions).astype(np.int32), np.cumsum([0, *fed], dtype="i4")
    items = np.zeros((most_attention_items(sum(fed), 2, kv_heads), ITEM_WORDS), np.int32)
    items = items[: attention_items(starts, places, kv_heads, window, 1, items)]
    attention(
        qkv, np.ascontiguousarray(keys, dtype), floats(seed + 3, *pool).astype(dtype), out, table,
        places, items, window, 0.25, cap,
    )  # fmt: skip
    return [out]


def _rotate_and_write(dtype):
    """Norm, rotation and K/V write of 5 tokens; two numbers are too large for float16."""
    heads, kv_heads, dim, block_size, angles = 3, 2, 40, 8, 12
    qkv = floats(80, 5, (heads + 2 * kv_heads) * dim, reach=4.0)
    qkv[0, -1], qkv[1, -2] = 65519, -65520
    keys = np.zeros((3, kv_heads, dim, block_size), dtype)
    values = np.zeros((3, kv_heads, block_size, dim), dtype)
    positions, slots = np.arange(3, 8, dtype=np.int32), np.arange(5, 10, dtype=np.int64)
    cos, sin, norm = floats(81, 32, angles), floats(82, 32, angles), floats(83, dim)
    header = np.array([5, 5, address_of(cos), address_of(sin)], np.int64)
    arguments = rotate_and_write_arguments(
        qkv, positions, slots, keys, values, heads=heads, angles=angles, distance=1,
        query_norm=norm, key_norm=norm, eps=1e-6, tables_word=2, tokens_word=0,
        tokens_an_item_word=1,
    )  # fmt: skip
    rotate_and_write_task(address_of(header), address_of(arguments), 0, 0)
    return [qkv, keys, values]


def _dequantize(qtype):
    raw = stored_rows(20 + qtype, qtype, 3, 512)
    out = np.empty(3 * 512, np.float32)
    KERNELS[qtype](raw.reshape(-1), out)
    return [out]


def _tiles(qtype):
    """A row block of real packing, times 8 tokens by the tiles of each width."""
    columns, layout = 512, layout_of(qtype)
    packed = _on_a_cache_line(layout.packed_bytes(16, columns))
    pack_rows(stored_rows(60 + qtype, qtype, 16, columns), layout, columns, packed)
    x = floats(59, 8, columns, reach=8.0)
    blocks = columns // 32 if layout.planes else columns
    tokens = quantized(x) if layout.planes else x
    outputs = [packed]
    for width, tile in sorted(tiles(qtype).items()):
        out = np.empty((8, 16), np.float32)
        for first in range(0, 8, width):
            places = address_of(tokens[first:]), tokens.strides[0], address_of(out[first:])
            tile(address_of(packed), *places, out.strides[0], blocks)
        outputs.append(out)
    return outputs


def _model(name):
    """Logits of a tiny model in int8 mode, after every token of a prompt fed in two steps."""
    folder = TINY / name.rsplit("-", 1)[0]
    prompt = json.loads((folder / "model.json").read_text())["prompts"][1]["ids"]
    with ThreadTeam(2) as team:
        model = open_model(folder / f"{name}.gguf", team, mode="int8")
        return [logits_of(model, prompt, chunk=64)[:, : model.config.vocab_size]]


def _on_a_cache_line(n_bytes):
    room = np.zeros(n_bytes + 64, np.uint8)
    start = -address_of(room) % 64
    return room[start : start + n_bytes]


CASES: Mapping[str, Callable[[], list[np.ndarray]]] = {
    "exp8": _exp8,
    "rms_norm": _rms_norm,
    "rope": _rope,
    "rotary tables": _rotary_tables,
    "gated_activation silu": lambda: _activation("silu"),
    "gated_activation gelu_tanh": lambda: _activation("gelu_tanh"),
    "soft_cap": _soft_cap,
    "quantize": _quantize,
    "best_token": _best_token,
    "sampling": _sampling,
    "penalties": _penalties,
    "philox": _philox,
    "matmul": _matmul,
    "attention": lambda: _attention(30, kv_heads=3, group=3, head_dim=64, block_size=16),
    "attention window, cap": lambda: _attention(
        40, kv_heads=1, group=4, head_dim=40, block_size=12, window=37, cap=30.0
    ),
    "attention float16": lambda: _attention(
        50, kv_heads=2, group=5, head_dim=64, block_size=16, dtype="f2"
    ),
    "attention of two ranges": lambda: _attention(
        55, kv_heads=1, group=2, head_dim=16, block_size=16, longest=1034
    ),
    "rotate_and_write float32": lambda: _rotate_and_write("f4"),
    "rotate_and_write float16": lambda: _rotate_and_write("f2"),
    **{f"dequantize {q.name}": lambda q=q: _dequantize(q) for q in KERNELS},
    **{f"tiles {q.name}": lambda q=q: _tiles(q) for q in KERNELS if layout_of(q) is not None},
    **{f"model {name}": lambda name=name: _model(name) for name in MODELS},
}
