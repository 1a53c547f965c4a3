"""Comparing two ways to compute a model: each figure against its plain definition."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from worker.engine.config import EngineConfig
from worker.engine.fidelity import compare
from worker.engine.token_logits import TokenLogits
from worker.errors import ModelError

from .fake_model import VOCAB, FakeModel, logits_of

TEXT = [5 * i % 120 + (i % 7) for i in range(300)]


def _nearly(tokens):
    """The fake model's logits, a little off."""
    noise = np.random.default_rng(len(tokens)).normal(0, 0.1, VOCAB)
    return logits_of(tokens) + noise.astype(np.float32)


def _token_logits(logits):
    model = FakeModel(context_length=1000, logits=logits)
    loaded = SimpleNamespace(model=model, tokenizer=SimpleNamespace(vocab_size=VOCAB))
    return TokenLogits(loaded, EngineConfig(), len(TEXT))


def _probabilities(row):
    powers = np.exp(row.astype(np.float64))
    return powers / powers.sum()


def test_every_figure_is_what_it_says():
    """300 tokens, more than a step takes, against the definitions one row at a time."""
    rows = [(logits_of(TEXT[: i + 1]), _nearly(TEXT[: i + 1])) for i in range(len(TEXT))]
    found = compare(_token_logits(logits_of), _token_logits(_nearly), TEXT)
    pairs = [(_probabilities(a), _probabilities(b)) for a, b in rows]
    divergences = [float((p * np.log(p / q)).sum()) for p, q in pairs]
    assert len(TEXT) == found.num_tokens
    assert np.mean(divergences) == pytest.approx(found.mean_kl, rel=1e-9)
    assert max(divergences) == pytest.approx(found.max_kl, rel=1e-9)
    assert sum(a.argmax() == b.argmax() for a, b in rows) == found.same_argmax
    largest = max(float(np.abs(a.astype(np.float64) - b).max()) for a, b in rows)
    assert largest == found.max_difference
    following = list(zip(pairs, TEXT[1:], strict=False))
    reference = np.mean([-math.log(p[token]) for (p, _), token in following])
    nll = np.mean([-math.log(q[token]) for (_, q), token in following])
    assert (reference, nll) == pytest.approx((found.reference_nll, found.nll), rel=1e-12)
    assert abs(nll - reference) / reference == pytest.approx(found.nll_difference, rel=1e-6)


def test_a_model_is_itself():
    """Nothing differs."""
    found = compare(_token_logits(logits_of), _token_logits(logits_of), TEXT)
    assert (0.0, 0.0) == (found.mean_kl, found.max_kl)
    assert (0.0, 0.0) == (found.max_difference, found.nll_difference)
    assert len(TEXT) == found.same_argmax


@pytest.mark.parametrize("broken", [0, 1])
def test_a_side_that_is_not_finite_is_an_error(broken):
    """Neither side's NaN goes into a mean."""

    def nan_at_ten(tokens):
        row = logits_of(tokens)
        row[7] = np.nan if len(tokens) == 10 else row[7]
        return row

    sides = [logits_of, logits_of]
    sides[broken] = nan_at_ten
    with pytest.raises(ModelError, match="non-finite logits for token 10"):
        compare(*map(_token_logits, sides), TEXT)
