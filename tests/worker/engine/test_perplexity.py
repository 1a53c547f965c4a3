"""Perplexity: which tokens are scored, from which context, and the sums."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.engine.config import EngineConfig
from worker.engine.perplexity import TextWindow, log_sums, measure_perplexity, text_windows
from worker.engine.token_logits import TokenLogits
from worker.errors import ModelError

from .fake_model import END, GROUPS, VOCAB, FakeModel, logits_of, whole

BOS = 257
TEXT = [5 * i % 120 + (i % 7) for i in range(700)]


def _loss(before, token):
    """-ln p of a token after those before it, the plain way."""
    row = logits_of(before).astype(np.float64)
    return math.log(sum(math.exp(value) for value in row)) - float(row[token])


def _logits(model, size, vocab=VOCAB):
    loaded = SimpleNamespace(model=model, tokenizer=SimpleNamespace(vocab_size=vocab))
    return TokenLogits(loaded, EngineConfig(), size)


def _measure(ids, size, bos_id=None, **arguments):
    logits = _logits(FakeModel(context_length=1000), size)
    return measure_perplexity(logits, ids, bos_id, **arguments)


def test_windows_overlap_by_half():
    """The example of the module, and a text that fits one window."""
    expected = [
        TextWindow(0, 0, 4),
        TextWindow(2, 4, 6),
        TextWindow(4, 6, 8),
        TextWindow(6, 8, 10),
    ]
    assert expected == list(text_windows(10, 4))
    assert [TextWindow(0, 0, 4)] == list(text_windows(4, 4))
    assert [TextWindow(0, 0, 5), TextWindow(2, 5, 6)] == list(text_windows(6, 5))


@given(st.integers(1, 300), st.integers(2, 50))
def test_every_token_is_scored_once_with_half_a_window_before_it(length, size):
    """In order, without gap or overlap; no window is longer than asked for."""
    windows = list(text_windows(length, size))
    scored = [token for w in windows for token in range(w.first_scored, w.end)]
    assert list(range(length)) == scored
    assert all(w.end - w.start <= size for w in windows)
    assert all(w.first_scored - w.start >= size // 2 for w in windows[1:])


def test_a_text_of_one_window_is_scored_from_its_start():
    """The mean over all tokens but the first, each after all before it; steps change nothing."""
    found = _measure(TEXT, len(TEXT))
    expected = [_loss(TEXT[:i], TEXT[i]) for i in range(1, len(TEXT))]
    assert math.fsum(expected) / len(expected) == pytest.approx(found.mean_nll, rel=1e-12)
    assert math.exp(found.mean_nll) == found.perplexity
    counts = (found.num_tokens, found.num_scored, found.num_computed, found.num_windows)
    assert (700, 699, 699, 1) == counts
    assert found.tokens_per_second == 699 / found.seconds


def test_later_windows_see_their_own_tokens_only():
    """Windows of 10 tokens, moved by 5: the first five of the later ones are context."""
    text, means = TEXT[:23], []
    found = _measure(text, 10, progress=lambda *seen: means.append(seen))
    expected = [_loss(text[:i], text[i]) for i in range(1, 10)]
    for start in (5, 10, 15):
        ends = range(start + 5, min(start + 10, 23))
        expected += [_loss(text[start:i], text[i]) for i in ends]
    assert math.fsum(expected) / 22 == pytest.approx(found.mean_nll, rel=1e-12)
    assert (22, 9 + 9 + 9 + 7) == (found.num_scored, found.num_computed)
    assert [(1, 4), (2, 4), (3, 4), (4, 4)] == [seen[:2] for seen in means]
    assert means[-1][2] == found.mean_nll


def test_begin_of_text_stands_in_front_of_every_window():
    """It takes a place in the window and is never scored itself."""
    text = TEXT[:12]
    found = _measure([BOS, *text], 9, bos_id=BOS)
    expected = [_loss([BOS, *text[:i]], text[i]) for i in range(8)]
    expected += [_loss([BOS, *text[4:i]], text[i]) for i in range(8, 12)]
    assert math.fsum(expected) / 12 == pytest.approx(found.mean_nll, rel=1e-12)
    assert (13, 12, 2) == (found.num_tokens, found.num_scored, found.num_windows)


def test_a_first_token_that_is_no_begin_of_text_stands_in_no_other_window():
    """A model that has the token but does not add it is fed the text alone."""
    assert _measure(TEXT[:20], 8, bos_id=BOS).mean_nll == _measure(TEXT[:20], 8).mean_nll


def test_padding_of_the_vocabulary_has_no_probability():
    """Logits past the tokenizer's last token are no tokens' logits."""
    logits, row = _logits(FakeModel(), 4, vocab=200), logits_of([3])[:200].astype(np.float64)
    found = measure_perplexity(logits, [3, 4], None)
    assert np.log(np.exp(row).sum()) - row[4] == pytest.approx(found.mean_nll, rel=1e-12)


def test_two_tokens_are_enough():
    """One prediction."""
    found = _measure([3, 4], 4)
    assert _loss([3], 4) == pytest.approx(found.mean_nll, rel=1e-12)
    assert 1 == found.num_scored


class _LargeVocabulary:
    """Every token as likely as any other, in the largest vocabulary there is."""

    layer_groups = GROUPS
    state_shape = None
    config = SimpleNamespace(context_length=1000, long_from=None, vocab_size=262_144)

    def __init__(self):
        self.rows = []

    def forward(self, batch, kv):
        """Zeros, as many rows as were asked for."""
        self.rows.append(len(batch.logit_rows))
        assert batch.keep_logits.all()
        return whole(np.zeros((len(batch.logit_rows), 262_144), np.float32))


def test_memory_does_not_grow_with_the_text():
    """At most 64 MiB of logits at a time, and only of tokens that are scored."""
    model = _LargeVocabulary()
    logits = _logits(model, 300, 262_144)
    found = measure_perplexity(logits, [0] * 400, None)
    assert math.log(262_144) == pytest.approx(found.mean_nll, rel=1e-12)
    assert max(model.rows) <= (64 << 20) // (4 * 262_144)
    assert 399 == sum(model.rows)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_an_error(value):
    """NaN never becomes a perplexity; the message says at which token."""

    def broken(tokens):
        row = logits_of(tokens)
        row[END] = value if len(tokens) == 5 else row[END]
        return row

    logits = _logits(FakeModel(logits=broken), 64)
    with pytest.raises(ModelError, match="non-finite logits for token 5 of a window"):
        measure_perplexity(logits, TEXT[:20], None)


def test_sums_are_exact_at_the_ends_of_float32():
    """No overflow, and a lone logit has probability 1."""
    rows = np.array([[3e38, 3e38], [-3e38, -3e38], [3e38, -3e38]], np.float32)
    expected = [float(rows[0, 0]) + math.log(2), float(rows[1, 0]) + math.log(2), rows[2, 0]]
    assert expected == list(log_sums(rows, 1))


def test_blocks_are_given_back_after_every_window():
    """A pool of one window serves any number of them."""
    logits = _logits(FakeModel(context_length=1000), 16)
    first = measure_perplexity(logits, TEXT[:100], None)
    assert first.mean_nll == measure_perplexity(logits, TEXT[:100], None).mean_nll
