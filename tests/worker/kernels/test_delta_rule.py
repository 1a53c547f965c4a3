"""Short convolution and gated delta rule, against NumPy in float64, token by token."""

import numpy as np
import pytest

from tests.worker.kernels import naive
from tests.worker.kernels.array_kernels import run_items
from worker.kernels.delta_rule import delta_rule_task, scratch_bytes, softplus
from worker.kernels.native import address_of, real_word
from worker.kernels.short_convolution import CHANNELS_AN_ITEM, convolution_task

EPS = 1e-6


class Batch:
    """Sequences of (slot, first position, tokens) in one step, at fixed places."""

    def __init__(self, *sequences):
        self.slots = np.array([slot for slot, _, _ in sequences], np.int32)
        lengths = [length for *_, length in sequences]
        self.starts = np.cumsum([0, *lengths]).astype(np.int32)
        runs = [np.arange(first, first + length) for _, first, length in sequences]
        self.positions = np.concatenate(runs).astype(np.int32)

    @property
    def words(self):
        """As the tasks take them."""
        return [address_of(array) for array in (self.slots, self.starts, self.positions)]


def run(task, words, items):
    """Run all items of a task."""
    arguments, header = np.array(words, np.int64), np.zeros(1, np.int64)
    run_items(task.address, address_of(header), address_of(arguments), 0, items)


