"""``tokenmill bench-mixed``: how long running rows wait for a token while long prompts arrive."""

from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np

from worker.engine.config import EngineConfig
from worker.engine.engine import Engine
from worker.engine.request import Request, RowId
from worker.engine.sampling_params import SamplingParams
from worker.model_source import fetch_model

from .bench_load import LoadPlan, check_length, print_result
from .text_table import aligned

_SEED = 20_261_130
_SHORT_PROMPT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedPlan(LoadPlan):
    """What is run.

    Attributes:
        b: rows that decode all the time.
        tg: steps that they are watched for.
        long: tokens of a long prompt.
        every: steps from one long prompt to the next.
        max_num_batched_tokens: most tokens a step, the size of a chunk.
    """

    b: int
    tg: int
    long: int
    every: int
    max_num_batched_tokens: int

    @property
    def budget(self) -> int:
        """Most tokens a step: as asked for, but such that a prompt can go on beside all rows."""
        return max(self.max_num_batched_tokens, 2 * self.b)

    @property
    def generated(self) -> int:
        """Tokens that a running row may generate: the first rows begin before the last ones."""
        return self.tg + -(-self.b * _SHORT_PROMPT // (self.budget - self.b)) + 1

    @property
    def config(self) -> EngineConfig:
        """An engine in which all of it fits at once."""
        block = EngineConfig().block_size
        running = self.b * -(-(_SHORT_PROMPT + self.generated + 1) // block)
        waiting = -(-self.tg // self.every) * (-(-self.long // block) + 1)
        return EngineConfig(
            compute=self.compute,
            threads=self.threads,
            max_num_seqs=self.b + -(-self.tg // self.every),
            max_num_batched_tokens=self.budget,
            kv_pool_tokens=(running + waiting + self.b) * block,
            prefix_caching=False,
            deduplicate=False,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedResult:
    """What was seen.

    Attributes:
        quiet_s: seconds of the steps in which only the running rows took part.
        busy_s: seconds of those in which a long prompt was computed beside them.
        most_tokens: most tokens of a step.
        waits: most steps that any running row went from one token to the next; 1 is the least.
    """

    quiet_s: tuple[float, ...]
    busy_s: tuple[float, ...]
    most_tokens: int
    waits: int


def run_mixed_bench(model: str, plan: MixedPlan, output_format: str) -> None:
    """Run the load and print how long running rows waited for their tokens.

    Raises:
        ModelError: the model cannot be used.
        EngineConfigError: prompts longer than the model's context.
        PoolSizeError: the KV pool does not fit this machine.
    """
    path = fetch_model(model)
    with closing(Engine.from_gguf(path, plan.config)) as engine:
        needed = max(plan.long + 1, _SHORT_PROMPT + plan.generated)
        check_length(needed, engine, "--long or --ntg")
        result = measure_mixed(engine, plan)
    print_result(path, plan, asdict(result), mixed_lines(plan, result), output_format)


def measure_mixed(engine: Engine, plan: MixedPlan) -> MixedResult:
    """Watch every running row through all steps while long prompts come."""
    running = [_request(engine, row, _SHORT_PROMPT, plan.generated) for row in range(plan.b)]
    engine.generate([_request(engine, 0, min(plan.budget, plan.long), 1)])  # kernels
    for request in running:
        engine.add_request(request)
    while any(not _num_tokens(engine, row) for row in range(plan.b)):
        engine.step()
    quiet: list[float] = []
    busy: list[float] = []
    most = 0
    tokens_at = {row: [_num_tokens(engine, row)] for row in range(plan.b)}
    for step in range(plan.tg):
        if step % plan.every == plan.every // 2:
            engine.add_request(_request(engine, plan.b + step, plan.long, 1))
        before = engine.stats.prefill_tokens, engine.stats.decode_tokens
        started = perf_counter()
        engine.step()
        seconds = perf_counter() - started
        prefilled = engine.stats.prefill_tokens - before[0]
        (busy if prefilled else quiet).append(seconds)
        most = max(most, prefilled + engine.stats.decode_tokens - before[1])
        for row, counts in tokens_at.items():
            counts.append(_num_tokens(engine, row))
    for row in range(plan.b):
        engine.abort(RowId(row))
    return MixedResult(
        quiet_s=tuple(quiet),
        busy_s=tuple(busy),
        most_tokens=most,
        waits=max(map(_longest_wait, tokens_at.values())),
    )


def _longest_wait(counts: list[int]) -> int:
    """Most steps from one token to the next, by the number of tokens after each step."""
    longest = wait = 1
    for before, after in pairwise(counts):
        wait = 1 if after > before else wait + 1
        longest = max(longest, wait)
    return longest


def _num_tokens(engine: Engine, row: int) -> int:
    return engine.num_generated_tokens(RowId(row))


def _request(engine: Engine, row: int, length: int, tg: int) -> Request:
    rng = np.random.default_rng((_SEED, row))
    ids = rng.integers(0, engine.tokenizer.vocab_size, length).tolist()
    sampling = SamplingParams(max_tokens=tg, ignore_eos=True)
    return Request(row_id=RowId(row), prompt_token_ids=ids, sampling=sampling)


def mixed_lines(plan: MixedPlan, result: MixedResult) -> list[str]:
    """The result as text."""
    rows: list[tuple[Any, ...]] = [("ms from token to token", "steps", "median", "p99", "longest")]
    for name, seconds in (("decode alone", result.quiet_s), ("beside a prompt", result.busy_s)):
        if seconds:
            ms = 1000 * np.array(seconds)
            figures = (np.median(ms), np.percentile(ms, 99), ms.max())
            rows.append((name, str(len(ms)), *(f"{figure:.1f}" for figure in figures)))
    return [
        f"{plan.b} rows decode, a prompt of {plan.long} tokens comes every {plan.every} steps, at "
        f"most {plan.budget} tokens a step",
        *aligned(rows),
        f"a running row waited {result.waits} step(s) at most for its next token, of at most "
        f"{result.most_tokens} tokens",
    ]
