"""The determinism contract on real models: what a row gets does not depend on what is around it.

Texts, token ids, log-probabilities and every row of logits that a token was sampled from are
compared bit for bit with the row alone, computed at once, without any reuse.
"""

import itertools
import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from worker.engine.config import EngineConfig
from worker.engine.engine import Engine
from worker.engine.loading import load
from worker.engine.request import Request
from worker.engine.sampling_params import SamplingParams

from .logits_log import LogitsLog

TINY = {
    "llama": "llama-Q4_1.gguf",
    "llama3-rope": "llama3-rope-F16.gguf",
    "gemma3": "gemma3-F16.gguf",
}
EXPERTS = {"mixtral": "mixtral-Q4_0.gguf", "gpt-oss": "gpt-oss-Q8_0.gguf"}
REAL = ("smollm2", "gemma3_270m")
MODES = ("int8", "f32")
SHORT = SamplingParams(max_tokens=3, logprobs=5, ignore_eos=True)
ALONE = {"max_num_seqs": 1, "prefix_caching": False, "deduplicate": False}


@dataclass
class Contract:
    """A loaded model, and what its rows get when each is alone."""

    path: object
    mode: str
    loaded: object
    rows: list
    long_rows: list
    alone: dict
    others: dict = field(default_factory=dict)

    def alone_of(self, rows):
        """Outcomes of any rows alone, by row id; each row is computed once."""
        keys = {row.row_id: (row.row_id, tuple(row.prompt_token_ids), row.sampling) for row in rows}
        new = [row for row in rows if keys[row.row_id] not in self.others]
        outcomes, _ = self.run(new, **ALONE)
        self.others |= {keys[row_id]: outcome for row_id, outcome in outcomes.items()}
        return {row_id: self.others[key] for row_id, key in keys.items()}

    def engine(self, loaded=None, **settings):
        """An engine under some settings, and the log of what it samples from."""
        engine = Engine(loaded or self.loaded, EngineConfig(compute=self.mode, **settings))
        return engine, LogitsLog(engine)

    def run(self, rows=None, loaded=None, **settings):
        """Outcomes of rows under some settings, by row id, and the statistics."""
        engine, log = self.engine(loaded, **settings)
        completions = engine.generate(self.rows if rows is None else rows)
        engine.check_invariants()
        assert engine.stats.snapshot().kv_blocks_used == 0
        return {c.row_id: outcome(c, log) for c in completions}, engine.stats.snapshot()


def outcome(completion, log):
    """What the contract fixes, of each of a row's completions: all but times and statistics."""
    assert completion.error is None, completion.error
    return [
        (each.text, each.token_ids, each.logprobs, each.finish_reason, logits)
        for each, logits in zip((completion, *completion.others), log.take(completion), strict=True)
    ]


def make_rows(vocab, count=64, seed=0, own=None):
    """Rows with and without shared prefixes, greedy and sampled, seeded and not, 1 to 90 tokens."""
    rng, sizes = random.Random(seed), random.Random(seed)  # the same sizes for every vocabulary
    prefix = [rng.randrange(10, vocab - 10) for _ in range(64)]
    rows = []
    for row in range(count):
        shared = prefix[: (0, 0, 15, 16, 17, 33, 48, 64)[row % 8]]
        length = own[row] if own else sizes.randint(1, 25)
        own_ids = [rng.randrange(10, vocab - 10) for _ in range(length)]
        sampling = SamplingParams(
            temperature=(0, 0.8)[row % 2],
            top_p=(1.0, 0.95)[row % 3 == 0],
            seed=(None, row)[row % 5 == 0],
            max_tokens=sizes.randint(2, 9),
            logprobs=20,
            ignore_eos=True,
        )
        rows.append(Request(row_id=row, prompt_token_ids=shared + own_ids, sampling=sampling))
    return rows


@pytest.fixture(
    scope="module",
    params=[
        *(pytest.param((name, mode), id=f"{name}-{mode}") for name in TINY for mode in MODES),
        *(pytest.param((name, "int8"), id=f"{name}-int8") for name in EXPERTS),
        *(pytest.param((name, "int8"), id=name, marks=pytest.mark.model) for name in REAL),
    ],
)
def contract(request, data):
    """Each model, loaded once, with the answers of its rows alone."""
    name, mode = request.param
    tiny = TINY | EXPERTS
    path = data / "tiny" / name / tiny[name] if name in tiny else request.getfixturevalue(name)
    loaded = load(path, EngineConfig(compute=mode))
    rows = make_rows(loaded.tokenizer.vocab_size)
    long = make_rows(loaded.tokenizer.vocab_size, count=2, seed=1, own=(110, 300))
    made = Contract(path, mode, loaded, rows, [replace(r, row_id=64 + r.row_id) for r in long], {})
    made.alone, _ = made.run(**ALONE)
    yield made
    loaded.team.close()


