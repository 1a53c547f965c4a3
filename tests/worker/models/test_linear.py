"""Projections over packed weights: against float64, and the same bits however they are cut."""

import numpy as np
import pytest
from gguf import quants
from gguf.constants import GGMLQuantizationType as Q

from kvpool import KVCache, LayerGroup
from tests.worker.kernels.array_kernels import gated_activation
from worker.kernels.layouts import layout_of
from worker.kernels.pack import pack_rows
from worker.kernels.projection_task import tile_table
from worker.kernels.quantize import quantized
from worker.kernels.tile import tiles
from worker.models.batch_memory import TOKENS, Capacity
from worker.models.linear import PackedLinear, PackedPart
from worker.models.rows import Rows
from worker.models.step import Step
from worker.packed_file import PackedTensor
from worker.stages import Stages
from worker.thread_team import ThreadTeam

COLUMNS = 64
CAPACITY = 40


def raw_rows(qtype, rows, seed):
    """Rows of a type as a file stores them, and their values [rows, COLUMNS]."""
    values = np.random.default_rng(seed).standard_normal((rows, COLUMNS), np.float32)
    raw = quants.quantize(values, qtype)
    return raw, quants.dequantize(raw, qtype)


def part(qtype, rows, column, seed):
    """A packed tensor of random values as a part of a projection, and its values."""
    raw, values = raw_rows(qtype, rows, seed)
    layout = layout_of(qtype)
    size = layout.packed_bytes(rows, COLUMNS)
    memory = np.zeros(size + 64, np.uint8)
    skew = -memory.ctypes.data % 64
    packed = memory[skew : skew + size]
    pack_rows(np.ascontiguousarray(raw).view(np.uint8).reshape(rows, -1), layout, COLUMNS, packed)
    tensor = PackedTensor(qtype, rows, COLUMNS, packed.reshape(-1, layout.row_block_bytes(COLUMNS)))
    return PackedPart(tensor, layout, tile_table(tiles(qtype)), column), values


@pytest.fixture(scope="module", params=[1, 3])
def team(request):
    """One thread, and more than cores."""
    with ThreadTeam(request.param) as made:
        yield made


def new_step(team):
    """An empty recording with room for CAPACITY tokens."""
    group = LayerGroup(name="full", layers=(0,), num_kv_heads=1, head_dim=8, window=None)
    cache = KVCache([group], [1], 16)
    return Step(Capacity(CAPACITY, CAPACITY, 1, 1), cache, [group], [], team, Stages())


def source(step, x):
    """The rows of x, in both forms, in a recording's memory."""
    floats, records = step.floats("in", x.shape[1]), step.records("in", x.shape[1])
    floats.array[: len(x)] = x
    records.array[: len(x)] = quantized(x)
    return Rows(x.shape[1], step.tokens, floats=lambda: floats, records=lambda: records)


def project(linear, x, team, to=None):
    """Run a projection alone; with `to`, added to it."""
    step = new_step(team)
    out = step.floats("out", linear.outputs)
    if to is not None:
        out.array[: len(x)] = to
    linear.record(step, "lm_head", source(step, x), out, adds=to is not None)
    step.program.finish()
    step.program.header[TOKENS] = len(x)
    step.program.run()
    return out.array[: len(x)].copy()


def rounded(x):
    """What is left of x after quantisation, float64."""
    records = quantized(x).reshape(len(x), -1, 48)
    d = records[..., :4].copy().view(np.float32).astype(np.float64)
    return (d * records[..., 16:].copy().view(np.int8)).reshape(x.shape)


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 100])
@pytest.mark.parametrize("qtype", [Q.Q4_0, Q.Q8_0, Q.F16, Q.F32])
def test_a_projection_is_the_product_with_the_rounded_tokens(qtype, rows, team):
    """Quantised weights meet quantised tokens, floats meet floats; rests of row blocks too."""
    x = np.random.default_rng(rows).standard_normal((13, COLUMNS), np.float32)
    packed, values = part(qtype, rows, 0, 1)
    found = project(PackedLinear([packed], [], rows), x, team)
    tokens = rounded(x) if packed.takes_records else x.astype(np.float64)
    np.testing.assert_allclose(found, tokens @ values.T.astype(np.float64), atol=3e-5)


