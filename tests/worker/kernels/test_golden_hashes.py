"""Kernel outputs have the bits that they have on every other machine.

``make test-arm64`` compares the same hashes on an emulated arm64 CPU. When a kernel was changed on
purpose, ``python -m tests.worker.kernels.kernel_hashes --write`` renews the file.
"""

import numpy as np
import pytest

from .kernel_hashes import CASES, hash_of, stored_hashes


@pytest.mark.parametrize("name", CASES)
def test_the_hash_of_a_kernel_s_output_is_the_stored_one(name):
    """One case: fixed inputs, hashed bits."""
    assert stored_hashes().get(name) == hash_of(name)


def test_the_file_holds_no_case_that_is_gone():
    """Every stored hash is compared."""
    assert list(CASES) == list(stored_hashes())


def test_nan_is_one_value_and_every_other_bit_counts(monkeypatch):
    """CPUs differ in the sign of NaN and in nothing else."""
    arrays = {
        "a": np.array([np.nan, 1.0], np.float32),
        "b": np.array([-np.nan, 1.0], np.float32),
        "c": np.array([np.nan, np.nextafter(np.float32(1), np.float32(2))], np.float32),
        "d": np.array([np.nan, 1.0]),
    }
    for name, array in arrays.items():
        monkeypatch.setitem(CASES, name, lambda array=array: [array])
    assert hash_of("a") == hash_of("b")
    assert 3 == len({hash_of("a"), hash_of("c"), hash_of("d")})
