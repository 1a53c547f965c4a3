"""Rotary tables: their angles, and how they grow."""

import numpy as np

from worker.models import rotary as module
from worker.models.rope_config import RopeConfig
from worker.models.rotary import RotaryEmbedding


def _row(rotary, position):
    """Cosines, then sines of a position."""
    rotary.reach(position)
    return np.concatenate([rotary.cos[position], rotary.sin[position]])


def test_angles_are_products_rounded_to_float32():
    """As the reference does it: float32(position * float32(frequency)), then cos and sin."""
    rotary = RotaryEmbedding(RopeConfig(10_000.0, 64, "halves"), 9000)
    frequencies = (10_000.0 ** -(np.arange(0, 64, 2) / 64)).astype(np.float32)
    for position in (0, 1, 511, 8191, 8192, 8999):
        angles = (np.float32(position) * frequencies).astype(np.float64)
        expected = np.concatenate([np.cos(angles), np.sin(angles)]).astype(np.float32)
        assert np.array_equal(expected, _row(rotary, position))


def test_a_grown_table_equals_one_made_at_once(monkeypatch):
    """Growing by doubling gives the same rows."""
    config = RopeConfig(500_000.0, 16, "halves", 2.0)
    whole = RotaryEmbedding(config, 1000)
    monkeypatch.setattr(module, "_FIRST_LENGTH", 10)
    grown = RotaryEmbedding(config, 1000)
    for position in (9, 10, 21, 700, 999):
        assert np.array_equal(_row(whole, position), _row(grown, position))


def test_an_absurd_context_reserves_nothing():
    """Two billion positions are promised; tables are made for those that come."""
    rotary = RotaryEmbedding(RopeConfig(10_000.0, 128, "pairs"), (1 << 31) - 1)
    assert len(rotary.cos) <= 8192
