"""A slow llama in float64, one sequence, no cache: the twin of the real one."""

import numpy as np

from tests.worker.kernels import naive


def logits(
    weights, ids, *, heads, kv_heads, base=10_000.0, rotated=None, factor=1.0, divisors=1.0,
    eps=1e-5, window=None,
):  # fmt: skip
    """Logits of all positions: [len(ids), vocabulary]. Biases are used where there are any."""
    x = weights["token_embd.weight"][ids].astype(np.float64)
    rotated = rotated or len(weights["blk.0.attn_q.weight"]) // heads
    frequencies = base ** -(np.arange(0, rotated, 2) / rotated) / factor / divisors
    layer = 0
    while f"blk.{layer}.attn_norm.weight" in weights:
        own = {k.removeprefix(f"blk.{layer}."): w for k, w in weights.items()}
        h = naive.rms_norm(x, own["attn_norm.weight"], eps)
        x = x + _attention(own, h, heads, heads // kv_heads, frequencies, window)
        h = naive.rms_norm(x, own["ffn_norm.weight"], eps)
        gated = naive.silu(_linear(own, "ffn_gate", h)) * _linear(own, "ffn_up", h)
        x = x + _linear(own, "ffn_down", gated)
        layer += 1
    h = naive.rms_norm(x, weights["output_norm.weight"], eps)
    return h @ weights.get("output.weight", weights["token_embd.weight"]).T


def _linear(own, name, x):
    return x @ own[f"{name}.weight"].T + own.get(f"{name}.bias", 0)


def _attention(own, x, heads, group, frequencies, window):
    dim = len(own["attn_q.weight"]) // heads
    q, k, v = (_linear(own, f"attn_{part}", x).reshape(len(x), -1, dim) for part in "qkv")
    for array in (q, k):
        for position, vectors in enumerate(array):
            for head in vectors:
                head[:] = naive.rope(head, position * frequencies, "pairs")
    rows = [
        naive.attention(
            q[t, head], k[: t + 1, head // group], v[: t + 1, head // group],
            dim**-0.5, window, None,
        )
        for t in range(len(x))
        for head in range(heads)
    ]  # fmt: skip
    return _linear(own, "attn_output", np.array(rows).reshape(len(x), -1))
