"""The determinism contract on real models: what a row gets does not depend on what is around it.

Token ids and log-probabilities (of the sampled and the 20 most likely tokens, computed from all
logits) are compared bit for bit with the row alone, computed at once, without any reuse.
"""

import itertools
import random
from collections import Counter
from dataclasses import dataclass, replace

import pytest

from worker.engine.config import EngineConfig
from worker.engine.engine import Engine
from worker.engine.loading import load
from worker.engine.request import Request
from worker.engine.sampling_params import SamplingParams

TINY = {
    "llama": "llama-Q4_1.gguf",
    "llama3-rope": "llama3-rope-F16.gguf",
    "gemma3": "gemma3-F16.gguf",
}
REAL = ("smollm2", "gemma3_270m")
ALONE = {"max_num_seqs": 1, "prefix_caching": False, "deduplicate": False}


@dataclass
class Contract:
    """A loaded model, and what its rows get when each is alone."""

    path: object
    mode: str
    loaded: object
    rows: list
    alone: dict

    def run(self, rows=None, loaded=None, **settings):
        """Outcomes of rows under some settings, by row id, and the statistics."""
        rows = self.rows if rows is None else rows
        engine = Engine(loaded or self.loaded, EngineConfig(compute=self.mode, **settings))
        completions = engine.generate(rows)
        engine.check_invariants()
        assert engine.stats.snapshot().kv_blocks_used == 0
        return {c.row_id: outcome(c) for c in completions}, engine.stats.snapshot()


def outcome(completion):
    """What the contract fixes."""
    assert completion.error is None, completion.error
    return completion.text, completion.token_ids, completion.logprobs, completion.finish_reason


def make_rows(vocab, count=64, seed=0):
    """Rows with and without shared prefixes, greedy and sampled, 1 to some 90 tokens."""
    rng = random.Random(seed)
    prefix = [rng.randrange(10, vocab - 10) for _ in range(64)]
    rows = []
    for row in range(count):
        shared = prefix[: (0, 0, 15, 16, 17, 33, 48, 64)[row % 8]]
        own = [rng.randrange(10, vocab - 10) for _ in range(rng.randint(1, 25))]
        sampling = SamplingParams(
            temperature=(0, 0.8)[row % 2],
            top_p=(1.0, 0.95)[row % 3 == 0],
            seed=(None, row)[row % 5 == 0],
            max_tokens=rng.randint(2, 9),
            logprobs=20,
            ignore_eos=True,
        )
        rows.append(Request(row_id=row, prompt_token_ids=shared + own, sampling=sampling))
    return rows


@pytest.fixture(
    scope="module",
    params=[(name, mode) for name in TINY for mode in ("int8", "f32")]
    + [(name, "int8") for name in REAL],
    ids="-".join,
)
def contract(request, data):
    """Each model, loaded once, with the answers of its rows alone."""
    name, mode = request.param
    path = data / "tiny" / name / TINY[name] if name in TINY else request.getfixturevalue(name)
    loaded = load(path, EngineConfig(compute=mode))
    rows = make_rows(loaded.tokenizer.vocab_size)
    made = Contract(path, mode, loaded, rows, {})
    made.alone, _ = made.run(**ALONE)
    yield made
    loaded.team.close()


@pytest.mark.parametrize("batch", [2, 7, 32, 64])
def test_alone_equals_any_batch(contract, batch):
    """In batches with strangers, some of which share a prefix."""
    outcomes, stats = contract.run(max_num_seqs=batch)
    assert outcomes == contract.alone
    assert stats.prefix_cache_hits > 0


@pytest.mark.parametrize("chunk", [1, 16, 128, 4096])
@pytest.mark.parametrize("prefix_caching", [False, True])
def test_chunks_change_nothing(contract, chunk, prefix_caching):
    """A prompt in chunks of 1, 16 and 128 tokens, and whole."""
    settings = {"max_num_batched_tokens": chunk, "max_num_seqs": min(chunk, 7)}
    rows = contract.rows[:16]  # token by token is slow
    outcomes, stats = contract.run(rows, **settings, prefix_caching=prefix_caching)
    assert outcomes == {row.row_id: contract.alone[row.row_id] for row in rows}
    assert (stats.prefix_cache_hits > 0) is prefix_caching


