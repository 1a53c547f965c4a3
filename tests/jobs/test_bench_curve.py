"""Decode speed against the number of sequences."""

import pytest

from jobs.bench_curve import curve_lines, falls


def results(*speeds: float, pp: int = 128) -> list[dict]:
    """Results of the bench for B = 1, 2, 4, ... with these decode speeds."""
    fixed = {"pp": pp, "tg": 64, "dequant_cache_layers": None}
    return [fixed | {"b": 2**i, "s_tg": speed} for i, speed in enumerate(speeds)]


def test_a_rising_curve_has_no_falls():
    """More sequences, more tokens a second."""
    assert [] == falls(results(10.0, 20.0, 40.0))
    assert not any("FALLS" in line for line in curve_lines(results(10.0, 20.0, 40.0)))


def test_three_per_cent_are_noise_and_more_is_a_fall():
    """The bound is met from both sides."""
    assert [] == falls(results(100.0, 97.0))
    [fall] = falls(results(100.0, 96.9))
    assert (2, 1) == (fall["b"], fall["best_b"])
    assert fall["change"] == pytest.approx(-0.031)


def test_small_falls_add_up():
    """A curve that sinks step by step is measured against its best point."""
    [fall] = falls(results(100.0, 98.0, 96.0))
    assert (4, 1) == (fall["b"], fall["best_b"])


def test_a_fall_is_marked_in_its_line():
    """The table shows each point against the best before it."""
    lines = curve_lines(results(100.0, 120.0, 60.0))
    assert "decode against B, PP 128, TG 64" == lines[1]
    assert ["1", "100.00"] == lines[3].split()
    assert ["2", "120.00", "+20%"] == lines[4].split()
    assert ["4", "60.00", "-50%", "<--", "FALLS", "below", "B", "=", "2"] == lines[5].split()


def test_curves_are_told_apart_by_their_other_sizes():
    """Longer prompts are slower and no fall; a single point is no curve."""
    assert [] == falls(results(10.0, 20.0) + results(5.0, 9.0, pp=512))
    assert [] == curve_lines(results(10.0) + results(5.0, pp=512))


def test_points_are_sorted_by_size():
    """The order in which sizes are asked for does not matter."""
    assert [] == falls(results(10.0, 20.0, 40.0)[::-1])
