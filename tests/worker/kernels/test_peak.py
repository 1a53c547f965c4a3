"""Peaks: the instructions that are timed do the work that is counted."""

import numpy as np
import pytest

from worker.kernels.native import address_of
from worker.kernels.peak import CHAINS, PEAKS, available_peaks, peak_task


def naive(peak, sums, factors, turns):
    """Sums after so many turns; the weights are the sums' own bytes, or the factors."""
    with np.errstate(over="ignore"):
        for _ in range(turns):
            weights = sums if peak.lane_bits == 16 else factors.view(np.int32)
            signed = peak.name.startswith("sdot")
            bytes_ = weights.view(np.int8 if signed else np.uint8).astype(np.int64)
            products = np.broadcast_to(bytes_, (CHAINS, peak.n_bytes)) * factors
            group = peak.lane_bits // 8
            added = products.reshape(CHAINS, -1, group).sum(-1)
            if peak.lane_bits == 16:
                added = added.clip(-32768, 32767)
            sums = sums + added.astype(sums.dtype)
    return sums


@pytest.mark.parametrize("isa", sorted(available_peaks()))
@pytest.mark.parametrize("turns", [1, 2, 50])
def test_a_peak_multiplies_and_adds(isa, turns):
    """Every chain of every item does each turn: nothing that is counted was optimised away."""
    peak = PEAKS[isa]
    rng = np.random.default_rng(turns)
    dtype = np.int16 if peak.lane_bits == 16 else np.int32
    bounds = np.iinfo(dtype)
    first = rng.integers(bounds.min, bounds.max, (2, CHAINS, peak.lanes), dtype, endpoint=True)
    factors = rng.integers(-128, 128, peak.n_bytes, np.int8)
    expected = np.stack([naive(peak, sums, factors, turns) for sums in first])
    arguments = np.array([turns, address_of(factors), address_of(first)], np.int64)
    for item in range(2):
        peak_task(isa)(0, address_of(arguments), item, 0)
    assert np.array_equal(expected, first)


def test_operations_are_counted_by_the_byte():
    """A multiplication and an addition for each byte of a register, over all chains."""
    assert 2 * CHAINS * 32 == PEAKS["avx2"].operations == PEAKS["avx-vnni"].operations
    assert 2 * CHAINS * 64 == PEAKS["avx512-vnni"].operations
    assert 2 * CHAINS * 16 == PEAKS["neon-dot"].operations