def test_tensors_of_several_types_lie_side_by_side(team):
    """Query, key and value may each have a type of their own, also floats beside integers."""
    x = np.random.default_rng(0).standard_normal((9, COLUMNS), np.float32)
    kinds = [(Q.Q4_1, 33), (Q.F16, 10), (Q.Q5_0, 7)]
    parts, alone, column = [], [], 0
    for seed, (qtype, rows) in enumerate(kinds):
        parts.append(part(qtype, rows, column, seed)[0])
        alone.append(project(PackedLinear([part(qtype, rows, 0, seed)[0]], [], rows), x, team))
        column += rows
    together = project(PackedLinear(parts, [], column), x, team)
    assert np.array_equal(np.concatenate(alone, axis=1), together)


def test_bias_and_addition_come_after_the_product(team):
    """W x + b, and what was there before plus W x + b, in this order of rounding."""
    random = np.random.default_rng(0)
    x = random.standard_normal((11, COLUMNS), np.float32)
    bias, before = (
        random.standard_normal(40, np.float32),
        random.standard_normal((11, 40), np.float32),
    )
    packed, _ = part(Q.Q8_0, 40, 0, 0)
    plain = project(PackedLinear([packed], [], 40), x, team)
    with_bias = PackedLinear([packed], [], 40, bias)
    assert np.array_equal(plain + bias, project(with_bias, x, team))
    assert np.array_equal(before + (plain + bias), project(with_bias, x, team, before))


@pytest.mark.parametrize("tokens", [1, 2, 3, 7, 8, 9, 31, 40])
def test_a_token_has_the_same_bits_beside_any_tokens(tokens, team):
    """The tile that a token falls into does not show in its result."""
    x = np.random.default_rng(7).standard_normal((CAPACITY, COLUMNS), np.float32)
    linear = PackedLinear([part(Q.Q5_1, 48, 0, 3)[0]], [], 48)
    everything = project(linear, x, team)
    for first in range(0, CAPACITY, tokens):
        found = project(linear, x[first : first + tokens], team)
        assert np.array_equal(everything[first : first + tokens], found)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_gating_in_one_task_equals_its_steps(activation, team):
    """Gate, up, activation and quantisation, fused, give the records of the steps one by one."""
    x = np.random.default_rng(5).standard_normal((21, COLUMNS), np.float32)
    linear = PackedLinear([part(Q.Q4_0, 96, 0, 1)[0], part(Q.Q8_0, 96, 96, 2)[0]], [], 192)
    assert linear.can_gate
    step = new_step(team)
    out = step.records("out", 96)
    linear.record_gated(step, "ffn_gate_up", source(step, x), out, activation)
    step.program.finish()
    step.program.header[TOKENS] = len(x)
    step.program.run()
    gated = np.empty((21, 96), np.float32)
    gated_activation(project(linear, x, team), gated, activation)
    assert np.array_equal(quantized(gated), out.array[:21])


@pytest.mark.parametrize(
    ("parts", "bias"),
    [
        ([(Q.Q4_0, 96), (Q.F16, 96)], None),
        ([(Q.Q4_0, 40), (Q.Q4_0, 40)], None),
        ([(Q.Q4_0, 32), (Q.Q4_0, 32)], np.zeros(64, np.float32)),
        ([(Q.Q4_0, 64)], None),
    ],
)
def test_gating_is_not_fused_where_it_cannot_be(parts, bias):
    """Float weights, widths that are no whole blocks, biases and other shapes take the long way."""
    made = [part(qtype, rows, 0, 0)[0] for qtype, rows in parts]
    assert not PackedLinear(made, [], sum(rows for _, rows in parts), bias).can_gate


def test_a_nan_in_a_token_stays_with_the_token(team):
    """Its row of the result is NaN in every column, other rows are as before."""
    x = np.random.default_rng(2).standard_normal((10, COLUMNS), np.float32)
    linear = PackedLinear([part(Q.Q4_1, 32, 0, 3)[0]], [], 32)
    before = project(linear, x, team)
    x[4, 40] = np.nan
    after = project(linear, x, team)
    assert np.isnan(after[4]).all()
    rest = np.arange(10) != 4
    assert np.array_equal(before[rest], after[rest])
