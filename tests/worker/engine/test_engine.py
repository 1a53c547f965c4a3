"""Engine on the fake model: every row as if it were alone."""

import random
import tracemalloc
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from worker.engine.completion import Completion, FinishReason
from worker.engine.config import EngineConfig
from worker.engine.engine import Engine
from worker.engine.loading import LoadedModel
from worker.engine.request import Request
from worker.engine.sampling_params import SamplingParams
from worker.engine.scheduler import LOOK_AHEAD
from worker.errors import EngineConfigError
from worker.stages import Stages
from worker.thread_team import ThreadTeam

from .fake_model import END, VOCAB, FakeEncoder, FakeModel, FakeTokenizer, logits_of, one_at_a_time


def make_engine(model=None, **settings):
    """An engine with small blocks on the fake model."""
    config = EngineConfig(**{"block_size": 4, **settings})
    parts = (model or FakeModel(), FakeTokenizer(), FakeEncoder(), ThreadTeam(1), Stages())
    return Engine(LoadedModel(*parts), config)


_PREFIXES = [[prefix * 7 + i % 11 for i in range(20)] for prefix in range(3)]


def make_requests(count, seed=0):
    """Rows of 1 to 32 tokens, greedy and sampled, with stops, penalties, log-probs, prefixes."""
    rng = random.Random(seed)
    return [
        Request(
            row_id=row,
            prompt_token_ids=_PREFIXES[rng.randrange(3)][: rng.choice([0, 3, 9, 20])]
            + [rng.randrange(128) for _ in range(rng.randint(1, 12))],
            sampling=SamplingParams(
                temperature=rng.choice([0, 1]),
                top_p=rng.choice([0.8, 1.0]),
                top_k=rng.choice([0, 40]),
                seed=rng.choice([None, 7]),
                max_tokens=rng.randint(1, 25),
                stop=rng.choice([(), ("a",), ("ab", "~")]),
                logprobs=rng.choice([None, 2]),
                repetition_penalty=rng.choice([1.0, 1.2]),
            ),
        )
        for row in range(count)
    ]


def outcome(completion):
    """What must not depend on the run."""
    return (
        completion.row_id,
        completion.text,
        completion.finish_reason,
        completion.stop_reason,
        completion.token_ids,
        completion.logprobs,
        completion.error,
    )


def run_checked(engine, requests):
    """Generate, with every invariant checked after every step."""
    for request in requests:
        engine.add_request(request)
    done = []
    while engine.has_work:
        done += engine.step()
        engine.check_invariants()
    return sorted(done, key=lambda c: c.row_id)


@pytest.mark.parametrize(
    "setting",
    [
        {"max_num_seqs": 1},
        {"max_num_seqs": 8},
        {"max_num_seqs": 60},
        {"max_num_seqs": 1, "max_num_batched_tokens": 1},
        {"max_num_seqs": 7, "max_num_batched_tokens": 7},
        {"max_num_seqs": 60, "kv_pool_tokens": 56},
        {"max_num_seqs": 8, "kv_pool_tokens": 72, "max_num_batched_tokens": 9},
        {"max_num_seqs": 60, "block_size": 1, "kv_pool_tokens": 100},
        {"max_num_seqs": 60, "block_size": 128},
        {"max_num_seqs": 8, "prefix_caching": False},
        {"max_num_seqs": 8, "kv_pool_tokens": 72, "prefix_caching": False},
        {"max_num_seqs": 8, "deduplicate": False},
    ],
    ids=str,
)
def test_row_alone_equals_row_in_any_batch_chunk_and_pool(setting):
    """60 rows under any setting answer as the twin that runs them one at a time."""
    requests = make_requests(60)
    got = run_checked(make_engine(**setting), requests)
    assert [outcome(c) for c in got] == [outcome(one_at_a_time(r)) for r in requests]


def test_batch_settings_do_not_decide_what_fits():
    """A pool for rows of 40 tokens, of 64 possible, gives equal answers and errors under all."""
    common = {"kv_dtype": "float32"}
    sizes = {"kv_pool_tokens": 40}, {"kv_pool_bytes": 10 * 64 + 3 * 128}
    batches = (1, 1), (1, 64), (8, 8), (8, 64), (60, 512)
    results = [
        [outcome(c) for c in run_checked(make_engine(**common, **size, **batch), make_requests(60))]
        for size in sizes
        for batch in (
            {"max_num_seqs": seqs, "max_num_batched_tokens": tokens} for seqs, tokens in batches
        )
    ]
    assert all(result == results[0] for result in results)
    errors = [error for *_, error in results[0] if error is not None]
    assert 0 < len(errors) < 30
    assert {error.split("; ")[0] for error in errors} == {
        "needs 41 or more tokens of KV cache, the pool has 40"
    }


