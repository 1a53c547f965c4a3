"""Sampler: which token, for every setting, alone and in any batch."""

import math
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.engine.completion import TokenLogprobs
from worker.engine.sampler import Sample, Sampler
from worker.models.logits import Logits
from worker.thread_team import ThreadTeam

from .fake_model import whole
from .naive_sampler import sampled
from .sequences import make_sequence

QRS = np.log(np.array([0.5, 0.3, 0.2], np.float32))


def make_sampler(vocab_size):
    """A sampler that works in this thread."""
    return Sampler(vocab_size, ThreadTeam(1))


def _sample(logits, *sequences):
    logits = np.ascontiguousarray(np.atleast_2d(np.asarray(logits, np.float32)))
    return [
        s and s.token_id for s in make_sampler(logits.shape[1]).sample(whole(logits), sequences)
    ]


def _vocabulary(size=300):
    """300 logits of which three tokens have all but nothing: 100, 200, 299."""
    logits = np.full(size, -30, np.float32)
    logits[[100, 200, 299]] = QRS
    return logits


def _letters(**params):
    """The tokens that 200 seeded rows of one step draw."""
    rows = [make_sequence(seed=seed, **{"temperature": 1, **params}) for seed in range(200)]
    return Counter(_sample(np.tile(_vocabulary(), (200, 1)), *rows))


def test_greedy_takes_the_lowest_id_of_equals():
    """An exact tie goes to the lowest token id."""
    assert _sample([1, 3, 2, 3, 3], make_sequence()) == [1]


@pytest.mark.parametrize(
    ("params", "allowed"),
    [
        ({}, {100, 200, 299}),
        ({"top_k": 5000}, {100, 200, 299}),
        ({"top_k": 300}, {100, 200, 299}),
        ({"top_k": 0}, {100, 200, 299}),
        ({"top_k": -1}, {100, 200, 299}),
        ({"top_k": 1}, {100}),
        ({"top_k": 2}, {100, 200}),
        ({"top_p": 0.45}, {100}),
        ({"top_p": 0.75}, {100, 200}),
        ({"top_p": 1.0}, {100, 200, 299}),
        ({"top_p": 0.0}, {100}),
        ({"top_k": 2, "top_p": 0.6}, {100}),
        ({"top_k": 2, "top_p": 0.65}, {100, 200}),
        ({"min_p": 0.5}, {100, 200}),
        ({"min_p": 1.0}, {100}),
        ({"min_p": 0.5, "top_p": 0.65}, {100, 200}),
        ({"min_p": 0.5, "top_p": 0.6}, {100}),
        ({"temperature": 1e-3}, {100}),
        ({"temperature": 5e-324}, {100}),
    ],
)
def test_each_setting_allows_an_exact_set(params, allowed):
    """Tokens outside the set are never drawn, those inside are."""
    assert set(_letters(**params)) == allowed


def test_shares_follow_the_probabilities():
    """50, 30 and 20 percent, within what 200 draws allow."""
    counts = _letters()
    assert counts[100] == pytest.approx(100, abs=25)
    assert counts[200] == pytest.approx(60, abs=25)
    assert counts[299] == pytest.approx(40, abs=25)


def test_high_temperature_is_flat():
    """At temperature 100 every token of a small vocabulary comes up."""
    rows = [make_sequence(seed=seed, temperature=100) for seed in range(200)]
    assert set(_sample(np.tile(QRS, (200, 1)), *rows)) == {0, 1, 2}


def test_draws_within_a_row_differ():
    """The position counts: a seeded row does not repeat its first draw."""
    sequence = make_sequence(seed=1, temperature=1)
    tokens = []
    for _ in range(40):
        (token,) = _sample(QRS, sequence)
        sequence.append(token, None)
        tokens.append(token)
    assert set(tokens) == {0, 1, 2}


def test_rows_without_seed_differ_from_each_other():
    """The row id counts, and the job seed."""
    rows = [make_sequence(row_id=i, temperature=1) for i in range(60)]
    again = [make_sequence(row_id=i, temperature=1, job_seed=1) for i in range(60)]
    logits = np.zeros((60, 300), np.float32)
    first, second = _sample(logits, *rows), _sample(logits, *again)
    assert len(set(first)) > 40
    assert sum(a == b for a, b in zip(first, second, strict=True)) < 10


params = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.3, 1.0, 2.0]),
        "top_k": st.sampled_from([0, 1, 3, 50, 1000]),
        "top_p": st.sampled_from([0.0, 0.3, 0.9, 1.0]),
        "min_p": st.sampled_from([0.0, 0.1, 0.6]),
        "seed": st.integers(0, 2**64 - 1),
        "logprobs": st.sampled_from([None, 0, 3]),
        "presence_penalty": st.sampled_from([0.0, 0.5]),
        "repetition_penalty": st.sampled_from([1.0, 1.3]),
    }
)


