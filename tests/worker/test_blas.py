"""BLAS tiles: slices by shape, the proof of independence, and rows that keep their bits."""

import numpy as np
import pytest

from worker import blas
from worker.blas import TILES, BlasMatmul, blas_identity, prove_tile, slices
from worker.matmul import CompiledMatmul, choose_matmul
from worker.thread_team import ThreadTeam

SHAPES = [(64, 32), (100, 96), (33, 20), (960, 576)]


@pytest.fixture(scope="module")
def team():
    """Two threads."""
    with ThreadTeam(2) as team:
        yield team


def _position_dependent(weight, tiles, out):
    """A BLAS whose last column of a tile of 16 is computed another way."""
    np.matmul(weight, tiles, out=out)
    if tiles.shape[-1] == 16:
        out[..., -1] = np.nextafter(out[..., -1], np.inf)


def _neighbour_dependent(weight, tiles, out):
    """A BLAS in which every row feels the others."""
    np.matmul(weight, tiles, out=out)
    out += tiles.max() * np.float32(1e-6)


def _alone_dependent(weight, tiles, out):
    """A BLAS that no tile satisfies: column 0 always differs."""
    np.matmul(weight, tiles, out=out)
    out[..., 0] = np.nextafter(out[..., 0], np.inf)


@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (16, 64), (3072, 576), (49152, 576)])
def test_slices_cover_all_rows_once(outputs, inputs):
    """In order, without gaps; all but the last a multiple of 8 rows."""
    parts = slices(outputs, inputs)
    assert 0 == parts[0][0]
    assert outputs == parts[-1][1]
    assert [a[1] for a in parts[:-1]] == [b[0] for b in parts[1:]]
    assert all((last - first) % 8 == 0 for first, last in parts[:-1])


def test_the_library_here_proves_itself():
    """NumPy's BLAS passes on this machine with a tile that DESIGN allows."""
    assert prove_tile(SHAPES) in TILES


def test_a_position_dependent_tile_is_rejected_and_a_smaller_one_taken():
    """Tiles of 16 fail at their last position, tiles of 8 pass."""
    assert 8 == prove_tile(SHAPES, _position_dependent)


@pytest.mark.parametrize("product", [_neighbour_dependent, _alone_dependent])
def test_no_tile_passes_when_rows_depend_on_their_surroundings(product):
    """Then there is no proof."""
    assert prove_tile(SHAPES, product) is None


def test_the_proof_is_remembered_per_shape():
    """A second model of the same shapes proves nothing again."""
    prove_tile([(48, 40)])
    misses = blas._rows_independent.cache_info().misses
    prove_tile([(48, 40), (48, 40)])
    assert misses == blas._rows_independent.cache_info().misses


def test_an_unproven_library_is_replaced_by_the_compiled_kernel(team, caplog):
    """The choice is logged, and shows in the numerics identity."""
    chosen = choose_matmul("blas", SHAPES, team, _neighbour_dependent)
    assert isinstance(chosen, CompiledMatmul)
    assert "compiled float32" == chosen.numerics
    assert "using the compiled float32 kernel instead" in caplog.text


def test_the_identity_names_library_and_tile(team):
    """What a pool compares before workers share a job."""
    chosen = choose_matmul("blas", SHAPES, team)
    assert f"blas {blas_identity()}, tile {chosen.tile}" == chosen.numerics
    assert len(blas_identity().split()) >= 3


@pytest.mark.parametrize("kind", ["blas", "compiled"])
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 150])
def test_products_equal_float64(kind, outputs, inputs, tokens, team):
    """Whole tiles, padded tiles and several groups of tiles, into a wider array."""
    random = np.random.default_rng(tokens)
    weight = random.standard_normal((outputs, inputs), np.float32)
    x = random.standard_normal((tokens, inputs), np.float32)
    out = np.full((tokens, outputs + 10), 7, np.float32)
    choose_matmul(kind, SHAPES, team).multiply(weight, x, out, 6)
    expected = x.astype(np.float64) @ weight.T.astype(np.float64)
    np.testing.assert_allclose(expected, out[:, 6:-4], atol=1e-5 * inputs**0.5)
    assert (out[:, :6] == 7).all()
    assert (out[:, -4:] == 7).all()


@pytest.mark.parametrize("kind", ["blas", "compiled"])
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_a_row_has_the_same_bits_in_any_batch_on_any_threads(kind, outputs, inputs, team):
    """Alone, at every place of batches of 2 to 40 rows, with 1, 2 and 3 threads."""
    random = np.random.default_rng(outputs)
    weight = random.standard_normal((outputs, inputs), np.float32)
    row = random.standard_normal(inputs, np.float32)
    alone = np.empty((1, outputs), np.float32)
    choose_matmul(kind, SHAPES, team).multiply(weight, row[None], alone)
    for threads in (1, 2, 3):
        with ThreadTeam(threads) as other:
            chosen = choose_matmul(kind, SHAPES, other)
            for tokens in (2, 16, 23, 40):
                x = random.standard_normal((tokens, inputs), np.float32)
                x[::3] = row
                out = np.empty((tokens, outputs), np.float32)
                chosen.multiply(weight, x, out)
                assert np.array_equal(np.repeat(alone, len(x[::3]), 0), out[::3])


def test_padding_left_by_an_earlier_call_changes_nothing(team):
    """The rows of a padded tile are cleared: a larger batch before leaves no trace."""
    random = np.random.default_rng(0)
    weight = random.standard_normal((64, 32), np.float32)
    x = random.standard_normal((3, 32), np.float32)
    first, second = np.empty((3, 64), np.float32), np.empty((3, 64), np.float32)
    chosen = BlasMatmul(team, 16)
    chosen.multiply(weight, x, first)
    chosen.multiply(weight, np.full((15, 32), np.nan, np.float32), np.empty((15, 64), np.float32))
    chosen.multiply(weight, x, second)
    assert np.array_equal(first, second)