def test_an_absurd_context_costs_nothing():
    """2,147,483,647 positions are a number in a file; tables are as wide as rows are long."""
    model = FakeModel(context_length=2**31 - 1)
    tracemalloc.start()
    engine = make_engine(model, kv_pool_tokens=100)
    got = run_checked(engine, make_requests(20))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [outcome(c) for c in got] == [outcome(one_at_a_time(r)) for r in make_requests(20)]
    assert peak < 10_000_000


def test_small_pools_do_preempt():
    """The setting of the test above really preempts and recomputes."""
    engine = make_engine(max_num_seqs=60, kv_pool_tokens=56)
    run_checked(engine, make_requests(60))
    stats = engine.stats.snapshot()
    assert stats.preemptions > 10
    assert stats.recomputed_tokens > 50


def test_completions_come_in_the_order_of_the_requests():
    """Generate keeps the input's order, whatever ends first."""
    engine = make_engine(max_num_seqs=3)
    got = engine.generate(reversed(make_requests(20)))
    assert [c.row_id for c in got] == list(range(19, -1, -1))
    assert engine.stats.snapshot().waiting == 0


def test_generate_takes_requests_as_there_is_room():
    """A stream of requests is not read ahead by more than a batch."""
    engine = make_engine(max_num_seqs=2)
    ahead = []

    def source():
        for request in make_requests(100):
            ahead.append(engine.stats.requests - engine.stats.completions)
            yield request

    engine.generate(source())
    assert max(ahead) <= 2 + 2 + LOOK_AHEAD


def test_generate_answers_its_own_rows_while_others_wait():
    """Rows that were added before fill the queue; the iterable is still read to its end."""
    engine = make_engine(max_num_seqs=2)
    added = make_requests(60)
    for request in added:
        engine.add_request(request)
    (got,) = engine.generate([replace(added[0], row_id=99)])
    assert outcome(got)[1:] == outcome(one_at_a_time(replace(added[0], row_id=99)))[1:]
    left = []
    while engine.has_work:
        left += engine.step()
    assert sorted(c.row_id for c in left) == list(range(60))


def test_no_request_is_no_completion():
    """An empty input gives an empty list."""
    assert make_engine().generate([]) == []


@pytest.mark.parametrize(
    ("length", "tokens", "error"),
    [
        (62, 2, None),
        (63, 1, None),
        (64, 0, "prompt too long: 64 tokens leave no room for a completion in a context of 64"),
        (65, 0, "prompt too long: 65 tokens"),
        (201, 0, "prompt too long: 201 tokens"),
    ],
)
@pytest.mark.parametrize("max_tokens", [None, 16, 2**40])
def test_prompt_and_completion_never_exceed_the_context(length, tokens, error, max_tokens):
    """A context of 64: what is left for the completion, or a row error with both numbers."""
    sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    request = Request(row_id=0, prompt_token_ids=[5] * length, sampling=sampling)
    (got,) = make_engine().generate([request])
    assert len(got.token_ids) == tokens
    assert len(got.prompt_token_ids) == length
    if error is None:
        assert (got.finish_reason, got.error) == (FinishReason.LENGTH, None)
    else:
        assert (got.finish_reason, got.text) == (FinishReason.ERROR, None)
        assert got.error.startswith(error)
        assert got.error.endswith("shorten the prompt or raise max_model_len")


def test_row_larger_than_the_pool_does_not_block_the_queue():
    """A row that can never fit is an error; those before and behind it are answered."""
    prompts = [[1], [2] * 50, [3], [4]]
    requests = [
        Request(row_id=i, prompt_token_ids=p, sampling=SamplingParams(max_tokens=3))
        for i, p in enumerate(prompts)
    ]
    got = make_engine(kv_pool_tokens=32).generate(requests)
    assert [c.error for c in got] == [
        None,
        "needs 50 or more tokens of KV cache, the pool has 32; "
        "raise kv_pool_tokens or kv_pool_bytes",
        None,
        None,
    ]


