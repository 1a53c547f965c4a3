"""What rows share: prefixes, equal rows, several completions. Tokens never change by it."""

from dataclasses import replace

import pytest

from worker.engine.completion import FinishReason
from worker.engine.request import Request
from worker.engine.sampling_params import SamplingParams

from .fake_model import FakeModel, logits_of, one_at_a_time
from .test_engine import make_engine, outcome, run_checked

PREFIX = [i % 13 for i in range(24)]


def _rows(prompts, **params):
    sampling = SamplingParams(**{"max_tokens": 6, "ignore_eos": True, **params})
    return [
        Request(row_id=row, prompt_token_ids=prompt, sampling=sampling)
        for row, prompt in enumerate(prompts)
    ]


def _twins(requests):
    return [outcome(one_at_a_time(request)) for request in requests]


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 8, 23, 24])
def test_hits_at_inside_and_behind_block_borders(length):
    """Cold, then warm: a row that shares so many tokens gets the tokens it gets alone."""
    engine = make_engine(max_num_seqs=1)
    cold, warm = _rows([PREFIX, [*PREFIX[:length], 99, 98]])
    assert [outcome(c) for c in engine.generate([cold])] == _twins([cold])
    (completion,) = engine.generate([warm])
    assert outcome(completion) == _twins([warm])[0]
    assert completion.num_cached_tokens == length // 4 * 4


def test_whole_prompt_cached_computes_its_last_block():
    """The same row again: all but the block with the last token is found."""
    engine = make_engine(max_num_seqs=1)
    first, again = _rows([PREFIX, PREFIX])
    engine.generate([first])
    computed = engine.stats.prefill_tokens
    (completion,) = engine.generate([again])
    assert outcome(completion) == _twins([again])[0]
    assert (completion.num_cached_tokens, engine.stats.prefill_tokens - computed) == (20, 4)


def test_statistics_count_what_was_looked_for_and_found():
    """Prompt tokens of rows admitted, and those of them that were there."""
    engine = make_engine(max_num_seqs=1)
    engine.generate(_rows([[*PREFIX, row] for row in range(5)]))
    stats = engine.stats.snapshot()
    assert (stats.prefix_cache_queries, stats.prefix_cache_hits) == (125, 4 * 24)
    assert stats.prefill_tokens == 25 + 4
    assert (stats.kv_blocks_used, stats.kv_blocks_idle > 0) == (0, True)


def test_off_means_off():
    """Neither prefixes nor equal rows are used when both are switched off."""
    engine = make_engine(max_num_seqs=2, prefix_caching=False, deduplicate=False)
    requests = _rows([PREFIX, PREFIX, PREFIX])
    got = engine.generate(requests)
    stats = engine.stats.snapshot()
    assert [outcome(c) for c in got] == _twins(requests)
    assert (stats.prefix_cache_hits, stats.deduplicated, stats.kv_blocks_idle) == (0, 0, 0)
    assert stats.prefill_tokens == 72


def test_equal_greedy_rows_are_computed_once():
    """Answers with their own row ids, one computation, counted."""
    engine = make_engine()
    requests = _rows([PREFIX] * 5)
    got = run_checked(engine, requests)
    assert [outcome(c) for c in got] == _twins(requests)
    stats = engine.stats.snapshot()
    assert (stats.deduplicated, stats.prefill_tokens, stats.completions) == (4, 24, 5)


@pytest.mark.parametrize(
    "other",
    [
        {"temperature": 1.0},
        {"max_tokens": 5},
        {"stop": ("x",)},
        {"logprobs": 0},
        {"repetition_penalty": 1.1},
    ],
    ids=str,
)
def test_rows_that_differ_in_any_parameter_are_computed_each(other):
    """Equal tokens are not enough."""
    engine = make_engine()
    first, second = _rows([PREFIX, PREFIX])
    second = replace(second, sampling=replace(second.sampling, **other))
    got = run_checked(engine, [first, second])
    assert [outcome(c) for c in got] == _twins([first, second])
    assert engine.stats.deduplicated == 0


def test_sampled_rows_are_never_copied():
    """Above temperature 0 each row has its own draws."""
    engine = make_engine()
    requests = _rows([PREFIX] * 8, temperature=1.0)
    got = run_checked(engine, requests)
    assert [outcome(c) for c in got] == _twins(requests)
    assert len({c.token_ids for c in got}) > 1
    assert engine.stats.deduplicated == 0


@pytest.mark.parametrize("aborted", [0, 1, 2])
def test_aborting_one_of_equal_rows_answers_the_others(aborted):
    """Also when it was the one that came first."""
    engine = make_engine()
    requests = _rows([PREFIX] * 3)
    for request in requests:
        engine.add_request(request)
    engine.step()
    engine.abort(aborted)
    engine.check_invariants()
    done = []
    while engine.has_work:
        done += engine.step()
        engine.check_invariants()
    assert sorted(c.row_id for c in done) == sorted({0, 1, 2} - {aborted})
    assert {c.token_ids for c in done} == {one_at_a_time(requests[0]).token_ids}


def test_aborting_all_equal_rows_frees_their_blocks():
    """Nobody waits, nothing runs; an equal row later is computed anew."""
    engine = make_engine()
    requests = _rows([PREFIX] * 2)
    for request in requests:
        engine.add_request(request)
    engine.step()
    engine.abort(0)
    engine.abort(1)
    engine.check_invariants()
    assert not engine.has_work
    assert engine.stats.snapshot().kv_blocks_used == 0
    assert [outcome(c) for c in engine.generate(requests[:1])] == _twins(requests[:1])


