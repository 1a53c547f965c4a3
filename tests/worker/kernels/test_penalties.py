"""Penalties in place, and taken back."""

import numpy as np

from worker.kernels.penalties import penalise, restore


def penalised(row, tokens, generated, repetition=1.0, presence=0.0, frequency=0.0):
    """A row after penalties; the row itself is checked to be restored."""
    row = np.array(row, np.float32)
    before, saved = row.copy(), np.empty(len(row), np.float32)
    tokens, generated = np.array(tokens, np.int32), np.array(generated, np.int32)
    factors = [np.float32(factor) for factor in (repetition, presence, frequency)]
    penalise(row, tokens, generated, *factors, saved)
    after = row.tolist()
    restore(row, tokens, saved)
    assert before.tobytes() == row.tobytes()
    return after


def test_penalties_look_where_they_should():
    """Presence and frequency at the completion, repetition at the prompt as well."""
    row, tokens, generated = [2.0, -2.0, 2.0, 2.0], [0, 1, 2], [0, 0, 2]
    assert [2.0, -2.0, 1.5, 2.0] == penalised(row, tokens, generated, presence=0.5)
    assert [2.0, -2.0, 1.0, 2.0] == penalised(row, tokens, generated, frequency=0.5)
    assert [1.0, -4.0, 1.0, 2.0] == penalised(row, tokens, generated, repetition=2)


def test_repetition_comes_first():
    """What it makes of a logit is what the others are subtracted from, one after the other."""
    assert [(3.0 / 2 - 0.25) - 3 * 0.125] == penalised([3.0], [0], [3], 2.0, 0.25, 0.125)
    assert [(-3.0 * 2 + 0.25) + 3 * 0.125] == penalised([-3.0], [0], [3], 2.0, -0.25, -0.125)


def test_each_step_is_rounded_to_float32():
    """As NumPy computes them, so that tokens stay what they were."""
    random = np.random.default_rng(0)
    row = random.normal(0, 10, 1000).astype(np.float32)
    generated = random.integers(0, 50, 1000)
    third, seventh, tenth = np.float32(1.3), np.float32(0.7), np.float32(0.1)
    expected = np.where(row > 0, row / third, row * third)
    less = expected - seventh - tenth * generated.astype(np.float32)
    expected = np.where(generated > 0, less, expected)
    assert expected.tolist() == penalised(row, range(1000), generated, third, seventh, tenth)


def test_what_leaves_float32_is_infinite():
    """Upwards and downwards; it is the sampler that refuses the row."""
    assert [np.inf, -np.inf] == penalised([1e38, -1e38], [0, 1], [0, 0], np.float32(0.01))[
        :1
    ] + penalised([1e38, -1e38], [1], [0], 100.0)[1:]


def test_no_token_is_no_penalty():
    """A row without tokens stays."""
    assert [1.0] == penalised([1.0], [], [], 2.0, 2.0, 2.0)
