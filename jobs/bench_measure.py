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
from worker.errors import WorkerError

from .bench_plan import Case

_SEED = 20_240_901


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Times of one case.

    Attributes:
        case: what was measured.
        t_pp: seconds to compute all prompts, with the first token of each.
        t_tg: seconds of ``tg`` decode steps in which every sequence gets one token.
        ttft: seconds to the first token, median over the sequences that start together.
        hit_rate: share of weights found in the dequant cache during the decode steps.
        checksum: over the first ``tg`` tokens of every sequence.
    """

    case: Case
    t_pp: float
    t_tg: float
    ttft: float
    hit_rate: float
    checksum: str

    @property
    def decode_ms(self) -> float:
        """Milliseconds of a decode step."""
        return 1000 * self.t_tg / self.case.tg


def measure(engine: Engine, case: Case, budget: int) -> Measurement:
    """Prefill the case's prompts, then decode them, on an engine that holds nothing else."""
    t_pp, ttft = _prefill(engine, case)
    decode = _Decode(engine, case, case.prefill_steps(budget))
    return Measurement(
        case=case,
        t_pp=t_pp,
        t_tg=decode.seconds,
        ttft=ttft,
        hit_rate=decode.hit_rate,
        checksum=decode.checksum,
    )


def bench_requests(engine: Engine, case: Case, max_tokens: int) -> Iterator[Request]:
    """The case's prompts: random tokens, another sequence of them for each row, the same always."""
    sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    for row in range(case.b):
        random = np.random.default_rng((_SEED, row))
        ids = random.integers(0, engine.tokenizer.vocab_size, case.pp)
        yield Request(row_id=RowId(row), prompt_token_ids=ids.tolist(), sampling=sampling)


def _prefill(engine: Engine, case: Case) -> tuple[float, float]:
    """Seconds for all prompts, and the median time to a first token."""
    requests = list(bench_requests(engine, case, 1))
    started = perf_counter()
    for request in requests:
        engine.add_request(request)
    done = []
    while engine.has_work:
        done += engine.step()
    seconds = perf_counter() - started
    return seconds, median(completion.ttft_s or 0.0 for completion in done)


class _Decode:
    """The decode steps of a case.

    While the last prompts are computed the first sequences decode already. Only steps after
    that are timed, in which each sequence gets exactly one token; then all run to their end.
    """

    def __init__(self, engine: Engine, case: Case, prefill_steps: int) -> None:
        self._engine, self._case = engine, case
        for request in bench_requests(engine, case, case.tg + prefill_steps + 1):
            engine.add_request(request)
        prompts = engine.stats.snapshot().prefill_tokens + case.b * case.pp
        while engine.stats.snapshot().prefill_tokens < prompts:
            self._refuse_early_end(len(engine.step()))
        self.seconds, self.hit_rate = self._timed_steps()
        self.checksum = self._finish()

    def _timed_steps(self) -> tuple[float, float]:
        before = self._engine.stats.snapshot()
        started = perf_counter()
        for _ in range(self._case.tg):
            self._refuse_early_end(len(self._engine.step()))
        seconds = perf_counter() - started
        after = self._engine.stats.snapshot()
        decoded = after.decode_tokens - before.decode_tokens
        assert decoded == self._case.tg * self._case.b, "a step that was not all decode"
        hits = after.dequant_hits - before.dequant_hits
        misses = after.dequant_misses - before.dequant_misses
        return seconds, hits / max(1, hits + misses)

    def _finish(self) -> str:
        checksum = TokenChecksum()
        while self._engine.has_work:
            for completion in self._engine.step():
                checksum.add(completion.row_id, completion.token_ids[: self._case.tg])
        return str(checksum)

    def _refuse_early_end(self, num_completions: int) -> None:
        """A sequence that ends during the timed steps is a row error, and the figure is void."""
        if num_completions:
            raise WorkerError(f"a sequence of {self._case} ended before the measurement did")
