"""A slow, obvious reader of packed tensors, written down from the layout's description alone."""

import numpy as np

# Planes of the codes, float16 numbers and bytes of scales, columns of a quant block.
LAYOUTS = {
    "Q4_0": ("n", 1, 0, 32),
    "Q4_1": ("n", 2, 0, 32),
    "Q5_0": ("nb", 1, 0, 32),
    "Q5_1": ("nb", 2, 0, 32),
    "Q8_0": ("8", 1, 0, 32),
    "Q4_K": ("n", 2, 16, 256),
    "Q5_K": ("nb", 2, 16, 256),
    "Q6_K": ("np", 1, 16, 256),
    "Q3_K": ("pb", 1, 16, 256),
    "Q2_K": ("p", 2, 16, 256),
}
PLANE_BYTES = {"n": 256, "b": 64, "p": 128, "8": 512}
PLANE_BITS = {"n": 4, "b": 1, "p": 2, "8": 8}


def plane(vectors, kind):
    """Codes [8 quads, 16 rows, 4 columns] of a plane's bytes."""
    v = vectors.reshape(-1, 16, 4)
    if kind == "n":
        return np.concatenate([v & 15, v >> 4])
    if kind == "p":
        return np.stack([v[h] >> (2 * j) & 3 for h in range(2) for j in range(4)])
    if kind == "b":
        return np.stack([v[0] >> j & 1 for j in range(8)])
    return v


def fields(packed, name, columns):
    """Codes [rows, columns], float16 numbers [rows, blocks, n] and bytes [rows, blocks, n]."""
    planes, n_halves, n_bytes, length = LAYOUTS[name]
    code_bytes = columns // 32 * sum(PLANE_BYTES[kind] for kind in planes)
    scale_bytes = columns // length * 16 * (2 * n_halves + n_bytes)
    stride = -(-(code_bytes + scale_bytes) // 64) * 64
    codes, halves, singles = [], [], []
    for row_block in packed.reshape(-1, stride):
        records = row_block[:code_bytes].reshape(columns // 32, -1)
        codes.append(np.concatenate([_codes(record, planes) for record in records], axis=1))
        scales = row_block[code_bytes:][:scale_bytes].reshape(columns // length, -1)
        numbers = scales[:, : 32 * n_halves].copy().view(np.float16)
        halves.append(numbers.reshape(-1, n_halves, 16).transpose(2, 0, 1))
        singles.append(
            scales[:, 32 * n_halves :].reshape(len(scales), n_bytes, 16).transpose(2, 0, 1)
        )
        assert not row_block[code_bytes + scale_bytes :].any()
    return np.concatenate(codes), np.concatenate(halves), np.concatenate(singles)


def _codes(record, planes):
    """Codes [16 rows, 32 columns] of a record."""
    codes, at, shift = np.zeros((8, 16, 4), np.uint8), 0, 0
    for kind in planes:
        codes |= plane(record[at : at + PLANE_BYTES[kind]], kind) << shift
        at, shift = at + PLANE_BYTES[kind], shift + PLANE_BITS[kind]
    return codes.transpose(1, 0, 2).reshape(16, 32)


# Value of code u: number d, second number m and scale bytes s.
FORMULAS = {
    "Q4_0": lambda u, d, m, s: d * (u - 8),
    "Q4_1": lambda u, d, m, s: d * u + m,
    "Q5_0": lambda u, d, m, s: d * (u - 16),
    "Q5_1": lambda u, d, m, s: d * u + m,
    "Q8_0": lambda u, d, m, s: d * u.astype(np.int8),
    "Q4_K": lambda u, d, m, s: d * s[:, :, 0::2] * u - m * s[:, :, 1::2],
    "Q5_K": lambda u, d, m, s: d * s[:, :, 0::2] * u - m * s[:, :, 1::2],
    "Q6_K": lambda u, d, m, s: d * s.astype(np.int8) * (u - 32),
    "Q3_K": lambda u, d, m, s: d * s.astype(np.int8) * (u - 4),
    "Q2_K": lambda u, d, m, s: d * (s & 15) * u - m * (s >> 4),
}


def values(packed, name, columns):
    """What the packed rows stand for: float32 [rows, columns], padding rows included."""
    codes, halves, singles = fields(packed, name, columns)
    numbers = halves.astype(np.float32)[..., None]  # [rows, blocks, n, 1]
    scales = singles[..., None]  # [rows, blocks, groups, 1]
    groups = {"Q4_K": 8, "Q5_K": 8}.get(name, max(1, scales.shape[2]))
    u = codes.reshape(*numbers.shape[:2], groups, -1)
    u = u if name == "Q8_0" else u.astype(np.float32)
    with np.errstate(all="ignore"):
        found = FORMULAS[name](u, numbers[:, :, :1], numbers[:, :, -1:], scales)
    return found.astype(np.float32, casting="no").reshape(codes.shape)


def float_values(packed, dtype, columns):
    """Values as stored, [rows, columns], of a packed tensor of plain floats."""
    stride = -(-16 * columns * np.dtype(dtype).itemsize // 64) * 64
    blocks = packed.reshape(-1, stride)
    assert not blocks[:, 16 * columns * np.dtype(dtype).itemsize :].any()
    used = np.ascontiguousarray(blocks[:, : 16 * columns * np.dtype(dtype).itemsize])
    return used.view(dtype).reshape(-1, columns, 16).transpose(0, 2, 1).reshape(-1, columns)
