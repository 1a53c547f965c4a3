"""The rotation kernel against its naive twin, in both layouts."""

import numpy as np
import pytest

from tests.worker.kernels import naive
from tests.worker.kernels.array_kernels import rope


@pytest.mark.parametrize("layout", ["pairs", "halves"])
@pytest.mark.parametrize(
    ("head_dim", "angles"), [(16, 8), (12, 4), (64, 32), (2, 1), (80, 20), (50, 25)]
)
def test_heads_rotate_like_the_naive_twin(layout, head_dim, angles):
    """Each head by the angles of its own position; values past the rotated width stay."""
    random = np.random.default_rng(head_dim)
    table = random.uniform(-3, 3, (50, angles))
    x = random.standard_normal((6, 3 * head_dim + 4), np.float32)
    positions = np.array([0, 1, 2, 49, 17, 17], np.int32)
    before = x.copy()
    cos, sin = np.cos(table).astype(np.float32), np.sin(table).astype(np.float32)
    rope(x, positions, cos, sin, 3, head_dim, 1 if layout == "pairs" else angles)
    for token, position in enumerate(positions):
        for head in range(3):
            columns = slice(head * head_dim, (head + 1) * head_dim)
            expected = naive.rope(before[token, columns], table[position], layout)
            np.testing.assert_allclose(expected, x[token, columns], atol=2e-6)
    assert np.array_equal(before[:, 3 * head_dim :], x[:, 3 * head_dim :])
