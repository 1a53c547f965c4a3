"""Rotary tables: their angles, and how they grow."""

import numpy as np

from worker.models import rotary as module
from worker.models.config import RopeConfig
from worker.models.rotary import RotaryEmbedding


def _rotated(rotary, position, dimensions):
    """Ones in the first half of a head, zeros in the second, rotated: cosines, then sines."""
    x = np.zeros((1, dimensions), np.float32)
    x[0, : dimensions // 2] = 1
    rotary.rotate(x, np.array([position], np.int32), 1, dimensions)
    return x[0]


def test_angles_are_products_rounded_to_float32():
    """As the reference does it: float32(position * float32(frequency)), then cos and sin."""
    rotary = RotaryEmbedding(RopeConfig(10_000.0, 64, "halves"), 9000)
    frequencies = (10_000.0 ** -(np.arange(0, 64, 2) / 64)).astype(np.float32)
    for position in (0, 1, 511, 8191, 8192, 8999):
        rotary.reach(position)
        angles = (np.float32(position) * frequencies).astype(np.float64)
        expected = np.concatenate([np.cos(angles), np.sin(angles)]).astype(np.float32)
        assert np.array_equal(expected, _rotated(rotary, position, 64))


def test_a_grown_table_equals_one_made_at_once(monkeypatch):
    """Growing by doubling gives the same rows."""
    config = RopeConfig(500_000.0, 16, "halves", 2.0)
    whole = RotaryEmbedding(config, 1000)
    monkeypatch.setattr(module, "_FIRST_LENGTH", 10)
    grown = RotaryEmbedding(config, 1000)
    for position in (9, 10, 21, 700, 999):
        grown.reach(position)
        assert np.array_equal(_rotated(whole, position, 16), _rotated(grown, position, 16))


def test_an_absurd_context_reserves_nothing():
    """Two billion positions are promised; tables are made for those that come."""
    rotary = RotaryEmbedding(RopeConfig(10_000.0, 128, "pairs"), (1 << 31) - 1)
    assert len(rotary._cos) <= 8192