def test_stream_has_a_sequence_of_its_own():
    """Its text comes piece by piece while an equal row runs."""
    engine = make_engine()
    first, second = _rows([PREFIX] * 2)
    engine.add_request(first)
    *pieces, completion = engine.stream(second)
    assert "".join(pieces) == completion.text == one_at_a_time(second).text
    assert engine.stats.deduplicated == 0


def test_failure_of_equal_rows_is_each_ones_failure():
    """A pool that is too small for a row is too small for its twins."""
    engine = make_engine(kv_pool_tokens=28)
    got = run_checked(engine, _rows([PREFIX] * 3, max_tokens=30))
    assert [(c.row_id, c.error.split(";")[0]) for c in got] == [
        (row, "needs 29 or more tokens of KV cache, the pool has 28") for row in range(3)
    ]


@pytest.mark.parametrize(
    "setting",
    [
        {"max_num_seqs": 1},
        {"max_num_seqs": 3},
        {"max_num_seqs": 64},
        {"max_num_seqs": 3, "prefix_caching": False},
        {"max_num_seqs": 8, "kv_pool_tokens": 48},
        {"max_num_seqs": 8, "kv_pool_tokens": 48, "prefix_caching": False},
        {"max_num_seqs": 3, "max_num_batched_tokens": 3},
    ],
    ids=str,
)
def test_completions_of_a_row_are_those_of_its_draws(setting):
    """Completion i draws with index i: the first is that of n = 1, whatever ran beside it."""
    requests = _rows([[*PREFIX[:10], row] for row in range(6)], n=4, temperature=1.0, max_tokens=9)
    engine = make_engine(**setting)
    got = run_checked(engine, requests)
    for request, completion in zip(requests, got, strict=True):
        expected = [one_at_a_time(request, completion_index=index) for index in range(4)]
        found = [replace(completion, others=()), *completion.others]
        assert [outcome(c) for c in found] == [outcome(c) for c in expected]
        assert len({c.token_ids for c in found}) == 4


def test_forks_hold_the_prompt_once():
    """Eight completions of a prompt of six blocks: one copy of five of them."""
    engine = make_engine(max_num_seqs=8)
    (request,) = _rows([PREFIX], n=8, temperature=1.0)
    engine.add_request(request)
    engine.step()
    engine.step()
    full, _window = engine._pool._pools
    assert full.num_used == 5 + 8 + 1  # the first one has a block more, for its first token


def test_greedy_completions_are_equal():
    """Temperature 0 has one answer, so all n are that."""
    (got,) = run_checked(make_engine(), _rows([PREFIX], n=3))
    assert {c.token_ids for c in (got, *got.others)} == {
        one_at_a_time(_rows([PREFIX])[0]).token_ids
    }
    assert len(got.others) == 2


def test_several_completions_without_tokens():
    """max_tokens 0: n empty texts, no step."""
    engine = make_engine()
    (got,) = run_checked(engine, _rows([PREFIX], n=3, max_tokens=0))
    assert [(c.text, c.finish_reason) for c in (got, *got.others)] == [
        ("", FinishReason.LENGTH)
    ] * 3
    assert engine.stats.steps == 0


def test_a_failed_completion_fails_its_row_the_same_way_in_any_order():
    """The error is that of the lowest completion that failed, and no blocks stay behind."""

    def fragile(tokens):
        logits = logits_of(tokens)
        if len(tokens) > 26 and sum(tokens) % 3 == 0:
            logits[:] = float("nan")
        return logits

    (request,) = _rows([PREFIX], n=6, temperature=1.0, max_tokens=8)
    found = set()
    for seqs in (1, 2, 8):
        engine = make_engine(FakeModel(logits=fragile), max_num_seqs=seqs)
        (got,) = run_checked(engine, [request])
        found.add((got.error, got.text, got.others))
        assert engine.stats.snapshot().kv_blocks_used == 0
    ((error, text, others),) = found
    assert error.startswith("non-finite logits")
    assert (text, others) == (None, ())


@pytest.mark.parametrize("after", [0, 1, 3])
def test_aborting_a_row_ends_all_its_completions(after):
    """Those that run and those that wait."""
    engine = make_engine(max_num_seqs=2)
    (request,) = _rows([PREFIX], n=5, temperature=1.0)
    engine.add_request(request)
    for _ in range(after):
        engine.step()
    engine.abort(0)
    engine.check_invariants()
    assert not engine.has_work
    assert engine.stats.snapshot().kv_blocks_used == 0


def test_secrets_behind_a_shared_prefix_stay_apart():
    """64 rows, one prefix, each its own secret: every row continues its own."""
    secrets = [[40 + row, 30 + row % 7, row] for row in range(64)]
    requests = _rows([[*PREFIX, *secret] for secret in secrets], max_tokens=10)
    for setting in ({"max_num_seqs": 64}, {"max_num_seqs": 7, "kv_pool_tokens": 100}):
        engine = make_engine(**setting)
        got = run_checked(engine, requests)
        assert [outcome(c) for c in got] == _twins(requests)
        assert engine.stats.snapshot().prefix_cache_hits >= 40 * 24