@pytest.mark.parametrize("batch", [2, 7, 32, 64])
def test_alone_equals_any_batch(contract, batch):
    """In batches with strangers, some of which share a prefix."""
    outcomes, stats = contract.run(max_num_seqs=batch)
    assert outcomes == contract.alone
    assert stats.prefix_cache_hits > 0


def test_a_row_alone_has_logits_at_each_position(contract):
    """The comparisons below are of something: a hash for each token, hardly any two equal."""
    rows = {row.row_id: row for row in contract.rows}
    seen = []
    for row_id, ((_, tokens, _, _, logits),) in contract.alone.items():
        assert len(tokens) == len(logits) == rows[row_id].sampling.max_tokens
        seen += [bits for bits, _, _ in logits]
    assert None not in seen
    assert len(set(seen)) > 0.9 * len(seen)


def test_rows_that_keep_no_logits_take_the_same_tokens(contract):
    """Greedy rows without log-probabilities: only the largest logit is ever found, and its bits."""
    rows = [row for row in contract.rows if row.sampling.temperature == 0]
    plain = [replace(row, sampling=replace(row.sampling, logprobs=None)) for row in rows]
    outcomes, _ = contract.run(plain, max_num_seqs=32)
    for row in rows:
        ((_, tokens, _, _, logits),) = contract.alone[row.row_id]
        ((_, found, _, _, best),) = outcomes[row.row_id]
        assert found == tokens
        assert best == tuple((None, *best_of) for _, *best_of in logits)


@pytest.mark.parametrize("chunk", [1, 16, 128, 4096])
@pytest.mark.parametrize("prefix_caching", [False, True])
def test_chunks_change_nothing(contract, chunk, prefix_caching):
    """Prompts of up to 300 tokens in chunks of 1, 16 and 128 tokens, and whole."""
    settings = {"max_num_batched_tokens": chunk, "max_num_seqs": min(chunk, 7)}
    rows = contract.rows[:8] if chunk == 1 else contract.rows[:16]  # token by token is slow
    rows = [*rows, *(contract.long_rows[:1] if chunk == 1 else contract.long_rows)]
    outcomes, stats = contract.run(rows, **settings, prefix_caching=prefix_caching)
    assert outcomes == contract.alone_of(rows)
    assert (stats.prefix_cache_hits > 0) is prefix_caching


def test_warm_cache_changes_nothing(contract):
    """The same rows twice through one engine: the second time most of each prompt is there."""
    engine, log = contract.engine(max_num_seqs=7)
    cold = {c.row_id: outcome(c, log) for c in engine.generate(contract.rows)}
    hits = engine.stats.snapshot().prefix_cache_hits
    warm = {c.row_id: c for c in engine.generate(contract.rows)}
    assert cold == contract.alone
    assert {row: outcome(c, log) for row, c in warm.items()} == contract.alone
    assert engine.stats.snapshot().prefix_cache_hits > 1.5 * hits
    keeps_all = all(group.window is None for group in contract.loaded.model.layer_groups)
    for row in contract.rows:
        # All whole blocks but the one with the last token; a window group may need its blocks.
        whole = (len(row.prompt_token_ids) - 1) // 16 * 16
        found = warm[row.row_id].num_cached_tokens
        assert found == whole if keeps_all else found <= whole


HITS = [(n, 2) for n in (0, 1, 15, 16, 17, 31, 32, 33)] + [(n, 0) for n in (48, 49, 64)]


