"""Measuring one case of the bench: its prefill, then its decode, each by itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import numpy as np

from worker.engine.checksum import TokenChecksum
from worker.engine.engine import Engine
from worker.engine.request import Request, RowId
from worker.engine.sampling_params import SamplingParams

from .bench_plan import Case
from .blas_bound import BlasStep

_SEED = 20_240_901


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Times of one case.

    Attributes:
        case: what was measured.
        t_pp: seconds to compute all prompts, with the first token of each.
        steps: seconds of each decode step in which every sequence gets one token.
        blas_steps: seconds of the products of such a step by BLAS alone, each taken right after
            the step of the same place, so that both saw the same machine; empty when not asked.
        ttft: seconds to the first token, median over the sequences that start together.
        hit_rate: share of weight visits found in the dequant cache during the decode steps; None
            when no weight was looked for there.
        checksum: over the first ``tg`` tokens of every sequence.
    """

    case: Case
    t_pp: float
    steps: tuple[float, ...]
    blas_steps: tuple[float, ...]
    ttft: float
    hit_rate: float | None
    checksum: str

    @property
    def t_tg(self) -> float:
        """Seconds of all decode steps."""
        return sum(self.steps)

    @property
    def decode_ms(self) -> float:
        """Milliseconds of a decode step, the median."""
        return 1000 * median(self.steps)

    @property
    def blas_ms(self) -> float | None:
        """Milliseconds of BLAS alone, the median; None when not asked."""
        return 1000 * median(self.blas_steps) if self.blas_steps else None


def warm_up(engine: Engine, most_sequences: int) -> None:
    """Have kernels compiled and weights dequantised before anything is timed.

    Kernels may differ for one row and for many, so both run.
    """
    for b in sorted({1, most_sequences}):
        engine.generate(_requests(engine, Case(pp=16, tg=2, b=b), 2))


def measure(engine: Engine, case: Case, blas: BlasStep | None) -> Measurement:
    """Prefill the case's prompts, then decode them, on an engine that holds nothing else."""
    t_pp, ttft = _prefill(engine, case)
    start_decode(engine, case)
    before = engine.stats.snapshot()
    steps, blas_steps = [], []
    for _ in range(case.tg):
        steps.append(decode_step(engine, case))
        if blas is not None:
            blas_steps.append(blas.seconds())
    after = engine.stats.snapshot()
    hits = after.dequant_hits - before.dequant_hits
    misses = after.dequant_misses - before.dequant_misses
    return Measurement(
        case=case,
        t_pp=t_pp,
        steps=tuple(steps),
        blas_steps=tuple(blas_steps),
        ttft=ttft,
        hit_rate=hits / (hits + misses) if hits + misses else None,
        checksum=_finish(engine, case),
    )


def prefill_requests(engine: Engine, case: Case) -> list[Request]:
    """The case's prompts, each with one token to generate."""
    return list(_requests(engine, case, 1))


def start_decode(engine: Engine, case: Case) -> None:
    """Bring all sequences of the case to where each has its first token.

    While the last prompts are computed the first sequences decode already, so each is allowed
    as many tokens more as that can take.
    """
    extra = case.prefill_steps(engine.config.max_num_batched_tokens) + 1
    prompts = engine.stats.prefill_tokens + case.b * case.pp
    for request in _requests(engine, case, case.tg + extra):
        engine.add_request(request)
    while engine.stats.prefill_tokens < prompts:
        engine.step()


def decode_step(engine: Engine, case: Case) -> float:
    """Seconds of a step in which every sequence of the case gets exactly one token."""
    before = engine.stats.decode_tokens
    started = perf_counter()
    engine.step()
    seconds = perf_counter() - started
    decoded = engine.stats.decode_tokens - before
    assert decoded == case.b, (decoded, case)  # else the figure would mean nothing
    return seconds


def _prefill(engine: Engine, case: Case) -> tuple[float, float]:
    """Seconds for all prompts, and the median time to a first token."""
    requests = prefill_requests(engine, case)
    started = perf_counter()
    completions = engine.generate(requests)
    seconds = perf_counter() - started
    return seconds, median(completion.ttft_s or 0.0 for completion in completions)


def _finish(engine: Engine, case: Case) -> str:
    """Run all sequences to their end; the checksum over their first ``tg`` tokens."""
    checksum = TokenChecksum()
    while engine.has_work:
        for completion in engine.step():
            checksum.add(completion.row_id, completion.token_ids[: case.tg])
    return str(checksum)


def _requests(engine: Engine, case: Case, max_tokens: int) -> Iterator[Request]:
    """Random prompts, another one for each sequence, the same in every run."""
    sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    for row in range(case.b):
        random = np.random.default_rng((_SEED, row))
        ids = random.integers(0, engine.tokenizer.vocab_size, case.pp)
        yield Request(row_id=RowId(row), prompt_token_ids=ids.tolist(), sampling=sampling)
