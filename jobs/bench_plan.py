"""What the bench is asked to measure."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import inf

from cluster.errors import JobConfigError
from worker.compute_config import ComputeMode
from worker.engine.config import EngineConfig

NO_BOUND = "all"


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the bench: sizes as llama.cpp's batched bench names them.

    Attributes:
        pp: prompt tokens of each sequence.
        tg: generated tokens of each sequence.
        b: sequences at a time.
    """

    pp: int
    tg: int
    b: int

    def __str__(self) -> str:
        return f"PP {self.pp}, TG {self.tg}, B {self.b}"

    @property
    def n_kv(self) -> int:
        """Tokens in the KV pool at the end."""
        return self.b * (self.pp + self.tg)

    def prefill_steps(self, budget: int) -> int:
        """Most steps until every prompt is computed, under a budget of tokens a step.

        Sequences whose prompt is done decode a token in each of these steps.
        """
        return -(-self.b * self.pp // max(1, budget - self.b)) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """All cases, and the settings they run under.

    Attributes:
        cases: in the order of printing.
        cache_layers: bounds of the dequant cache in layers, None for no bound; the smallest
            first, so that the process's peak memory is that of the bound just measured.
        compute: int8 or f32.
        threads: None for all cores.
        max_num_batched_tokens: most tokens a step.
    """

    cases: tuple[Case, ...]
    cache_layers: tuple[int | None, ...]
    compute: ComputeMode
    threads: int | None
    max_num_batched_tokens: int

    @classmethod
    def parse(
        cls,
        npp: str,
        ntg: str,
        npl: str,
        cache_layers: str,
        compute: ComputeMode | None,
        threads: int | None,
        max_num_batched_tokens: int,
    ) -> "BenchPlan":
        """Read the lists of the command line; every combination becomes a case.

        Raises:
            JobConfigError: naming the option and the value that is no positive whole number.
        """
        sizes = (counts("--npp", npp), counts("--ntg", ntg), counts("--npl", npl))
        return cls(
            cases=tuple(Case(pp, tg, b) for pp, tg, b in product(*sizes)),
            cache_layers=tuple(sorted(_layer_bounds(cache_layers), key=lambda n: n or inf)),
            compute=compute or EngineConfig().compute,
            threads=threads,
            max_num_batched_tokens=max(max_num_batched_tokens, *sizes[2]),
        )

    @property
    def max_num_seqs(self) -> int:
        """Most sequences of any case."""
        return max(case.b for case in self.cases)

    def max_len(self, case: Case) -> int:
        """Most tokens of a sequence of the case, those decoded during prefill included."""
        return case.pp + case.tg + case.prefill_steps(self.max_num_batched_tokens) + 1


def counts(option: str, text: str) -> list[int]:
    """Read positive whole numbers separated by commas.

    Raises:
        JobConfigError: naming the option and the value that is none.
    """
    values = [part.strip() for part in text.split(",")]
    for value in values:
        if not value.isdecimal() or int(value) < 1:
            raise JobConfigError(
                f"{option} {text}: found {value!r}, expected positive whole numbers "
                "separated by commas"
            )
    return [int(value) for value in values]


def _layer_bounds(text: str) -> Iterator[int | None]:
    for value in text.split(","):
        if value.strip() == NO_BOUND:
            yield None
        else:
            yield from counts("--dequant-cache-layers", value)
