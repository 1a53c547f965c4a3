"""The sampler's twin: NumPy over whole rows, everything sorted, every sum in its plain order."""

import math

import numpy as np

from worker.kernels import philox


def uniform(key, position):
    """The draw of a generated token at a position, in [0, 1)."""
    return philox.uniform(np.uint64(position), *np.array(key, np.uint64))


def exp(x):
    """e**x for -700 <= x <= 0, float64, by the series that weights are made of."""
    shifted = x * 1.4426950408889634 + 6755399441055744.0
    k = shifted - 6755399441055744.0
    r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10
    p = np.full_like(x, 1.0 / math.factorial(13))
    for n in range(12, -1, -1):
        p = p * r + 1.0 / math.factorial(n)
    return (p.view(np.int64) + (shifted.view(np.int64) << 52)).view(np.float64)


def weights_of(row, temperature, min_p):
    """exp((row - largest) / temperature), float64; 0 below min_p and 700 below the largest."""
    with np.errstate(over="ignore"):
        x = (row.astype(np.float64) - float(row.max())) / temperature
    weights = np.where(x > -700, exp(np.maximum(x, -700)), 0.0)
    return np.where(weights >= min_p, weights, 0.0)


def total_of(weights):
    """Four sums side by side, what is left over goes to the first."""
    whole = len(weights) // 4 * 4
    lanes = [np.append(weights[i:whole:4], weights[whole:] if i == 0 else []) for i in range(4)]
    a, b, c, d = (float(np.cumsum(np.append(0.0, lane))[-1]) for lane in lanes)
    return (a + b) + (c + d)


def in_order(row):
    """All tokens: largest logit first, lowest token first among equals."""
    return np.lexsort((np.arange(len(row)), -row))


def picked(weights, target):
    """The first index whose running sum exceeds the target, else the last with a weight."""
    first = int(np.searchsorted(np.cumsum(weights), target, side="right"))
    return min(first, int(np.flatnonzero(weights)[-1]))


def drawn(row, temperature, min_p, top_k, top_p, draw):
    """The token that a draw falls on."""
    weights = weights_of(row, temperature, min_p)
    order, mass = in_order(row), top_p * total_of(weights)
    if 0 < top_k < len(row):
        order = order[:top_k]
        mass = top_p * np.cumsum(weights[order])[-1]
    elif top_p == 1:
        return picked(weights, draw * total_of(weights))
    running = np.cumsum(weights[order])
    size = min(int(np.searchsorted(running, mass)) + 1, len(order))
    return int(order[picked(weights[order[:size]], draw * running[size - 1])])


def penalised(row, sequence):
    """The row after repetition, then presence, then frequency penalty."""
    params, row = sequence.params, row.copy()
    scale = np.float32(params.repetition_penalty)
    seen = np.unique(sequence.token_ids)
    generated, counts = np.unique(np.array(sequence.generated_token_ids, int), return_counts=True)
    with np.errstate(over="ignore"):
        row[seen] = np.where(row[seen] > 0, row[seen] / scale, row[seen] * scale)
        row[generated] -= np.float32(params.presence_penalty)
        row[generated] -= np.float32(params.frequency_penalty) * counts.astype(np.float32)
    return row


def sampled(row, sequence):
    """Token and log-probabilities (token's own, then the likeliest), or None."""
    params = sequence.params
    left = penalised(row, sequence) if params.has_penalties else row
    if not np.isfinite(row).all() or not np.isfinite(left.max()):
        return None
    token = int(left.argmax())
    if params.temperature > 0:
        draw = uniform(sequence.draw_key, sequence.num_generated_tokens)
        token = drawn(left, params.temperature, params.min_p, params.top_k, params.top_p, draw)
    if params.logprobs is None:
        return token, None
    log_total = float(row.max()) + math.log(total_of(weights_of(row, 1.0, 0.0)))
    tokens = [token, *in_order(row)[: params.logprobs].tolist()]
    return token, [(t, float(np.float32(float(row[t]) - log_total))) for t in tokens]
