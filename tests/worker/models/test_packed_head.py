"""The packed output head: best tokens found on the way are those of the logits."""

from types import SimpleNamespace

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType as Q

from tests.worker.kernels.array_kernels import soft_cap
from tests.worker.models.test_linear import COLUMNS, new_step, part, project
from worker.kernels.quantize import quantized
from worker.models.batch_memory import LOGIT_ITEMS, LOGIT_ROWS, LOGITS_AN_ITEM
from worker.models.head_memory import HeadMemory
from worker.models.linear import PackedLinear
from worker.models.packed_head import PackedHead
from worker.models.rows import Rows
from worker.thread_team import ThreadTeam

ROWS = 11


@pytest.fixture(scope="module", params=[1, 3])
def team(request):
    """One thread, and more than cores."""
    with ThreadTeam(request.param) as made:
        yield made


def run_head(packed, x, team, keep, num_tokens, cap=None):
    """Logits with best tokens of rows x."""
    step = new_step(team)
    rows = step.logit_rows
    floats, records = step.floats("in", COLUMNS, rows), step.records("in", COLUMNS, rows)
    floats.array[: len(x)], records.array[: len(x)] = x, quantized(x)
    source = Rows(COLUMNS, rows, floats=lambda: floats, records=lambda: records)
    logits = step.floats("logits", packed.tensor.rows, rows)
    logits.array[:] = -7
    memory = HeadMemory(logits, np.empty(rows.capacity, np.int32), np.empty(rows.capacity, "f4"))
    config = SimpleNamespace(logit_cap=cap, num_tokens=num_tokens)
    PackedHead(packed).record(step, source, memory, config)
    step.program.finish()
    step.memory.keep_logits[: len(x)] = keep
    header = step.program.header
    header[[LOGIT_ROWS, LOGITS_AN_ITEM, LOGIT_ITEMS]] = len(x), 1, len(x)
    step.program.run()
    return memory.read(np.array(keep))


@pytest.mark.parametrize("qtype", [Q.Q4_0, Q.Q8_0, Q.F32])
@pytest.mark.parametrize(("vocabulary", "tokens"), [(160, 160), (160, 151), (100, 99), (1000, 980)])
@pytest.mark.parametrize("cap", [None, 1.5])
def test_best_tokens_are_those_of_the_logits(qtype, vocabulary, tokens, cap, team):
    """The first largest among the tokenizer's tokens, whatever the padding behind them holds."""
    x = np.random.default_rng(vocabulary).standard_normal((ROWS, COLUMNS), np.float32)
    packed, _ = part(qtype, vocabulary, 0, 3)
    expected = project(PackedLinear([packed], [], vocabulary), x, team)
    if cap is not None:
        soft_cap(expected, cap)
    keep = np.arange(ROWS) % 3 == 0
    found = run_head(packed, x, team, keep, tokens, cap)
    assert np.array_equal(expected[:, :tokens].argmax(axis=1), found.best_token)
    assert np.array_equal(expected[:, :tokens].max(axis=1), found.best_value)
    assert np.array_equal(expected[keep], found.rows[keep])
    assert (found.rows[~keep] == -7).all()


def test_equal_logits_give_the_lowest_token(team):
    """Rows of zeros tie everywhere: token 0 wins."""
    packed, _ = part(Q.Q8_0, 96, 0, 1)
    found = run_head(packed, np.zeros((3, COLUMNS), np.float32), team, [False] * 3, 96)
    assert [0, 0, 0] == found.best_token.tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_has_no_best_token(bad, team):
    """It is named, and the rows beside it keep theirs."""
    x = np.random.default_rng(1).standard_normal((5, COLUMNS), np.float32)
    packed, _ = part(Q.Q4_1, 96, 0, 1)
    before = run_head(packed, x, team, [True] * 5, 96).best_token.tolist()
    x[2, 7] = bad
    after = run_head(packed, x, team, [True] * 5, 96).best_token.tolist()
    assert [*before[:2], -1, *before[3:]] == after


def test_no_rows_are_fine(team):
    """A step in which no row samples computes no logits."""
    packed, _ = part(Q.Q4_0, 96, 0, 1)
    assert 0 == len(run_head(packed, np.zeros((0, COLUMNS), np.float32), team, [], 96))