@settings(deadline=None)
@given(st.lists(params, min_size=1, max_size=9), st.integers(0, 2**32))
def test_row_alone_equals_row_in_a_batch(rows, seed):
    """Neighbours and threads change neither a row's token nor a bit of its log-probabilities."""
    logits = np.random.default_rng(seed).normal(0, 3, (len(rows), 301)).astype(np.float32)
    sequences = [make_sequence((5, 6, 7, 5), **row) for row in rows]
    with ThreadTeam(3) as team:
        batch = Sampler(301, team).sample(whole(logits), sequences)
    sampler = make_sampler(301)
    alone = [
        sampler.sample(whole(logits[i : i + 1].copy()), [sequence])[0]
        for i, sequence in enumerate(sequences)
    ]
    assert batch == alone


def _expected(row, sequence):
    """The sample that the twin of the whole sampler gives."""
    found = sampled(row, sequence)
    if found is None or found[1] is None:
        return found and Sample(found[0])
    (token, logprob), *top = found[1]
    return Sample(token, TokenLogprobs(token, logprob, tuple(top)))


@settings(deadline=None)
@given(
    st.lists(params, min_size=1, max_size=5),
    st.sampled_from([1, 5, 8, 63, 300, 1025, 5000]),
    st.sampled_from(["normal", "flat", "ties", "peaked", "far apart"]),
    st.integers(0, 2**32),
)
def test_samples_equal_the_naive_ones(rows, vocab, kind, seed):
    """Bit for bit as sorting everything and adding it up in order, whatever the logits are."""
    random = np.random.default_rng(seed)
    shape = (len(rows), vocab)
    logits = {
        "normal": lambda: random.normal(0, 3, shape),
        "flat": lambda: random.normal(5, 1e-3, shape),
        "ties": lambda: random.integers(-2, 3, shape),
        "peaked": lambda: random.normal(0, 1, shape) + 30 * (random.random(shape) < 2 / vocab),
        "far apart": lambda: random.normal(0, 1, shape) * 10.0 ** random.integers(-40, 38, shape),
    }[kind]().astype(np.float32)
    sequences = []
    for i, row in enumerate(rows):
        sequence = make_sequence(random.integers(0, min(vocab, 250), 9), row_id=i, **row)
        for token in random.integers(0, min(vocab, 250), 20).tolist():
            sequence.append(token, None)
        sequences.append(sequence)
    before = logits.copy()
    samples = make_sampler(vocab).sample(whole(logits), sequences)
    assert [_expected(*pair) for pair in zip(logits, sequences, strict=True)] == samples
    assert before.tobytes() == logits.tobytes()


