"""Sending rows to their experts and adding up what these gave, against NumPy."""

import numpy as np
import pytest

from tests.worker.kernels.array_kernels import run_items
from worker.kernels.native import address_of
from worker.kernels.pair_task import combine_task, send_task


def run(task, words, rows, an_item):
    """Run a task over so many rows; its last two arguments are header words 0 and 1."""
    header = np.array([rows, an_item], np.int64)
    arguments = np.array([*words, 0, 1], np.int64)
    run_items(task.address, address_of(header), address_of(arguments), 0, -(-rows // an_item))


@pytest.mark.parametrize("an_item", [1, 4, 100])
def test_each_place_gets_its_token(an_item):
    """Whatever the order, also the same token several times; other rows are left as they are."""
    random = np.random.default_rng(0)
    x, out = random.standard_normal((5, 12), np.float32), np.full((9, 12), np.nan, np.float32)
    sources = random.integers(0, 5, 7).astype(np.int32)
    words = [address_of(x), x.strides[0], address_of(out), out.strides[0], address_of(sources)]
    run(send_task, words, 7, an_item)
    assert np.array_equal(x[sources], out[:7])
    assert np.isnan(out[7:]).all()


@pytest.mark.parametrize("width", [1, 8, 13, 64])
@pytest.mark.parametrize("an_item", [1, 3])
def test_a_token_is_the_weighted_sum_of_its_places(width, an_item):
    """Added to what was there, in the order of the ranks: the bits of a chain of sums."""
    random = np.random.default_rng(width)
    tokens, used = 6, 3
    places = random.permutation(tokens * used).astype(np.int32).reshape(tokens, used)
    y = random.standard_normal((tokens * used, width), np.float32)
    weights = random.random((tokens, used), np.float32)
    before = random.standard_normal((tokens, width), np.float32)
    out = before.copy()
    words = [
        *(address_of(y), y.strides[0], address_of(out), out.strides[0], width, used),
        *(address_of(places), address_of(weights)),
    ]
    run(combine_task, words, tokens, an_item)
    sums = np.einsum("tk,tkw->tw", weights.astype(np.float64), y[places].astype(np.float64))
    np.testing.assert_allclose(before + sums, out, atol=1e-6)
    alone = before[3:4].copy()
    words[2:4] = address_of(alone), alone.strides[0]
    words[6:] = address_of(places[3:4]), address_of(weights[3:4])
    run(combine_task, words, 1, 1)
    assert np.array_equal(out[3], alone[0])