def test_row_that_outgrows_the_pool_is_an_error_in_any_company():
    """A row is refused where it would need more than the whole pool, alone or in a batch."""
    requests = [
        Request(
            row_id=i,
            prompt_token_ids=[i] * 20,
            sampling=SamplingParams(max_tokens=40, ignore_eos=True, stop_token_ids=()),
        )
        for i in range(5)
    ]
    alone = [make_engine(kv_pool_tokens=32).generate([r])[0] for r in requests]
    together = make_engine(kv_pool_tokens=32).generate(requests)
    assert {c.error for c in alone + together} == {
        "needs 33 or more tokens of KV cache, the pool has 32; "
        "raise kv_pool_tokens or kv_pool_bytes"
    }


def test_row_that_fills_the_pool_exactly_is_answered():
    """The last token sampled needs no place."""
    sampling = SamplingParams(max_tokens=13, ignore_eos=True)
    request = Request(row_id=0, prompt_token_ids=[7] * 20, sampling=sampling)
    (got,) = make_engine(kv_pool_tokens=32).generate([request])
    assert (got.error, len(got.token_ids)) == (None, 13)


def test_prompt_that_cannot_be_encoded_is_a_row_error():
    """What cannot be run is answered with the reason, and counted."""
    engine = make_engine()
    (got,) = engine.generate([Request(row_id=0)])
    assert got.error == "prompt is null"
    assert (got.text, got.finish_reason) == (None, FinishReason.ERROR)
    stats = engine.stats.snapshot()
    assert (stats.requests, stats.completions, stats.errors) == (1, 1, 1)


def test_max_tokens_zero_is_an_empty_text():
    """Nothing is computed for a row that may not generate; it ends by length."""
    engine = make_engine()
    sampling = SamplingParams(max_tokens=0)
    (got,) = engine.generate([Request(row_id=0, prompt="ab", sampling=sampling)])
    assert (got.text, got.token_ids, got.finish_reason) == ("", (), FinishReason.LENGTH)
    assert engine.stats.steps == 0


def test_end_token_sampled_from_the_prefill_ends_the_row():
    """The first token counts: an end token there is an empty answer in one step."""

    def end_at_once(tokens):
        logits = np.zeros(VOCAB, np.float32)
        logits[END if len(tokens) % 2 else 65] = 5
        return logits

    engine = make_engine(FakeModel(logits=end_at_once))
    got = engine.generate([Request(row_id=0, prompt="a"), Request(row_id=1, prompt="ab")])
    assert [(c.text, c.token_ids, c.finish_reason) for c in got] == [
        ("", (), FinishReason.STOP),
        ("A", (65,), FinishReason.STOP),
    ]
    assert [c.ttft_s is None for c in got] == [True, False]


def test_non_finite_logits_are_a_row_error():
    """A row whose logits are NaN has no token; its neighbours are as without it."""

    def poisoned(tokens):
        logits = logits_of(tokens)
        if tokens[0] == 9:
            logits[3] = np.nan
        return logits

    requests = [
        Request(
            row_id=i,
            prompt_token_ids=[8 + i % 2, i],
            sampling=SamplingParams(temperature=i % 3, max_tokens=6),
        )
        for i in range(12)
    ]
    got = make_engine(FakeModel(logits=poisoned)).generate(requests)
    assert [c.error is not None for c in got] == [bool(i % 2) for i in range(12)]
    assert {c.error.split(":")[0] for c in got if c.error} == {"non-finite logits"}
    expected = [outcome(one_at_a_time(r)) for r in requests[::2]]
    assert [outcome(c) for c in got if c.error is None] == expected


def test_logits_are_asked_for_rows_that_sample_alone():
    """A chunk that does not reach the end of its prompt gets no logits."""
    rows = []

    class Counting(FakeModel):
        def forward(self, batch, kv):
            logits = super().forward(batch, kv)
            rows.append((len(batch.token_ids), len(logits)))
            return logits

    sampling = SamplingParams(max_tokens=2, ignore_eos=True)
    engine = make_engine(Counting(), max_num_seqs=1, max_num_batched_tokens=8)
    engine.generate([Request(row_id=0, prompt_token_ids=[1] * 20, sampling=sampling)])
    assert rows == [(8, 0), (8, 0), (4, 1), (1, 1)]