def test_warm_cache_changes_nothing(contract):
    """The same rows twice through one engine: the second time most of each prompt is there."""
    config = EngineConfig(compute=contract.mode, max_num_seqs=7)
    engine = Engine(contract.loaded, config)
    cold = {c.row_id: outcome(c) for c in engine.generate(contract.rows)}
    hits = engine.stats.snapshot().prefix_cache_hits
    warm = {c.row_id: c for c in engine.generate(contract.rows)}
    assert cold == contract.alone
    assert {row: outcome(c) for row, c in warm.items()} == contract.alone
    assert engine.stats.snapshot().prefix_cache_hits > 1.5 * hits
    keeps_all = all(group.window is None for group in contract.loaded.model.layer_groups)
    for row in contract.rows:
        # All whole blocks but the one with the last token; a window group may need its blocks.
        whole = (len(row.prompt_token_ids) - 1) // 16 * 16
        found = warm[row.row_id].num_cached_tokens
        assert found == whole if keeps_all else found <= whole


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_preemption_changes_nothing(contract, prefix_caching):
    """In a pool for little more than the longest row, rows are preempted and computed again."""
    rows = [
        replace(row, sampling=replace(row.sampling, max_tokens=40)) for row in contract.rows[:16]
    ]
    alone, _ = contract.run(rows, **ALONE)
    outcomes, stats = contract.run(
        rows, kv_pool_tokens=160, max_num_seqs=16, prefix_caching=prefix_caching
    )
    assert outcomes == alone
    assert stats.preemptions >= 3
    assert stats.recomputed_tokens > 0


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_a_row_preempted_three_times_changes_nothing(contract, prefix_caching):
    """The newest two rows give up their blocks in every other step, in prefill and in decode."""
    rows = [
        replace(row, sampling=replace(row.sampling, max_tokens=12)) for row in contract.rows[2:9]
    ]
    alone, _ = contract.run(rows, **ALONE)
    settings = {"max_num_batched_tokens": 40, "prefix_caching": prefix_caching}
    engine = Engine(contract.loaded, EngineConfig(compute=contract.mode, **settings))
    for row in rows:
        engine.add_request(row)
    found, preempted = {}, Counter()
    for step in itertools.count():
        found |= {c.row_id: outcome(c) for c in engine.step()}
        engine.check_invariants()
        if not engine.has_work:
            break
        running = engine._scheduler._running
        if step % 2 and step < 20:
            for _ in range(min(2, len(running) - 1)):
                preempted[running[-1].row_id] += 1
                engine._scheduler._preempt(running.pop())
    assert found == alone
    assert max(preempted.values()) >= 3


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_change_nothing(contract, threads):
    """One thread, two and three."""
    loaded = load(contract.path, EngineConfig(compute=contract.mode, threads=threads))
    rows = contract.rows[:16]
    outcomes, _ = contract.run(rows, loaded=loaded, max_num_seqs=7)
    loaded.team.close()
    assert outcomes == {row.row_id: contract.alone[row.row_id] for row in rows}


def test_completions_of_one_row_are_those_of_its_draws(contract):
    """The first of four is that of one alone; forks are what computing each anew would give."""
    sampled = [row for row in contract.rows if row.sampling.temperature > 0][:6]
    rows = [replace(row, sampling=replace(row.sampling, n=4)) for row in sampled]
    results = []
    for settings in (
        ALONE,
        {"max_num_seqs": 64},
        {"max_num_seqs": 3, "prefix_caching": False},
        {"max_num_seqs": 8, "kv_pool_tokens": 160},
    ):
        engine = Engine(contract.loaded, EngineConfig(compute=contract.mode, **settings))
        results.append([[outcome(each) for each in (c, *c.others)] for c in engine.generate(rows)])
    assert all(result == results[0] for result in results[1:])
    assert [completions[0] for completions in results[0]] == [
        contract.alone[row.row_id] for row in sampled
    ]
    assert all(len({tokens for _, tokens, *_ in each}) > 1 for each in results[0])


def test_secrets_behind_a_shared_prefix_stay_apart(contract):
    """Each of 64 rows continues its own secret, whoever shares its first 48 tokens."""
    prefix = contract.rows[7].prompt_token_ids[:48]
    sampling = SamplingParams(max_tokens=4, logprobs=5, ignore_eos=True)
    vocab = contract.loaded.tokenizer.vocab_size
    rows = [
        Request(
            row_id=row,
            prompt_token_ids=[*prefix, 20 + row % (vocab - 40), 15 + row // 2 % (vocab - 40)],
            sampling=sampling,
        )
        for row in range(64)
    ]
    alone, _ = contract.run(rows, **ALONE)
    outcomes, stats = contract.run(rows, max_num_seqs=64)
    assert outcomes == alone
    assert stats.prefix_cache_hits > 30 * 48
    assert len({outcome[2] for outcome in outcomes.values()}) == 64
