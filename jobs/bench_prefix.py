"""``tokenmill bench-prefix``: rows that share a prefix, with and without reuse of its K/V."""

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from worker.engine.checksum import TokenChecksum
from worker.engine.config import EngineConfig
from worker.engine.engine import Engine
from worker.engine.loading import LoadedModel, load
from worker.engine.request import Request, RowId
from worker.engine.sampling_params import SamplingParams
from worker.model_source import fetch_model

from .bench_load import LoadPlan, check_length, print_result
from .text_table import aligned

_SEED = 20_261_129
_ROUNDS = 8
_PREFILL_SHARE = 16  # so many rows for one that is computed to learn what a prompt token costs


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixPlan(LoadPlan):
    """What is run.

    Attributes:
        rows: how many.
        prefix: prompt tokens that all rows share.
        own: prompt tokens of each row that no other has.
        tg: generated tokens of each row.
        b: rows at a time.
    """

    rows: int
    prefix: int
    own: int
    tg: int
    b: int

    def requests(self, vocab_size: int, first: int, count: int, tg: int) -> Iterator[Request]:
        """Rows ``first`` to ``first + count - 1``; the same in every run."""
        rng = np.random.default_rng(_SEED)
        prefix = rng.integers(0, vocab_size, self.prefix).tolist()
        sampling = SamplingParams(max_tokens=tg, ignore_eos=True)
        for row in range(first, first + count):
            own = np.random.default_rng((_SEED, row)).integers(0, vocab_size, self.own).tolist()
            yield Request(row_id=RowId(row), prompt_token_ids=prefix + own, sampling=sampling)

    def config(self, *, prefix_caching: bool) -> EngineConfig:
        """An engine for it: the same pool with and without reuse, equal rows computed each."""
        block = EngineConfig().block_size
        blocks = -(-(self.prefix + self.own + self.tg) // block)
        return EngineConfig(
            compute=self.compute,
            threads=self.threads,
            max_num_seqs=self.b,
            max_num_batched_tokens=max(512, self.b),
            kv_pool_tokens=self.b * blocks * block,
            prefix_caching=prefix_caching,
            deduplicate=False,
        )


@dataclass(slots=True)
class Side:
    """One of the two engines and what it has done so far."""

    engine: Engine
    checksum: TokenChecksum
    seconds: float = 0.0

    def run(self, requests: list[Request]) -> None:
        """Complete some rows."""
        started = perf_counter()
        completions = self.engine.generate(requests)
        self.seconds += perf_counter() - started
        for completion in completions:
            assert completion.error is None, completion.error
            self.checksum.add(completion.row_id, completion.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixResult:
    """What was measured.

    Attributes:
        rows_per_s_without, rows_per_s_with: throughput.
        computed_without, computed_with: prompt tokens that were computed.
        prompt_token_s: seconds that a prompt token costs without reuse.
        checksum: over the tokens of all rows, the same on both sides.
        pool_bytes: of the KV pool, the same on both sides.
        seconds_without, seconds_with: for all rows.
    """

    rows_per_s_without: float
    rows_per_s_with: float
    computed_without: int
    computed_with: int
    prompt_token_s: float
    checksum: str
    pool_bytes: int
    seconds_without: float
    seconds_with: float

    @property
    def speedup(self) -> float:
        """Rows/s with reuse over rows/s without."""
        return self.rows_per_s_with / self.rows_per_s_without

    @property
    def predicted(self) -> float | None:
        """The speed-up if nothing but the saved prompt tokens' cost were gone.

        None where they seem to cost more than the whole run: too little was run to tell.
        """
        saved = (self.computed_without - self.computed_with) * self.prompt_token_s
        left = self.seconds_without - saved
        return self.seconds_without / left if left > 0 else None


def run_prefix_bench(model: str, plan: PrefixPlan, output_format: str) -> None:
    """Run the rows with and without reuse, in turns of an eighth of them, and print both speeds.

    Raises:
        ModelError: the model cannot be used.
        EngineConfigError: rows longer than the model's context.
        PoolSizeError: the KV pools do not fit this machine.
    """
    path = fetch_model(model)
    loaded = load(path, plan.config(prefix_caching=True))
    with closing(loaded.team):
        result = measure_prefix(loaded, plan)
    figures = asdict(result) | {"speedup": result.speedup, "predicted": result.predicted}
    lines = prefix_lines(path, plan, result, loaded.team.threads)
    print_result(path, plan, figures, lines, output_format)


def measure_prefix(loaded: LoadedModel, plan: PrefixPlan) -> PrefixResult:
    """Run all rows with and without reuse.

    Raises:
        EngineConfigError: rows longer than the model's context.
    """
    without, reusing, prefill = (
        Side(Engine(loaded, plan.config(prefix_caching=on)), TokenChecksum())
        for on in (False, True, False)
    )
    check_length(plan.prefix + plan.own + plan.tg, without.engine, "--prefix, --own or --ntg")
    vocab_size = loaded.tokenizer.vocab_size
    without.engine.generate(plan.requests(vocab_size, plan.rows, 1, 2))  # kernels, recorded steps
    before = without.engine.stats.prefill_tokens
    share = -(-plan.rows // _ROUNDS)
    for first in range(0, plan.rows, share):
        print(f"rows {first} to {min(first + share, plan.rows)} ...", file=sys.stderr, flush=True)
        rows = list(plan.requests(vocab_size, first, min(share, plan.rows - first), plan.tg))
        prefill.run(_first_tokens_only(rows))
        for side in (without, reusing):
            side.run(rows)
    assert str(without.checksum) == str(reusing.checksum), "reuse changed a token"
    return PrefixResult(
        rows_per_s_without=plan.rows / without.seconds,
        rows_per_s_with=plan.rows / reusing.seconds,
        computed_without=without.engine.stats.prefill_tokens - before,
        computed_with=reusing.engine.stats.prefill_tokens,
        prompt_token_s=prefill.seconds / prefill.engine.stats.prefill_tokens,
        checksum=str(without.checksum),
        pool_bytes=without.engine.kv.n_bytes,
        seconds_without=without.seconds,
        seconds_with=reusing.seconds,
    )


def _first_tokens_only(rows: list[Request]) -> list[Request]:
    """Some of the rows, to generate a single token each: their cost is that of their prompts."""
    one = SamplingParams(max_tokens=1, ignore_eos=True)
    return [replace(row, sampling=one) for row in rows[::_PREFILL_SHARE]]


def prefix_lines(path: Path, plan: PrefixPlan, result: PrefixResult, threads: int) -> list[str]:
    """The result as text."""
    rows: list[tuple[Any, ...]] = [
        ("", "rows/s", "s", "prompt tokens computed"),
        (
            "without reuse",
            f"{result.rows_per_s_without:.2f}",
            f"{result.seconds_without:.1f}",
            f"{result.computed_without:,}",
        ),
        (
            "with reuse",
            f"{result.rows_per_s_with:.2f}",
            f"{result.seconds_with:.1f}",
            f"{result.computed_with:,}",
        ),
    ]
    return [
        f"{path.name}: {plan.rows} rows, {plan.prefix} shared and {plan.own} own prompt tokens, "
        f"{plan.tg} generated, B {plan.b}, {threads} threads, {plan.compute}",
        *aligned(rows),
        f"{result.speedup:.2f}x the rows/s; {_prediction(result)}",
        f"KV pool {result.pool_bytes / 2**20:.0f} MiB each; checksum {result.checksum} on both "
        "sides",
    ]


def _prediction(result: PrefixResult) -> str:
    if result.predicted is None:
        return "too few rows to predict it from the saved prompt tokens"
    share = result.speedup / result.predicted
    return f"the saved prompt tokens alone predict {result.predicted:.2f}x: {share:.0%} of that"