@pytest.mark.parametrize(("shared", "own"), HITS)
def test_hits_at_inside_and_behind_block_borders_change_nothing(contract, shared, own):
    """From no shared token to a whole prompt, of which the last token's block is computed."""
    donor = contract.rows[7]
    prompt = [*donor.prompt_token_ids[:shared], *[11, 12][:own]]
    row = Request(row_id=100, prompt_token_ids=prompt, sampling=SHORT)
    engine, log = contract.engine(max_num_seqs=1)
    (first,) = engine.generate([donor])
    assert outcome(first, log) == contract.alone[donor.row_id]
    (found,) = engine.generate([row])
    assert {100: outcome(found, log)} == contract.alone_of([row])
    whole = (len(prompt) - 1) // 16 * 16
    assert found.num_cached_tokens == min(whole, shared // 16 * 16)


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_preemption_changes_nothing(contract, prefix_caching):
    """In a pool for little more than the longest row, rows are preempted and computed again."""
    rows = [
        replace(row, sampling=replace(row.sampling, max_tokens=20)) for row in contract.rows[:12]
    ]
    alone = contract.alone_of(rows)
    outcomes, stats = contract.run(
        rows, kv_pool_tokens=128, block_size=4, prefix_caching=prefix_caching
    )
    assert outcomes == alone
    assert stats.preemptions >= 3
    assert stats.recomputed_tokens > 0


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_a_pool_that_preempts_a_row_three_times_changes_nothing(contract, prefix_caching):
    """A pool of 96 tokens, in which others grow and end: the fourth row gives way to each."""
    lengths = (24, 16), (2, 61), (24, 10), (28, 48), (23, 9)  # of prompts and of completions
    rows = [
        Request(
            row_id=row,
            prompt_token_ids=[10 + (7 * row + 3 * i) % 200 for i in range(length)],
            sampling=replace(SHORT, max_tokens=generated, temperature=row % 2, seed=row),
        )
        for row, (length, generated) in enumerate(lengths)
    ]
    alone = contract.alone_of(rows)
    engine, log = contract.engine(block_size=4, kv_pool_tokens=96, prefix_caching=prefix_caching)
    preempted, preempt = Counter(), engine._scheduler._preempt

    def counted(sequence):
        preempted[sequence.row_id] += 1
        preempt(sequence)

    engine._scheduler._preempt = counted
    assert {c.row_id: outcome(c, log) for c in engine.generate(rows)} == alone
    assert preempted[3] >= 3


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_a_row_preempted_at_any_time_changes_nothing(contract, prefix_caching):
    """The newest two rows give up their blocks in every other step, in prefill and in decode."""
    rows = [
        replace(row, sampling=replace(row.sampling, max_tokens=12)) for row in contract.rows[2:9]
    ]
    alone = contract.alone_of(rows)
    engine, log = contract.engine(max_num_batched_tokens=40, prefix_caching=prefix_caching)
    for row in rows:
        engine.add_request(row)
    found, preempted = {}, Counter()
    for step in itertools.count():
        found |= {c.row_id: outcome(c, log) for c in engine.step()}
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
    alone = contract.alone_of(rows)  # one place: each starts when the one before has ended
    for settings in (
        {"max_num_seqs": 64},
        {"max_num_seqs": 3, "prefix_caching": False},
        {"max_num_seqs": 8, "kv_pool_tokens": 160},
        {"max_num_seqs": 24, "max_num_batched_tokens": 24},
    ):
        outcomes, _ = contract.run(rows, **settings)
        assert outcomes == alone
    assert [alone[row.row_id][:1] for row in rows] == [contract.alone[row.row_id] for row in rows]
    assert all(len({tokens for _, tokens, *_ in each}) > 1 for each in alone.values())


@pytest.mark.parametrize("drawn", [{}, {"temperature": 0.8, "seed": 5}], ids=["greedy", "drawn"])
def test_secrets_behind_a_shared_prefix_stay_apart(contract, drawn):
    """Each of 64 rows continues its own secret, whoever shares its first 48 tokens."""
    prefix = contract.rows[7].prompt_token_ids[:48]
    vocab = contract.loaded.tokenizer.vocab_size
    rows = [
        Request(
            row_id=row,
            prompt_token_ids=[*prefix, 20 + row % (vocab - 40), 15 + row // 2 % (vocab - 40)],
            sampling=replace(SHORT, max_tokens=4, **drawn),
        )
        for row in range(64)
    ]
    alone = contract.alone_of(rows)
    for settings in ({"max_num_seqs": 64}, {"max_num_seqs": 7}):
        outcomes, stats = contract.run(rows, **settings)
        assert outcomes == alone
        assert stats.prefix_cache_hits > 30 * 48
    logits = [bits for ((*_, seen),) in alone.values() for bits, *_ in seen]
    assert len(set(logits)) == len(logits) == 64 * 4  # no row's logits are another's
