"""Slow, obvious twins of the compiled kernels, in float64."""

import numpy as np


def rms_norm(x, weight, eps):
    """Divide x [..., width] by its root mean square, times weight."""
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def layer_norm(x, weight, bias, eps):
    """Divide what x [..., width] differs from its mean by its deviation, times weight plus bias."""
    x = x.astype(np.float64)
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight + bias


def rope(head, angles, layout):
    """One head [dim], its leading 2 * len(angles) values rotated pair by pair."""
    out = head.astype(np.float64)
    n = len(angles)
    for i, angle in enumerate(angles):
        a, b = (2 * i, 2 * i + 1) if layout == "pairs" else (i, i + n)
        out[a] = head[a] * np.cos(angle) - head[b] * np.sin(angle)
        out[b] = head[b] * np.cos(angle) + head[a] * np.sin(angle)
    return out


def silu(x):
    """Multiply x by its logistic function."""
    x = x.astype(np.float64)
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    """GELU in its tanh approximation, as first written down."""
    x = x.astype(np.float64)
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def attention(query, keys, values, scale, window, cap, sink=None):
    """The last position attends: query [dim], keys and values [length, dim]; a sink or none."""
    first = 0 if window is None else max(0, len(keys) - window)
    scores = keys[first:].astype(np.float64) @ query * scale
    if cap is not None:
        scores = cap * np.tanh(scores / cap)
    rest = 0 if sink is None else np.exp(sink - scores.max())
    weights = np.exp(scores - scores.max())
    return weights / (weights.sum() + rest) @ values[first:]