@settings(deadline=None, max_examples=20)
@given(
    st.sampled_from([0.0, 0.5, 0.9, 0.99, 1 - 2**-53]),
    st.sampled_from([0.3, 1.0, 5.0, 100.0]),
    st.sampled_from([0, 700, 20_000, 48_000]),
    st.integers(0, 2**32),
)
def test_wide_nuclei_equal_the_naive_ones(top_p, temperature, top_k, seed):
    """In a vocabulary of real size, where the nucleus has one token or nearly all."""
    logits = np.random.default_rng(seed).normal(0, 3, (1, 49_153)).astype(np.float32)
    sequence = make_sequence(temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
    assert [_expected(logits[0], sequence)] == make_sampler(49_153).sample(
        whole(logits), [sequence]
    )


def test_logprobs_are_the_models_own():
    """Before temperature, penalties and filters; the most likely first, lowest id in a tie."""
    logits = np.log(np.array([[0.1, 0.4, 0.4, 0.1]], np.float32))
    sequence = make_sequence((1,), logprobs=3, temperature=0, repetition_penalty=50)
    (sample,) = make_sampler(4).sample(whole(logits), [sequence])
    assert sample.token_id == 2
    assert sample.logprobs.token_id == 2
    assert sample.logprobs.logprob == pytest.approx(math.log(0.4), abs=1e-6)
    assert [i for i, _ in sample.logprobs.top] == [1, 2, 0]
    assert [p for _, p in sample.logprobs.top] == pytest.approx(np.log([0.4, 0.4, 0.1]), abs=1e-6)


def test_more_logprobs_than_tokens():
    """K above the vocabulary gives the whole vocabulary, 0 the sampled token alone."""
    logits = np.zeros((2, 3), np.float32)
    rows = [make_sequence(logprobs=50), make_sequence(logprobs=0)]
    first, second = make_sampler(3).sample(whole(logits), rows)
    assert [i for i, _ in first.logprobs.top] == [0, 1, 2]
    assert (second.logprobs.top, second.logprobs.logprob) == ((), first.logprobs.logprob)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temperature", [0, 1])
def test_non_finite_logits_give_no_token(value, temperature):
    """A NaN or an infinity anywhere in a row is no token, and its neighbours are sound."""
    logits = np.tile(QRS, (3, 1))
    logits[1, 2] = value
    rows = [make_sequence(temperature=temperature, seed=4) for _ in range(3)]
    first, second, third = _sample(logits, *rows)
    assert (second, first) == (None, third)
    assert first in (0, 1, 2)


def test_large_finite_logits_are_sound():
    """Logits whose sum leaves the range of float32 are not taken for infinite."""
    assert _sample(np.array([3e38, 1e38, 3e38], np.float32), make_sequence()) == [0]


def test_no_row_is_an_empty_answer():
    """A step in which nothing samples asks for nothing."""
    assert make_sampler(5).sample(whole(np.empty((0, 5), np.float32)), []) == []


@pytest.mark.parametrize("padding", [50.0, math.nan, math.inf])
@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0},
        {"temperature": 1},
        {"temperature": 1, "top_k": 5},
        {"temperature": 1, "top_p": 0.9},
        {"temperature": 1, "min_p": 0.1},
        {"temperature": 1, "repetition_penalty": 1.5, "logprobs": 20},
        {"temperature": 0, "logprobs": 20},
    ],
    ids=str,
)
def test_embedding_rows_without_a_token_are_never_sampled(padding, params):
    """Models pad their vocabulary: logits past the tokenizer's ids count for nothing at all."""
    logits = np.random.default_rng(0).normal(0, 2, (30, 40)).astype(np.float32)
    padded = np.hstack([logits, np.full((30, 8), padding, np.float32)])
    rows = [make_sequence([3, 5], seed=seed, **params) for seed in range(30)]
    assert make_sampler(40).sample(whole(padded, 40), rows) == make_sampler(40).sample(
        whole(logits), rows
    )


@pytest.mark.parametrize("temperature", [0, 1])
def test_logits_that_penalties_make_infinite_give_no_token(temperature):
    """Largest logits times 100 leave float32; minus infinity only rules a token out."""
    logits = np.array([[1e38, 0.0, 1.0]], np.float32)
    params = {"temperature": temperature, "repetition_penalty": 0.01, "seed": 1}
    assert [None] == _sample(logits, make_sequence([0], **params))
    params["repetition_penalty"] = 100
    assert [1] == _sample(-logits, make_sequence([0, 2], **params))


def test_the_best_token_needs_no_logits():
    """Greedy rows are sampled from the best token alone; the row's memory is not looked at."""
    logits = Logits(
        rows=np.full((3, 4), np.nan, np.float32),
        kept=np.zeros(3, np.bool_),
        best_token=np.array([2, -1, 0], np.int32),
        best_value=np.zeros(3, np.float32),
    )
    rows = [make_sequence() for _ in range(3)]
    assert [Sample(2), None, Sample(0)] == make_sampler(4).sample(logits, rows)


@pytest.mark.parametrize(
    "params", [{"temperature": 0.5}, {"logprobs": 0}, {"frequency_penalty": 0.1}]
)
def test_a_row_that_needs_its_logits_is_not_sampled_without(params):
    """A model that dropped them is a bug of ours."""
    logits = whole(np.zeros((1, 4), np.float32))
    logits.kept[0] = False
    with pytest.raises(AssertionError, match="not kept"):
        make_sampler(4).sample(logits, [make_sequence(**params)])


def test_sampling_allocates_nothing_of_the_vocabulary_s_size():
    """A row of 32,768 logits has 131,072 bytes; a step of rows of all kinds stays far below."""
    logits = whole(np.random.default_rng(0).normal(0, 3, (6, 32_768)).astype(np.float32))
    kinds = [
        {},
        {"temperature": 1},
        {"temperature": 1, "top_p": 0.99},
        {"temperature": 1, "top_k": 10_000},
        {"logprobs": 20},
        {"repetition_penalty": 1.1, "temperature": 1, "top_p": 0.5},
    ]
    rows = [make_sequence((1, 2, 3), row_id=i, **kind) for i, kind in enumerate(kinds)]
    sampler = make_sampler(32_768)
    sampler.sample(logits, rows)
    tracemalloc.start()
    try:
        sampler.sample(logits, rows)
        assert tracemalloc.get_traced_memory()[1] < 30_000
    finally:
        tracemalloc.stop()
