"""Draws: functions of key and position alone."""

import numpy as np

from worker.engine.draws import draw_key

from .naive_sampler import uniform


def test_draws_are_uniform():
    """Positions of a row and rows at one position both spread over [0, 1)."""
    positions = [uniform(draw_key(None, 0, 7), i) for i in range(4000)]
    rows = [uniform(draw_key(None, 0, row), 0) for row in range(4000)]
    seeds = [uniform(draw_key(seed, 0, 0), 0) for seed in range(4000)]
    for draws in (positions, rows, seeds):
        assert 0 <= min(draws) < max(draws) < 1
        assert np.abs(np.histogram(draws, 10, (0, 1))[0] - 400).max() < 100
        assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.06


def test_key_of_a_seeded_row_is_its_seed_alone():
    """Equal seeds draw equally in any job and row."""
    assert draw_key(5, 1, 2) == draw_key(5, 3, 4) == (5, 0)


def test_keys_of_unseeded_rows_differ():
    """Row and job seed both count."""
    keys = {draw_key(None, job, row) for job in range(30) for row in range(30)}
    assert len(keys) == 900


def test_completions_of_a_row_differ():
    """The completion index is part of the key, with a seed and without."""
    assert draw_key(5, 0, 0, 1) != draw_key(5, 0, 0)
    assert draw_key(None, 0, 0, 1) != draw_key(None, 0, 0)


def test_draws_never_change():
    """A new release draws as the last one: these figures are part of the numerics version."""
    assert draw_key(None, 0, 1) == (15490581646443326957, 17967734939356256434)
    assert uniform(draw_key(3, 0, 0), 0) == 0.743828011126154
    assert 0 <= uniform(draw_key(2**64 - 1, 0, 0, 2**64 - 1), 2**31) < 1