def convolve(x, kernel, states, batch):
    """Convolve rows of x [T, channels]."""
    out = np.empty_like(x)
    channels, parts = x.shape[1], -(-x.shape[1] // CHANNELS_AN_ITEM)
    words = [
        *(address_of(x), x.strides[0], address_of(out), out.strides[0]),
        *(address_of(kernel), channels, states.shape[1], address_of(states)),
        *batch.words,
        parts,
    ]
    run(convolution_task, words, parts * len(batch.slots))
    return out


def take(qkv, gates, weights, memories, shape, batch):
    """Take rows through the delta rule: [T, heads * value_dim]."""
    _, heads, key_dim, value_dim = shape
    out = np.empty((len(qkv), heads * value_dim), np.float32)
    scratch = np.empty(scratch_bytes(key_dim), np.uint8)
    words = [
        *(address_of(qkv), qkv.strides[0], address_of(gates), gates.strides[0]),
        *(address_of(out), out.strides[0], *map(address_of, weights), real_word(EPS)),
        *(*shape, address_of(memories), *batch.words, address_of(scratch), scratch.size),
    ]
    run(delta_rule_task, words, heads * len(batch.slots))
    return out


def naive_delta(qkv, gates, weights, shape):
    """One sequence from its first token, in float64."""
    key_heads, heads, key_dim, value_dim = shape
    decay, bias, norm = (weight.astype(np.float64) for weight in weights)
    memory, rows = np.zeros((heads, key_dim, value_dim)), []
    for x, g in zip(qkv.astype(np.float64), gates.astype(np.float64), strict=True):
        q, k, v = np.split(x, [key_heads * key_dim, 2 * key_heads * key_dim])
        z, rate, speed = np.split(g, [heads * value_dim, heads * (value_dim + 1)])
        row = []
        for h in range(heads):
            own = [a.reshape(key_heads, key_dim)[h % key_heads] for a in (q, k)]
            query, key = (a / np.sqrt((a**2).sum() + EPS) for a in own)
            memory[h] *= np.exp(decay[h] * np.log1p(np.exp(speed[h] + bias[h])))
            missing = v.reshape(heads, -1)[h] - key @ memory[h]
            memory[h] += np.outer(key, missing / (1 + np.exp(-rate[h])))
            out = naive.rms_norm(query @ memory[h] / np.sqrt(key_dim), norm, EPS)
            row.append(out * naive.silu(z.reshape(heads, -1)[h]))
        rows.append(np.concatenate(row))
    return np.array(rows)


def delta_case(shape, tokens, seed=0):
    """Random inputs: queries, keys and values; gates; decay, bias and norm."""
    key_heads, heads, key_dim, value_dim = shape
    random = np.random.default_rng(seed)
    width = 2 * key_heads * key_dim + heads * value_dim
    qkv = random.standard_normal((tokens, width), np.float32)
    gates = random.standard_normal((tokens, heads * (value_dim + 2)), np.float32)
    decay = -np.exp(random.standard_normal(heads)).astype(np.float32)
    bias = random.standard_normal(heads).astype(np.float32)
    norm = 1 + 0.1 * random.standard_normal(value_dim).astype(np.float32)
    return qkv, gates, (decay, bias, norm)


@pytest.mark.parametrize("channels", [3, 8, 256, 300])
@pytest.mark.parametrize("inputs", [1, 3])
def test_a_channel_is_the_weighted_sum_of_its_last_inputs(channels, inputs):
    """Zeros before the first token, then SiLU."""
    random = np.random.default_rng(channels)
    x = random.standard_normal((9, channels), np.float32)
    kernel = random.standard_normal((inputs + 1, channels), np.float32)
    states = np.full((2, inputs, channels), np.nan, np.float32)
    found = convolve(x, kernel, states, Batch((1, 0, 9)))
    padded = np.concatenate([np.zeros((inputs, channels)), x])
    sums = sum(padded[i : i + 9] * kernel[i] for i in range(inputs + 1))
    np.testing.assert_allclose(naive.silu(sums), found, atol=1e-5)
    assert np.array_equal(states[1], x[-inputs:])
    assert np.isnan(states[0]).all()


SHAPES = [(1, 1, 4, 4), (2, 6, 16, 16), (1, 2, 8, 40), (2, 2, 20, 13), (1, 3, 128, 128)]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_delta_rule_equals_the_naive_twin(shape):
    """Many tokens from a memory of zeros, whatever the slot held before."""
    qkv, gates, weights = delta_case(shape, 40)
    memories = np.full((2, *shape[1:]), np.nan, np.float32)
    found = take(qkv, gates, weights, memories, shape, Batch((1, 0, 40)))
    expected = naive_delta(qkv, gates, weights, shape)
    np.testing.assert_allclose(expected, found, atol=2e-5 * np.abs(expected).max())
    assert np.isnan(memories[0]).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chunk", [1, 7])
def test_chunks_and_neighbours_change_no_bit(shape, chunk):
    """A sequence at once, and in chunks beside another one that computes NaN."""
    qkv, gates, weights = delta_case(shape, 30)
    width = qkv.shape[1]
    kernel = np.random.default_rng(9).standard_normal((4, width), np.float32)
    states = np.zeros((3, 3, width), np.float32)
    memories = np.zeros((3, *shape[1:]), np.float32)
    batch = Batch((0, 0, 30))
    alone = take(convolve(qkv, kernel, states, batch), gates, weights, memories, shape, batch)
    found = []
    for first in range(0, 30, chunk):
        length = min(chunk, 30 - first)
        batch = Batch((1, 5 + first, 2), (2, first, length))
        rows = [np.full((2, a.shape[1]), np.nan, np.float32) for a in (qkv, gates)]
        x = np.concatenate([rows[0], qkv[first : first + length]])
        g = np.concatenate([rows[1], gates[first : first + length]])
        convolved = convolve(x, kernel, states, batch)
        found.append(take(convolved, g, weights, memories, shape, batch)[2:])
    assert np.array_equal(alone, np.concatenate(found))
    assert np.array_equal(memories[0], memories[2])
    assert np.array_equal(states[0], states[2])


def test_softplus_is_right_to_some_units_in_the_last_place():
    """From where it is 0 to where it is x."""
    x = np.concatenate([np.linspace(-104, 104, 4001), np.linspace(-1, 1, 1001)]).astype(np.float32)
    found = np.array([softplus(value) for value in x])
    expected = np.logaddexp(0, x.astype(np.float64))
    np.testing.assert_allclose(expected, found, rtol=1e-6, atol=1e-44)
    assert np.isnan(softplus(np.float32(np.nan)))
