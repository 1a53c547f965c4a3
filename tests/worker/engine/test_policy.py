"""What the scheduler promises, at random: on the fake model, and on tiny real ones bit for bit."""

from dataclasses import replace
from functools import cache
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from worker.engine.config import EngineConfig
from worker.engine.engine import Engine
from worker.engine.loading import load
from worker.engine.request import Request
from worker.engine.sampling_params import SamplingParams

from .fake_model import one_at_a_time
from .logits_log import LogitsLog
from .test_engine import make_engine, outcome
from .watched_scheduler import WatchedScheduler

TINY = Path(__file__).parents[2] / "data" / "tiny"
SETTINGS = {
    "block_size": 4,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 9,
    "kv_pool_tokens": 64,
}
ALONE = {"max_num_seqs": 1, "prefix_caching": False, "deduplicate": False}


class EngineMachine(RuleBasedStateMachine):
    """Rows arrive, run and are aborted at any time, every step of the scheduler watched."""

    def __init__(self):
        super().__init__()
        self.engine = self.make()
        self.engine._scheduler.__class__ = WatchedScheduler
        self.waiting = {}
        self.next_row = 0

    @rule(
        same=st.integers(0, 20),
        tokens=st.lists(st.integers(0, 1), min_size=1, max_size=4),
        max_tokens=st.sampled_from([1, 5, 30]),
        seed=st.sampled_from([None, 7, 8]),
        n=st.sampled_from([1, 1, 3]),
    )
    def arrive(self, same, tokens, max_tokens, seed, n):
        """A row comes, greedy or with a seed, some equal to others or like them for a while."""
        sampling = SamplingParams(
            max_tokens=max_tokens, temperature=0 if seed is None else 1, seed=seed, n=n
        )
        request = Request(
            row_id=self.next_row, prompt_token_ids=[9] * same + tokens, sampling=sampling
        )
        self.next_row += 1
        self.waiting[request.row_id] = request
        self.engine.add_request(request)

    @precondition(lambda self: self.engine.has_work)
    @rule(steps=st.integers(1, 6))
    def run(self, steps):
        """Some steps pass."""
        for _ in range(steps):
            for completion in self.engine.step():
                self.check(self.waiting.pop(completion.row_id), completion)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def abort(self, data):
        """A row is forgotten; it is never answered."""
        row = data.draw(st.sampled_from(sorted(self.waiting)))
        self.engine.abort(row)
        del self.waiting[row]

    @invariant()
    def sound(self):
        """Pool, tables and queues agree."""
        self.engine.check_invariants()

    def teardown(self):
        """Every row that was not aborted is answered, and all blocks are free."""
        for _ in range(2000):
            if not self.engine.has_work:
                break
            self.run(1)
            self.engine.check_invariants()
        assert self.waiting == {}
        assert self.engine.stats.snapshot().kv_blocks_used == 0


class FakeMachine(EngineMachine):
    """Rows of the fake model; each answer is the twin's."""

    def make(self):
        """A small pool."""
        return make_engine(**SETTINGS)

    def check(self, request, completion):
        """The row as its twin gives it, completion by completion."""
        found = [outcome(each) for each in (completion, *completion.others)]
        assert found == [
            outcome(one_at_a_time(request, completion_index=index))
            for index in range(request.sampling.n)
        ]


@cache
def loaded_model(name):
    """A tiny model, loaded once."""
    return load(TINY / f"{name}.gguf", EngineConfig(threads=1))


@cache
def alone(name, tokens, sampling):
    """A row alone and without any reuse, with its logits; seeded, so any row id will do."""
    engine = Engine(loaded_model(name), EngineConfig(block_size=4, kv_pool_tokens=64, **ALONE))
    log = LogitsLog(engine)
    (completion,) = engine.generate(
        [Request(row_id=0, prompt_token_ids=list(tokens), sampling=sampling)]
    )
    return described(completion, log)


def described(completion, log):
    """Tokens, texts and logits of all completions of a row."""
    completions = (completion, *completion.others)
    return [
        (outcome(replace(each, row_id=0)), seen)
        for each, seen in zip(completions, log.take(completion), strict=True)
    ]


class TinyMachine(EngineMachine):
    """Rows of a tiny real model; each answer has the bits of the row alone.

    Rows are compared at the end: another engine in between would record the model's step anew.
    """

    model = "llama/llama-Q4_1"

    def make(self):
        """The same small pool; equal rows are computed each, so that all of them have logits."""
        engine = Engine(loaded_model(self.model), EngineConfig(deduplicate=False, **SETTINGS))
        self.log, self.answers = LogitsLog(engine), []
        return engine

    def check(self, request, completion):
        """Keep the row for the end."""
        self.answers.append((request, described(completion, self.log)))

    def teardown(self):
        """Rows that were preempted, chunked and forked got what they get alone."""
        super().teardown()
        for request, found in self.answers:
            tokens = tuple(request.prompt_token_ids)
            assert found == alone(self.model, tokens, request.sampling)


class TinyWindowMachine(TinyMachine):
    """A model with layers that see a window."""

    model = "gemma3/gemma3-F16"


class TinyRecurrentMachine(TinyMachine):
    """A model with layers whose state is copied to forks, and begins anew after a preemption."""

    model = "qwen35/qwen35-Q8_0"


TestFakeModel = FakeMachine.TestCase
TestFakeModel.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestTinyModel = TinyMachine.TestCase
TestTinyModel.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
TestTinyWindowModel = TinyWindowMachine.TestCase
TestTinyWindowModel.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
TestTinyRecurrentModel = TinyRecurrentMachine.TestCase
TestTinyRecurrentModel.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
