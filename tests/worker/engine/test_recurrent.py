"""The determinism contract on a model with recurrent layers, whose states no prefix can serve."""

import logging
import random
from dataclasses import replace

import pytest

from kvpool import PoolSizeError
from worker.engine.config import EngineConfig
from worker.engine.engine import Engine
from worker.engine.loading import load
from worker.engine.request import Request
from worker.engine.sampling_params import SamplingParams
from worker.program import Program

ALONE = {"max_num_seqs": 1, "deduplicate": False}


def make_rows(count=12):
    """Rows of 1 to some 60 tokens, greedy and sampled; some begin alike."""
    rng = random.Random(0)
    shared = [rng.randrange(10, 300) for _ in range(32)]
    rows = []
    for row in range(count):
        own = [rng.randrange(10, 300) for _ in range(rng.randint(1, 30))]
        sampling = SamplingParams(
            temperature=(0, 0.8)[row % 2], max_tokens=12, logprobs=20, ignore_eos=True
        )
        prompt = shared[: 16 * (row % 3)] + own
        rows.append(Request(row_id=row, prompt_token_ids=prompt, sampling=sampling))
    return rows


def outcome(completion):
    """What the contract fixes."""
    assert completion.error is None, completion.error
    return completion.text, completion.token_ids, completion.logprobs


@pytest.fixture(scope="module", params=["int8", "f32"])
def model(request, data):
    """The model in either mode, its path, and what its rows get alone."""
    path = data / "tiny" / "qwen35" / "qwen35-Q8_0.gguf"
    config = EngineConfig(compute=request.param)
    loaded = load(path, config)
    yield path, request.param, loaded
    loaded.team.close()


def run(model, rows, loaded=None, **settings):
    """Outcomes by row, and the statistics."""
    _, mode, own = model
    engine = Engine(loaded or own, EngineConfig(compute=mode, **settings))
    completions = engine.generate(rows)
    engine.check_invariants()
    results = {c.row_id: [outcome(each) for each in (c, *c.others)] for c in completions}
    return results, engine.stats.snapshot()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_num_seqs": 3},
        {"max_num_seqs": 5, "max_num_batched_tokens": 5},
        {"max_num_batched_tokens": 33, "max_num_seqs": 8},
        {"prefix_caching": False},
        {"block_size": 4},
    ],
)
def test_batches_and_chunks_change_nothing(model, settings):
    """Also token by token, and where prefixes could have been shared."""
    rows = make_rows()
    alone, _ = run(model, rows, **ALONE)
    found, stats = run(model, rows, **settings)
    assert found == alone
    assert stats.prefix_cache_hits == 0


def test_preempted_rows_begin_with_a_new_state(model):
    """Recomputed from their tokens, in the slots of others."""
    rows = [replace(row, sampling=replace(row.sampling, max_tokens=40)) for row in make_rows()]
    alone, _ = run(model, rows, **ALONE)
    found, stats = run(model, rows, kv_pool_tokens=128, max_num_seqs=8)
    assert found == alone
    assert stats.preemptions >= 3


def test_completions_of_one_row_are_those_of_its_draws(model):
    """They begin with a copy of the state before the prompt's last token, or compute it anew."""
    rows = [replace(row, sampling=replace(row.sampling, n=3)) for row in make_rows()[1::2]]
    rows += [replace(rows[0], row_id=99, prompt_token_ids=[77])]
    one_by_one, stats = run(model, rows, **ALONE)
    assert stats.prefix_cache_hits == 0
    together, stats = run(model, rows)
    assert one_by_one == together
    prompts = [len(row.prompt_token_ids) - 1 for row in rows]
    assert 2 * sum(sorted(prompts)[:4]) <= stats.prefix_cache_hits <= 2 * sum(prompts)
    for settings in ({"max_num_batched_tokens": 7, "max_num_seqs": 4}, {"kv_pool_tokens": 128}):
        assert one_by_one == run(model, rows, **settings)[0]
    assert all(len({tokens for _, tokens, _ in each}) > 1 for each in together.values())


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_nothing(model, threads):
    """One thread and three."""
    path, mode, _ = model
    rows = make_rows()
    alone, _ = run(model, rows, **ALONE)
    loaded = load(path, EngineConfig(compute=mode, threads=threads))
    found, _ = run(model, rows, loaded, max_num_seqs=4)
    loaded.team.close()
    assert found == alone


def test_prefix_caching_is_switched_off_with_a_note(model, caplog):
    """A run says so, and why; not where it was off anyway."""
    with caplog.at_level(logging.WARNING):
        Engine(model[2], EngineConfig(compute=model[1], prefix_caching=False))
        assert "" == caplog.text
        Engine(model[2], EngineConfig(compute=model[1]))
    assert "prefix caching is off: this model's recurrent layers keep a state of" in caplog.text


def test_a_step_that_is_broken_off_is_not_computed_a_second_time(model, monkeypatch):
    """States have taken in some of its tokens: going on would give other tokens silently."""
    engine = Engine(model[2], EngineConfig(compute=model[1], max_num_batched_tokens=40))
    for row in make_rows(3):
        engine.add_request(row)
    engine.step()
    run = Program.run

    def broken_off(program):
        run(program)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Program, "run", broken_off)
        with pytest.raises(KeyboardInterrupt):
            engine.step()
    with pytest.raises(AssertionError, match="a step that was broken off"):
        engine.step()


def test_states_that_the_machine_cannot_hold_are_refused(model):
    """Before they are made, with the most rows that fit."""
    config = EngineConfig(
        compute=model[1], max_num_seqs=10**9, max_num_batched_tokens=10**9, kv_pool_tokens=64
    )
    with pytest.raises(PoolSizeError, match=r"max_num_seqs: .* lower max_num_seqs to at most \d+"):
        Engine(model[2], config)
