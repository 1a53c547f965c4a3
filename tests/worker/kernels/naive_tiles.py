"""Slow, obvious twins of the tiles: packed weights, activation records and their product."""

from typing import NamedTuple

import numpy as np

# Bits of the code's planes from the lowest on, float16 numbers, scale bytes, columns of a block.
KINDS = {
    "Q4_0": ((4,), 1, 0, 32),
    "Q4_1": ((4,), 2, 0, 32),
    "Q5_0": ((4, 1), 1, 0, 32),
    "Q5_1": ((4, 1), 2, 0, 32),
    "Q8_0": ((8,), 1, 0, 32),
    "Q4_K": ((4,), 2, 16, 256),
    "Q5_K": ((4, 1), 2, 16, 256),
    "Q6_K": ((4, 2), 1, 16, 256),
    "Q3_K": ((2, 1), 1, 16, 256),
    "Q2_K": ((2,), 2, 16, 256),
}
OFFSETS = {"Q4_0": 8, "Q5_0": 16, "Q6_K": 32, "Q3_K": 4}


class Weights(NamedTuple):
    """Sixteen rows: codes [16, K], float16 numbers [16, blocks, n], uint8 scales likewise."""

    name: str
    codes: np.ndarray
    numbers: np.ndarray
    scales: np.ndarray


def largest_code(name):
    """The largest unsigned code of a type."""
    return (1 << sum(KINDS[name][0])) - 1


def packed(w):
    """Bytes of a row block, see `worker.kernels.layouts`."""
    records = w.codes.astype(np.uint8).reshape(16, -1, 8, 4).transpose(1, 2, 0, 3)
    planes, shift = [], 0
    for bits in KINDS[w.name][0]:
        part = records >> shift & ((1 << bits) - 1)  # [records, 8 quads, 16 rows, 4]
        n = bits  # 64-byte vectors of this plane
        order = [[h, h + 4] for h in range(4)] if bits == 4 else np.arange(8).reshape(n, -1)
        plane = [sum(part[:, q] << bits * i for i, q in enumerate(quads)) for quads in order]
        planes.append(np.stack(plane, 1).reshape(len(records), -1))
        shift += bits
    codes = np.concatenate(planes, 1)
    halves = w.numbers.transpose(1, 2, 0).copy().view(np.uint8).reshape(w.numbers.shape[1], -1)
    singles = w.scales.transpose(1, 2, 0).reshape(w.numbers.shape[1], -1)
    scales = np.concatenate([halves, singles], 1)
    return np.concatenate([codes.ravel(), scales.ravel()])


def records(d, q):
    """Records of 48 bytes, uint8 [tokens, K / 32, 48], for d [tokens, K / 32] and q [tokens, K]."""
    sums = q.reshape(len(q), -1, 2, 16).astype(np.int32).sum(-1).astype(np.float32)
    with np.errstate(all="ignore"):
        s = d * (sums[..., 0] + sums[..., 1])
    heads = np.stack([d, s, sums[..., 0], sums[..., 1]], -1).astype(np.float32)
    values = q.astype(np.int8).reshape(*d.shape, 32).view(np.uint8)
    return np.ascontiguousarray(np.concatenate([heads.view(np.uint8), values], -1))


def fma(a, b, c):
    """``a * b + c`` of float32, rounded once: float64 with its last bit made odd when inexact."""
    with np.errstate(all="ignore"):
        product, c = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
        total = product + c
        part = total - product
        error = (product - (total - part)) + (c - part)
        bits = np.array(total).view(np.int64)
        away = np.where((error > 0) == (total > 0), 1, -1)
        inexact = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
        return np.where(inexact, bits + away, bits).view(np.float64).astype(np.float32)


def _scales(w, block):
    """Integer scale and minimum [16, 2 halves] of 32 columns, for types that have them."""
    raw = w.scales[:, block // 8].reshape(16, 8, 2)[:, block % 8]
    if w.name == "Q2_K":
        return (raw & 15).astype(np.float32), (raw >> 4).astype(np.float32)
    if w.name in ("Q6_K", "Q3_K"):
        return raw.view(np.int8).astype(np.float32), None
    return raw[:, :1].astype(np.float32), raw[:, 1:].astype(np.float32)


def product(w, d, q):
    """Float32 [tokens, 16], in the order of roundings that all machines share."""
    x = records(d, q)[..., :16].copy().view(np.float32)  # [tokens, blocks, 4]
    acc = np.zeros((len(q), 16), np.float32)
    for block in range(q.shape[1] // 32):
        acc = _add_block(w, block, x[:, block, None], q[:, 32 * block :][:, :32], acc)
    return acc


def _add_block(w, block, x, q, acc):
    dx, s, h = x[..., 0], x[..., 1], x[..., 2:]
    offset = OFFSETS.get(w.name, 0)
    numbers = w.numbers[:, block * 32 // KINDS[w.name][3]].astype(np.float32)
    codes = w.codes[:, 32 * block :][:, :32].astype(np.int64)
    with np.errstate(all="ignore"):
        d, m = numbers[:, 0], numbers[:, -1]
        if w.name in ("Q2_K", "Q3_K", "Q6_K"):
            scale, low = _scales(w, block)
            sums = ((codes - offset) * q[:, None]).reshape(-1, 16, 2, 16).sum(-1)
            acc = fma((sums * scale).sum(-1).astype(np.float32), d * dx, acc)
            return acc if low is None else fma((low * h).sum(-1), -(m * dx), acc)
        if w.name in ("Q4_K", "Q5_K"):
            scale, low = _scales(w, block)
            d, m = d * scale[:, 0], -(m * low[:, 0])
        elif offset:
            m = -offset * d
        total = (codes * q[:, None]).sum(-1).astype(np.float32)
        acc = fma(total, d * dx, acc)
        return acc if w.name == "Q8_0" else fma(m, s, acc)


def float_product(values, x):
    """Float32 [tokens, 16] of values [16, K] and x [tokens, K], one column after the other."""
    acc = np.zeros((len(x), 16), np.float32)
    for k in range(values.shape[1]):
        acc = fma(values[:, k], x[:, k, None], acc)
    return acc