def test_stream_gives_the_text_in_pieces_and_then_the_completion():
    """Pieces joined are the text; other rows in flight are computed along and kept."""
    engine = make_engine()
    first, second = make_requests(2, seed=3)
    engine.add_request(second)
    *pieces, completion = engine.stream(first)
    assert isinstance(completion, Completion)
    assert "".join(pieces) == completion.text
    assert len(pieces) > 1
    assert outcome(completion) == outcome(one_at_a_time(first))
    rest = []
    while engine.has_work:
        rest += engine.step()
    assert [outcome(c) for c in rest] == [outcome(one_at_a_time(second))]


def test_stream_of_a_bad_row_is_its_completion():
    """No piece comes before an error."""
    (completion,) = make_engine().stream(Request(row_id=0))
    assert completion.error == "prompt is null"


def test_stream_left_early_aborts_the_row():
    """Nobody computes a text that nobody reads."""
    engine = make_engine()
    stream = engine.stream(make_requests(1)[0])
    next(stream)
    stream.close()
    assert engine.has_work is False
    engine.check_invariants()


def test_row_id_in_flight_is_refused():
    """Two rows of one id could not be told apart."""
    engine = make_engine()
    engine.add_request(Request(row_id=4, prompt="a"))
    with pytest.raises(ValueError, match="row_id 4"):
        engine.add_request(Request(row_id=4, prompt="b"))
    with pytest.raises(ValueError, match="row_id 5"):
        make_engine().generate([Request(row_id=5, prompt="a"), Request(row_id=5, prompt="b")])


def test_equal_prompts_without_seed_get_different_texts():
    """At a temperature above 0, rows differ; with one seed they are equal."""

    def rows(seed):
        sampling = SamplingParams(temperature=1, max_tokens=8, ignore_eos=True, seed=seed)
        return [Request(row_id=i, prompt="go", sampling=sampling) for i in range(20)]

    assert len({c.text for c in make_engine().generate(rows(None))}) == 20
    assert len({c.text for c in make_engine().generate(rows(11))}) == 1
    other_job = make_engine(job_seed=1).generate(rows(None))
    assert not {c.text for c in other_job} & {c.text for c in make_engine().generate(rows(None))}


def test_max_model_len_beyond_the_model_is_refused():
    """The error names both lengths."""
    with pytest.raises(EngineConfigError, match=r"max_model_len: 65 .* context of 64 .*lower"):
        make_engine(max_model_len=65)


def test_max_model_len_below_the_model_holds():
    """A lower limit counts as the context does."""
    request = Request(row_id=0, prompt="abc", sampling=SamplingParams(ignore_eos=True))
    (got,) = make_engine(max_model_len=10).generate([request])
    assert (len(got.token_ids), got.finish_reason) == (7, FinishReason.LENGTH)


def test_stats_add_up():
    """Every token is counted once, whatever was preempted and recomputed, found or not."""
    engine = make_engine(max_num_seqs=60, kv_pool_tokens=56, deduplicate=False)
    requests = make_requests(40)
    looks = [engine.stats.snapshot()]
    for request in requests:
        engine.add_request(request)
    done = []
    while engine.has_work:
        done += engine.step()
        looks.append(engine.stats.snapshot())
    last = looks[-1]
    prompts = sum(len(c.prompt_token_ids) for c in done)
    assert last.prefix_cache_queries == prompts
    assert last.prefix_cache_hits == sum(c.num_cached_tokens for c in done) > 0
    assert last.prefill_tokens + last.prefix_cache_hits == prompts
    assert last.decode_tokens == sum(len(c.token_ids) for c in done)
    assert (last.requests, last.completions, last.errors) == (40, 40, 0)
    assert (last.running, last.waiting, last.kv_blocks_used) == (0, 0, 0)
    assert last.kv_blocks_peak == max(look.kv_blocks_peak for look in looks) > 0
    for before, after in pairwise(looks):
        assert before.steps + 1 == after.steps
        assert before.step_s < after.step_s
    assert set(last.as_dict()) == set(type(last).__slots__)


@pytest.mark.parametrize("tokens", [64, 64_000])
def test_batches_do_not_depend_on_the_size_of_the_pool(tokens):
    """The steps of one row are the same in a pool a thousand times larger."""
    model = FakeModel()
    sampling = SamplingParams(max_tokens=4, ignore_eos=True)
    engine = make_engine(model, kv_pool_tokens=tokens)
    engine.generate([Request(row_id=0, prompt="abc", sampling=sampling)])
    assert model.batches == [(3, 1), (1, 1), (1, 1), (1, 1)]
    assert engine._runner._tables.shape[2] == 2  # 7 tokens in blocks of 4
